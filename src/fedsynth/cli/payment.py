"""What `--pay` says: how much of the budget a schema may cost."""

from __future__ import annotations

from fedsynth.errors import BadInput

PAID_DELTA = 1e-6


def budget_of(text: str) -> tuple[float, float]:
    """Epsilon and delta out of `epsilon=0.5,delta=1e-6`."""
    given = dict(part.partition("=")[::2] for part in text.replace(" ", "").split(","))
    try:
        epsilon, delta = float(given.pop("epsilon")), float(given.pop("delta", PAID_DELTA))
    except (KeyError, ValueError):
        raise BadInput(
            f"--pay {text}: expected epsilon=E or epsilon=E,delta=D, for example --pay epsilon=0.5"
        ) from None
    if given or not epsilon > 0 or not 0 < delta < 1:
        raise BadInput(f"--pay {text}: expected a positive epsilon and a delta in (0, 1), and nothing else")
    return epsilon, delta
