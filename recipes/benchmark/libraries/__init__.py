"""The libraries that are compared: each module makes a `Work` of it, see `recipes.benchmark.contestant`."""
