"""The algorithm object, its schedule and server rule, one-shot queries, and the one loop that drives them."""

import fedsynth.privacy  # noqa: F401  # its libraries are imported the quick way
