"""Policies that are not learnt, by their names in the table."""

RANDOM, SINGLE, PER_TASK, ORACLE = "random model", "best single model", "best model per task", "oracle"
EVOLVED = "evolved head"
