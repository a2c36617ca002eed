"""Local training at a client: batches, gradients, optimizers, phases; for a whole chunk of clients at once."""
