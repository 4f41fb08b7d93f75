"""Recipes: from data to a model with one command, `python -m recipes.NAME`."""

import sys

from recipes.command.lazy_imports import LazyImports

# `import zoo` in a recipe waits until the recipe uses it: configs, their help and their mistakes come before
LAZY = (
    "keras",
    "layers",
    "pooch",
    "recipes.common.batching",
    "recipes.common.training.progress",
    "recipes.serving.app",
    "recipes.serving.http_server",
    "recipes.serving.tensorflow_grpc",
    "requests",
    "sacrebleu",
    "sacremoses",
    "tensorflow",
    "zoo",
)
sys.meta_path.insert(0, LazyImports(*LAZY))
