"""The parts that make the claim true: clipping, noise, mechanisms, the accountant, the ledger and the statement."""

import scipy

from fedsynth.late import late

if "signal" not in vars(scipy):  # dp_accounting names it on import and uses it for small convolutions alone
    scipy.signal = late("scipy.signal")
