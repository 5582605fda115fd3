"""The tri-role protocol as JAX functions: studies without endpoints, exact values included."""
