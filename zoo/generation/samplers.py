"""The samplers that choose token by token, and all samplers by name."""

import dataclasses
from typing import Any, ClassVar

import keras
from keras import ops

from zoo.generation.beam import Beam
from zoo.generation.checks import from_name
from zoo.generation.contrastive import Contrastive
from zoo.generation.filters import MinP, Temperature, TopK, TopP
from zoo.generation.sampler import Sampler

PACKAGE = "keras_transformer_zoo"


@keras.saving.register_keras_serializable(PACKAGE)
@dataclasses.dataclass(frozen=True)
class Greedy(Sampler):
    """Always the most probable token (of equal ones the lowest id)."""

    needs_numbers: ClassVar[bool] = False

    def choose(self, logits: Any, numbers: Any) -> Any:
        return ops.cast(ops.argmax(logits, axis=-1), "int32")

    def weights(self, logits: Any) -> Any:
        return ops.one_hot(ops.argmax(logits, axis=-1), logits.shape[-1], dtype="float32")


@keras.saving.register_keras_serializable(PACKAGE)
@dataclasses.dataclass(frozen=True)
class Sample(Sampler):
    """Draws tokens from the model's distribution, sharpened or flattened, and cut to its most probable part.

    The same as the processors `Temperature`, `TopK`, `TopP` and `MinP` in this order, behind all others, and a draw
    from what they leave. In another order they are processors of `Sample()`. The most probable token always stays.

    Args:
        temperature: See `Temperature`. (For the limit 0 use `Greedy`.)
        top_k: See `TopK`; None keeps all tokens.
        top_p: See `TopP`; 1 keeps all tokens.
        min_p: See `MinP`; 0 keeps all tokens.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> Sample(temperature=0.8, top_k=50)
    Sample(temperature=0.8, top_k=50, top_p=1.0, min_p=0.0)
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self):
        # they check the arguments
        self._filters()
        if self.top_k is not None:
            TopK(self.top_k)

    def weights(self, logits: Any) -> Any:
        # no temperature makes the logits overflow
        logits = logits - ops.max(logits, axis=-1, keepdims=True)
        if self.top_k is None or self.top_k >= logits.shape[-1]:
            return _weights(self._filtered(logits))
        # the others act on what is left: fewer numbers to look at
        best, token_ids = ops.top_k(logits, self.top_k)
        rows = ops.broadcast_to(
            ops.expand_dims(ops.arange(ops.shape(logits)[0], dtype="int32"), 1), ops.shape(token_ids)
        )
        indices = ops.reshape(ops.stack([rows, ops.cast(token_ids, "int32")], axis=-1), (-1, 2))
        return ops.scatter(indices, ops.reshape(_weights(self._filtered(best)), (-1,)), ops.shape(logits))

    def _filters(self) -> tuple:
        return Temperature(self.temperature), TopP(self.top_p), MinP(self.min_p)

    def _filtered(self, logits: Any) -> Any:
        for processor in self._filters():
            logits = processor(logits, None)
        return logits


def _weights(logits: Any) -> Any:
    return ops.exp(logits - ops.max(logits, axis=-1, keepdims=True))


_BY_NAME = {"greedy": Greedy, "sample": Sample, "beam": Beam, "contrastive": Contrastive}


def get_sampler(identifier: Any) -> Sampler:
    """Returns the sampler that a name, a configuration or a sampler stands for.

    Args:
        identifier: A `Sampler` (returned as it is), one of the names "greedy", "sample", "beam" and
            "contrastive" (default arguments), or a dictionary with the key "name" and arguments, as in a YAML file.

    Raises:
        ValueError: For a name that does not exist or an argument that the sampler does not have.
        TypeError: For any other object.

    Example:

    >>> get_sampler({"name": "beam", "num_beams": 5})
    Beam(num_beams=5, length_penalty=0.6, num_results=None)
    """
    if isinstance(identifier, Sampler):
        return identifier
    if isinstance(identifier, str):
        identifier = {"name": identifier}
    if not isinstance(identifier, dict):
        raise TypeError(
            f"sampler must be a Sampler, one of the names {sorted(_BY_NAME)}, or a dictionary with the key 'name', got "
            f"{identifier!r}."
        )
    return from_name("sampler", identifier, _BY_NAME)
