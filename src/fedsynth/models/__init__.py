"""What is trained: named parts and named losses, without parameters, state or randomness inside."""
