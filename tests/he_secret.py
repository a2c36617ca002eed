"""The secret key as it lies in memory, for tests that search for it."""

import numpy as np


def secret_words(keys):
    """The secret key as it lies in the memory of whoever uses it."""
    values = keys._secret_key.data().dyn_array()
    return np.array([values.at(place) for place in range(values.size())], dtype="<u8").tobytes()
