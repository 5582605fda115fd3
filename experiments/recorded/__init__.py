"""Recorded outcomes: which model to ask first, evolved and judged on what real models answered."""
