"""Low-rank updates (LoRA) as layers of Keras hold them: their factors, and kernels with the updates added."""

from typing import Any

import numpy as np
from keras import ops


def is_factor(variable: Any) -> bool:
    """Returns whether a variable is a factor of a low-rank update, which no architecture has by itself.

    Args:
        variable: A variable of a layer.
    """
    return variable.name.startswith("lora_")


def kernel_with_update(layer: Any) -> Any:
    """Returns the kernel of a layer with its low-rank update, added in float32, in the dtype of the kernel.

    The layer's own `kernel` is this sum in the precision of computations, rounded to half precision where these are.

    Args:
        layer: A layer with a low-rank update whose kernel is not quantized.

    Returns:
        The sum, a tensor; nothing in the layer changes.

    Reference:
        Hu et al. 2022, "LoRA", section 4.1.
    """
    kernel, first, second = (
        np.asarray(ops.convert_to_numpy(variable), "float32")
        for variable in (layer._kernel, layer.lora_kernel_a, layer.lora_kernel_b)
    )
    return ops.cast(kernel + layer.lora_alpha / layer.lora_rank * np.matmul(first, second), layer._kernel.dtype)
