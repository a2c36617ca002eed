"""Attacks on synthetic data, and the limits that a privacy claim sets them."""
