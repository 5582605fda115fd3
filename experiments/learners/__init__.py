"""Learners beside each other at an equal number of episodes, once as published and once tuned with equal trials."""
