"""The hidden vector h to a choice of (model, role), for one candidate or a whole population."""
