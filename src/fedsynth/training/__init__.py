"""Local training at a client: batches, gradients, optimizers, phases; for a whole chunk of clients at once."""

import fedsynth.privacy  # noqa: F401  # its libraries are imported the quick way
