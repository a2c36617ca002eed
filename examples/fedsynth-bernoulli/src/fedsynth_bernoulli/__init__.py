"""Columns that are independent of each other, given the label: the smallest useful recipe."""
