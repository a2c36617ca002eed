"""Searches over settings: on public data, or charged."""
