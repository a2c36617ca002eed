"""How good and how private a release is: scores, attacks, audits, tuning, reports."""
