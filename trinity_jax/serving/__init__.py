"""A trained coordinator in use."""
