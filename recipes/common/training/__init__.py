"""Training of recipes: tokenizers, models, batches, optimizers, `model.fit`."""
