"""Propositions 1 and 2: how much random search and sep-CMA-ES gain from the same number of binary rewards."""
