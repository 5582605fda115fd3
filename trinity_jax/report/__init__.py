"""Figures and the one-page HTML report, from a run folder alone."""
