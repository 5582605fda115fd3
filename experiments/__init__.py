"""Runs and studies: one YAML file is one run."""
