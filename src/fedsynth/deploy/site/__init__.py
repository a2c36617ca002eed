"""The site's end: its policy, its payer, its runs and its disk."""
