"""Ablations: heads, singular-value scales, read position, roles, common random numbers, and sweeps of the settings."""
