"""What an attacker learns from synthetic data."""
