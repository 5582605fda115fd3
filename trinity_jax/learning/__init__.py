"""Rewards to the next population."""
