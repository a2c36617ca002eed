"""Where clients run: in this process, or on their own machines."""
