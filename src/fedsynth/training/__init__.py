"""What a client does at home: batches, gradients, optimizers, phases; for a whole chunk of clients at once."""
