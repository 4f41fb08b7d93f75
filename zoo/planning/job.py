"""What is planned: a training, on a mesh of devices."""

import dataclasses
import math
from typing import Literal

import keras

from zoo.config import TransformerConfig
from zoo.config.checks import is_of_type
from zoo.training.layerwise import OPTIMIZERS

_ITEMSIZES = {"float32": 4, "bfloat16": 2, "mixed_bfloat16": 2, "mixed_float16": 2}


@dataclasses.dataclass(frozen=True)
class Job:
    """A training run of this project on JAX.

    Weights, gradients and optimizer state are float32, or bfloat16 with the policy "bfloat16". The policy determines
    the type of matrix products. Each device along the axis "data" has a part of the rows, and with `fsdp` also of
    each matrix of weights and of its moments.

    Args:
        config: The model.
        batch_size: Number of rows of an update, over all devices.
        length: Number of tokens of a row; of an encoder-decoder on each side.
        data: Number of parts of the batch.
        model: Number of devices among which the weights are divided.
        fsdp: Whether the devices along "data" divide the weights, too, and gather what they compute with.
        dtype: Dtype policy: "mixed_bfloat16", "mixed_float16", "bfloat16" or "float32".
        remat: Whether the layers are computed again in the backward pass.
        attention: "scores" if the attention weights of a layer are in memory, as with XLA; "flash" for a kernel that
            does not hold them. On GPUs, JAX uses cuDNN's kernel if there is only a causal mask.
        accumulation: Number of batches whose gradients are averaged before an update; each has
            `batch_size / accumulation` rows.
        optimizer: Name of a Keras optimizer in lower case.
        compiler: The compiler whose programs are planned. "accelerator": XLA for TPUs, also assumed for GPUs; "cpu":
            XLA for CPUs, which holds and sends more, and saves no memory by `remat` and 16-bit types.
        device_memory: Bytes of memory of a device, of which the loss takes a share for the logits that it holds at
            once; None for the share that it takes on a processor.

    Raises:
        ValueError: If a number is below 1, a choice is unknown, the rows cannot be divided, or a row is longer than the
            model allows.

    Example:

    >>> Job(zoo.preset_config("gpt2_small"), batch_size=64, length=1024, data=8).rows_of_device
    8
    """

    config: TransformerConfig
    batch_size: int
    length: int
    data: int = 1
    model: int = 1
    fsdp: bool = False
    dtype: str = "mixed_bfloat16"
    remat: bool = False
    attention: Literal["scores", "flash"] = "scores"
    accumulation: int = 1
    optimizer: str = "adam"
    compiler: Literal["accelerator", "cpu"] = "accelerator"
    device_memory: float | None = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "length", "data", "model", "accumulation"):
            value = getattr(self, name)
            if not is_of_type(value, int) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
        if self.dtype not in _ITEMSIZES:
            raise ValueError(f"dtype must be one of {', '.join(_ITEMSIZES)}, got {self.dtype!r}.")
        if self.attention not in ("scores", "flash"):
            raise ValueError(f"attention must be 'scores' or 'flash', got {self.attention!r}.")
        if self.compiler not in ("accelerator", "cpu"):
            raise ValueError(f"compiler must be 'accelerator' or 'cpu', got {self.compiler!r}.")
        if self.compiler == "cpu" and (self.remat or self.itemsize != 4):
            raise ValueError(
                f"compiler must be 'accelerator' with remat or types of 16 bits, got 'cpu' with remat={self.remat} and "
                f"dtype={self.dtype!r}: XLA for processors holds as much as without them."
            )
        optimizer_named(self.optimizer)
        if self.length > self.config.max_length:
            raise ValueError(
                f"length must be at most the {self.config.max_length} positions of the model (max_length of its "
                f"configuration), got {self.length}."
            )
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
    def along_data(self) -> int:
        """Number of devices along the axis "data" that divide the weights."""
        return self.data if self.fsdp else 1

    @property
    def rows_of_device(self) -> int:
        """Number of rows that a device computes at once. A batch that cannot be divided equally is filled up."""
        return math.ceil(self.batch_size / (self.data * self.accumulation))

    @property
    def tokens_of_device(self) -> int:
        """Number of tokens of these rows, on one side."""
        return self.rows_of_device * self.length

    @property
    def itemsize(self) -> int:
        """Bytes of a computed number."""
        return _ITEMSIZES[self.dtype]

    @property
    def weight_itemsize(self) -> int:
        """Bytes of a weight, its gradient and each of its moments."""
        return 2 if self.dtype == "bfloat16" else 4


def optimizer_named(name: str) -> type[keras.optimizers.Optimizer]:
    """Returns an optimizer of Keras by its name in lower case, as recipes take it.

    Args:
        name: The name.

    Raises:
        ValueError: If there is none.

    Example:

    >>> optimizer_named("adamw") is keras.optimizers.AdamW
    True
    """
    known = {kind.__name__.lower(): kind for kind in OPTIMIZERS}
    if name not in known:
        raise ValueError(f"optimizer must be one of {', '.join(sorted(known))}, got {name!r}.")
    return known[name]
