"""Evaluation of recipes: scores, baselines, intervals and tests."""
