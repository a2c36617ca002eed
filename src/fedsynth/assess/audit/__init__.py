"""Lower bounds on epsilon, from attacks on the running objects."""
