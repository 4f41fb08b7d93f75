"""Attention in a graph of OpenVINO, before it is known in which form a runtime takes it."""

import functools
from typing import Any


@functools.cache
def attention_class() -> Any:
    """Returns the class of operations that stand for attention to the new keys and values.

    Their inputs are queries, keys, values, what is added to the scores, and the factor of the scores. Once the keys and
    values of earlier calls are put before the new ones, an operation that OpenVINO computes takes their place.
    """
    import openvino

    class Attention(openvino.Op):
        def __init__(self, inputs: Any = None) -> None:
            super().__init__(self, inputs)

        def validate_and_infer_types(self) -> None:
            shape = self.get_input_partial_shape(0)
            shape[3] = self.get_input_partial_shape(2)[3]
            self.set_output_type(0, self.get_input_element_type(0), shape)

        def clone_with_new_inputs(self, new_inputs: Any) -> Any:
            return Attention(new_inputs)

    return Attention
