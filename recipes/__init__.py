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
    "requests",
    "sacrebleu",
    "sacremoses",
    "tensorflow",
    "zoo",
    "zoo.serving.application",
    "zoo.serving.http_server",
    "zoo.serving.tensorflow_grpc",
)
# parts of `zoo` that do without the rest of it, such as what a server's process needs
APART = ("zoo.extras", "zoo.lark", "zoo.private_folders", "zoo.serving", "zoo.version")
sys.meta_path.insert(0, LazyImports(*LAZY, apart=APART))
