"""Where a backbone came from: what files of another library said of it besides its configuration."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Origin:
    """What the files of the Transformers library said that they are written with again.

    Args:
        model_type: The family.
        dtype: Dtype of most of the weights.
        special_ids: Ids of special tokens, by the keys of `config.json`.
        is_base_model: Whether it was a model without a head.
        task: The task whose head was read; None for none.
        left_out: Beginnings of the names of weights that the class of the files had beside this head.
        similarity: By what the Sentence Transformers library compares vectors of the model; None for its default.
    """

    model_type: str
    dtype: str = "float32"
    special_ids: dict[str, int | list[int]] = dataclasses.field(default_factory=dict)
    is_base_model: bool = False
    task: str | None = None
    left_out: tuple[str, ...] = ()
    similarity: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns the arguments, for files."""
        return dataclasses.asdict(self) | {"left_out": list(self.left_out)}
