"""Clients in this process: the cohort as a stack of tensors, and simulated speeds."""
