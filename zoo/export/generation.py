"""Endpoints of all tasks that write texts."""

from typing import Any

from zoo.export.saved_model import Endpoint
from zoo.generation.random import seed_tensor
from zoo.generation.text_graph import graph_function


def generation_endpoints(task: Any, seed: int, options: dict[str, Any]) -> dict[str, Endpoint]:
    """Returns the endpoints `serve(texts)` and `generate(texts, seed, max_new_tokens)`.

    Args:
        task: The task, with a tokenizer.
        seed: Seed of `serve`.
        options: Arguments of `zoo.generation.text_graph.graph_function`.

    Raises:
        ValueError: If the task has no tokenizer, or an argument is out of range.
    """
    import tensorflow as tf

    task.preprocessor.require_tokenizer("export()")
    generate = graph_function(task.generator, **options)
    seed = int(seed_tensor(seed))

    def serve(texts: Any) -> Any:
        return generate(texts, tf.constant(seed, tf.int64), tf.constant(0, tf.int32))

    texts, numbers = (("texts", (None,), "string"),), (("seed", (), "int64"), ("max_new_tokens", (), "int32"))
    return {"serve": Endpoint(serve, texts, "texts"), "generate": Endpoint(generate, texts + numbers, "texts")}
