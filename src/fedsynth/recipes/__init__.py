"""Each system as a short composition of parts, and the only registry of them."""
