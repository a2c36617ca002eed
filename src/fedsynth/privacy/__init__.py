"""The parts that make the claim true: clipping, noise, mechanisms, the accountant, the ledger and the statement."""
