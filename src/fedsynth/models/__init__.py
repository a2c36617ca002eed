"""The models that are trained: named parts and named losses, without parameters, state or randomness inside."""
