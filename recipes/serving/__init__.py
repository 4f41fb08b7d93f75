"""Serving of exported models: what `recipes.serve` is made of."""
