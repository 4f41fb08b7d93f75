"""Measurements: `python -m recipes.benchmark <name>`."""
