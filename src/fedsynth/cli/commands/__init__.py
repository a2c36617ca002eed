"""What a user sees: names, flags and help. Each command leads to a function of `cli/`, imported when it is called."""
