"""Faithfulness and usefulness of synthetic data."""
