"""The vector from which a recurrent decoder predicts: made of its state, the context and the previous token."""

from typing import Any

import keras
from keras import ops

from layers.constructor_arguments import ConfigFromArguments
from layers.dense import Dense

READOUTS = ("state", "attentional", "concatenation", "maxout")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class RecurrentReadout(ConfigFromArguments, keras.layers.Layer):
    """The vector from which a linear map computes the logits.

    With the state `s_t`, the context `c_t` and the embedded previous token `e`:

    * "state": `s_t` (Sutskever et al. 2014).
    * "attentional": `tanh(W [c_t; s_t])`, without bias (Luong et al. 2015, equation 5).
    * "concatenation": `[s_t; c_t; e]`.
    * "maxout": the maximum over pairs of features of `U s_t + V e + C c_t + b` (Bahdanau et al. 2015, appendix A.2.2;
      Cho et al. 2014, appendix A.1.2). The appendix of Bahdanau et al. uses `s_{t-1}`. Their equation 4 and Cho et al.
      use `s_t`, as does this layer.

    If the context is None, its terms are left out.

    Args:
        kind: "state", "attentional", "concatenation" or "maxout".
        dim: Width of "attentional" and "maxout"; None for that of the state.

    Call arguments:
        state: `s_t`, `(..., units)`.
        context: `c_t`, `(..., context_dim)`, or None.
        embedded: `e`, `(..., embedding_dim)`.

    Returns:
        `(..., output_dim)`.

    Raises:
        ValueError: If the kind is unknown, or `dim` is given with "state" or "concatenation".

    Example:

    >>> RecurrentReadout("maxout", 16)(keras.ops.ones((2, 8)), None, keras.ops.ones((2, 4))).shape
    (2, 16)
    """

    def __init__(self, kind: str = "state", dim: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if kind not in READOUTS:
            raise ValueError(f"kind must be one of {', '.join(map(repr, READOUTS))}, got {kind!r}.")
        if dim is not None and (kind not in ("attentional", "maxout") or dim < 1):
            raise ValueError(
                f"dim must be None, or at least 1 with kind='attentional' or 'maxout'; got {dim} with {kind!r}."
            )
        self.kind = kind
        self.dim = dim
        self.projection = None

    def build(
        self,
        state_shape: tuple[int | None, ...],
        context_shape: tuple[int | None, ...] | None = None,
        embedded_shape: tuple[int | None, ...] | None = None,
    ) -> None:
        units = state_shape[-1]
        context_dim = 0 if context_shape is None else context_shape[-1]
        self.output_dim = self.dim or units
        if self.kind == "concatenation":
            self.output_dim = units + context_dim + embedded_shape[-1]
        options = {"dtype": self.dtype_policy, "name": "projection"}
        if self.kind == "attentional":
            self.projection = Dense(self.output_dim, activation="tanh", use_bias=False, **options)
            self.projection.build((None, units + context_dim))
        elif self.kind == "maxout":
            self.projection = Dense(2 * self.output_dim, **options)
            self.projection.build((None, units + context_dim + embedded_shape[-1]))

    def call(self, state: Any, context: Any = None, embedded: Any = None) -> Any:
        if self.kind == "state":
            return state
        if self.kind == "attentional":
            return self.projection(_join(context, state))
        joined = _join(state, context, embedded)
        if self.kind == "concatenation":
            return joined
        pairs = self.projection(joined)
        return ops.maximum(pairs[..., 0::2], pairs[..., 1::2])

    def compute_mask(self, state: Any, previous_mask: Any) -> Any:
        return None


def _join(*vectors: Any) -> Any:
    vectors = [vector for vector in vectors if vector is not None]
    return ops.concatenate(vectors, axis=-1) if len(vectors) > 1 else vectors[0]
