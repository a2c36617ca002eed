"""The parts that make the claim true: clipping, noise, mechanisms, the accountant, the ledger and the statement."""

from fedsynth.late import deferred

with deferred("scipy.fft", "scipy.optimize", "scipy.signal", "scipy.special", "scipy.stats:norm"):
    import dp_accounting  # noqa: F401  # most commands need its events alone
