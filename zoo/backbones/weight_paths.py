"""Where in a model a weight stands: the names of the layers that it is inside of, and how far up."""

from typing import Any

# what stands before the first block
EMBEDDINGS = "embeddings"


def weight_path(task: Any, variable: Any) -> str:
    """Returns the place of a weight in a task: "backbone/encoder/block_0/attention/query/kernel".

    Args:
        task: A model with a `backbone`.
        variable: One of its weights.
    """
    for prefix, name in ((task.backbone.path, "backbone/"), (task.path, "")):
        if variable.path.startswith(f"{prefix}/"):
            return name + variable.path[len(prefix) + 1 :]
    return variable.path


def depth_of(place: str) -> tuple[str, int] | str:
    """Returns how far up in a model a weight stands: its stack and block, "embeddings" before them, "top" behind.

    Args:
        place: See `weight_path`.

    Example:

    >>> depth_of("backbone/decoder/block_3/attention/query/kernel")
    ('decoder', 3)
    """
    names = place.split("/")
    if names[0] != "backbone":
        return "top"
    block = next((name for name in names if name.startswith("block_")), None)
    if block is not None:
        return names[1], int(block.removeprefix("block_"))
    is_inside = names[1] in ("encoder", "decoder") and names[2] != "final_norm"
    return EMBEDDINGS if is_inside or names[1].endswith("_embedding") else "top"
