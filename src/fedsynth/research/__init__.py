"""Experiments, data sets of papers, baselines and fault simulation: not in the wheel."""
