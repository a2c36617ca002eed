"""Is it good, is it safe: scores, attacks and audits."""
