"""What is planned: a training, on a mesh of devices."""

import dataclasses
import math
from typing import Literal

from zoo.config import TransformerConfig
from zoo.config.checks import is_of_type

_ITEMSIZES = {"float32": 4, "bfloat16": 2, "mixed_bfloat16": 2, "mixed_float16": 2}


@dataclasses.dataclass(frozen=True)
class Job:
    """A training with Adam, by the code of this project on JAX.

    Weights, gradients and both moments of Adam are float32 (but with the policy "bfloat16", where all are bfloat16);
    the policy says what products are computed in. Each device along the axis "data" has a part of the rows and all that
    is here for its weights: neither weights nor moments are shared along it.

    Args:
        config: The model.
        batch_size: Rows of an update, of all devices together.
        length: Tokens of a row; of an encoder-decoder on each side.
        data: Parts of the batch.
        model: Devices that share the weights.
        dtype: Dtype policy: "mixed_bfloat16", "mixed_float16", "bfloat16" or "float32".
        remat: Whether the layers are computed again in the backward pass.
        attention: "scores" where the attention weights of a layer are held, as XLA does it; "flash" for a kernel that
            holds none. JAX takes cuDNN's for GPUs where nothing but a causal mask is asked for.
        accumulation: Batches whose gradients are averaged before an update; each has `batch_size / accumulation` rows.

    Raises:
        ValueError: If a number is below 1, a choice unknown, or the rows cannot be divided.

    Example:

    >>> Job(zoo.preset_config("gpt2_small"), batch_size=64, length=1024, data=8).rows_of_device
    8
    """

    config: TransformerConfig
    batch_size: int
    length: int
    data: int = 1
    model: int = 1
    dtype: str = "mixed_bfloat16"
    remat: bool = False
    attention: Literal["scores", "flash"] = "scores"
    accumulation: int = 1

    def __post_init__(self) -> None:
        for name in ("batch_size", "length", "data", "model", "accumulation"):
            value = getattr(self, name)
            if not is_of_type(value, int) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
        if self.dtype not in _ITEMSIZES:
            raise ValueError(f"dtype must be one of {', '.join(_ITEMSIZES)}, got {self.dtype!r}.")
        if self.attention not in ("scores", "flash"):
            raise ValueError(f"attention must be 'scores' or 'flash', got {self.attention!r}.")
        if self.data * self.accumulation > self.batch_size:
            raise ValueError(
                f"data * accumulation must be at most the {self.batch_size} rows of a batch, got {self.data} * "
                f"{self.accumulation}: each device would compute rows without tokens."
            )

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.data * self.model

    @property
    def rows_of_device(self) -> int:
        """Rows that a device computes at once; a batch that they do not divide is filled up."""
        return math.ceil(self.batch_size / (self.data * self.accumulation))

    @property
    def tokens_of_device(self) -> int:
        """Tokens of these rows, on one side."""
        return self.rows_of_device * self.length

    @property
    def itemsize(self) -> int:
        """Bytes of a number that is computed."""
        return _ITEMSIZES[self.dtype]

    @property
    def weight_itemsize(self) -> int:
        """Bytes of a weight, its gradient and each of its moments."""
        return 2 if self.dtype == "bfloat16" else 4
