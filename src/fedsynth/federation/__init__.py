"""The algorithm object, its schedule and server rule, one-shot queries, and the one loop that drives them."""
