"""How messages are added up, and who may see the sum."""
