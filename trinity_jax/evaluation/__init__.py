"""Baselines at a stated budget, intervals, the final table."""
