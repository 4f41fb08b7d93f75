"""What all backbones share: made from a configuration, reloaded from one."""

import contextlib
import gc
import os
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import keras
import numpy as np
from keras import ops

from layers.capture import Capture
from layers.keras_internals import sublayers
from zoo.backbones.adapters import Adapters, active_variables, is_factor, size_of
from zoo.backbones.origin import Origin
from zoo.backbones.output_map import OutputMap
from zoo.config import RecurrentConfig, TransformerConfig, config_from_dict
from zoo.distribution.layouts import require_whole_weights
from zoo.export import (
    SAVED_MODEL,
    Endpoint,
    Field,
    require_format,
    require_plain_weights,
    write_runtime_format,
    write_saved_model,
)
from zoo.storage import find_reader, to_dataclass

# Types that models can be made with.
FLOATS = ("bfloat16", "float16", "float32", "float64")
# Modes of weights in fewer bits.
QUANTIZATION_MODES = ("int8", "int4")
# the class of the backbones of each kind of configuration
_BACKBONES: dict[type, type] = {}
# the points at which attention weights are, by what `attention_weights` calls them
_POINTS = {"encoder": "encoder.attention", "decoder": "decoder.attention", "cross": "decoder.cross_attention"}


class Backbone(keras.Model):
    """Base class of models from token ids to hidden states, described by a configuration.

    The constructor creates all weights. `Backbone.from_config(config)` returns the right class for any configuration.

    A subclass sets `config_class`. If it decodes, it defines `start_decoding` and `advance`, and `resize_state` if its
    state has a limited capacity. If it predicts tokens, it defines `output_vectors` and `score`, and if possible
    `output_map`.

    Args:
        config: The configuration.

    Example:

    >>> backbone = Backbone.from_config(TransformerConfig("encoder", vocabulary_size=1000))
    >>> backbone({"token_ids": ids, "padding_mask": ids != 0}).shape
    (2, 10, 512)
    """

    config_class: ClassVar[type]
    # what files of another library said of it, as which it is then written
    origin: Origin | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "config_class" in vars(cls):
            _BACKBONES[cls.config_class] = cls
        # a map is that of the score which stands with or above it; other scores have none
        defined = [set(vars(kind)) & {"score", "output_map"} for kind in cls.__mro__]
        if next(filter(None, defined)) == {"score"}:
            cls.output_map = Backbone.output_map

    def __init__(self, config: TransformerConfig | RecurrentConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_plain_policy(self.dtype_policy)
        self.config = config
        self.adapters: Adapters = Adapters(self)

    @classmethod
    def from_config(cls, config: TransformerConfig | RecurrentConfig | dict[str, Any]) -> "Backbone":
        """Returns a backbone from a configuration object, or from the dictionary of `get_config`.

        Raises:
            TypeError: If `config` is neither.
        """
        options, adapters, origin = {}, {}, None
        if isinstance(config, dict):
            options = dict(config)
            config, adapters = config_from_dict(options.pop("config")), options.pop("adapters", {})
            origin = options.pop("origin", None)
        if type(config) not in _BACKBONES:
            allowed = " or ".join(sorted(kind.__name__ for kind in _BACKBONES))
            raise TypeError(f"config must be a {allowed} or a dictionary, got {type(config).__name__}.")
        backbone = _BACKBONES[type(config)](config, **options)
        backbone.adapters.restore(adapters)
        backbone.origin = None if origin is None else to_dataclass(Origin, origin, "origin")
        return backbone

    @classmethod
    def from_preset(
        cls, preset: str | os.PathLike[str], *, load_weights: bool = True, dtype: Any = None, **choices: Any
    ) -> Self:
        """Returns the backbone of a model, without its head and tokenizer.

        Args:
            preset: See `Task.from_preset`.
            load_weights: Whether to load the weights.
            dtype: Dtype policy of all layers, for example "mixed_bfloat16". Default `keras.config.dtype_policy()`.
            **choices: Fields of the configuration to replace. If weights are loaded, only fields that do not change
                them: `dropout` and `max_length`.

        Raises:
            ValueError: If there is no such model, if it is damaged, or if it is not of this class.

        Example:

        >>> Backbone.from_preset("bert_base_uncased", load_weights=False, num_layers=2).config.num_layers
        2
        """
        reader, source = find_reader(preset, weights=load_weights)
        with default_policy(dtype):
            backbone = reader.load_backbone(source, load_weights, choices)
        if not isinstance(backbone, cls):
            raise ValueError(f"{os.fspath(preset)} holds a {type(backbone).__name__}, not a {cls.__name__}.")
        return backbone

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(inputs, Mapping):
            shape = getattr(inputs, "shape", None)
            got = type(inputs).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")
            raise TypeError(f"inputs must be a dictionary of {', '.join(self.input_names)}, got {got}.")
        return super().__call__(inputs, *args, **kwargs)

    def quantize(self, mode: str = "int8", **kwargs: Any) -> None:
        """Quantizes the weights, for prediction. `Task.quantize` does this for a whole task, and returns a report.

        Args:
            mode: "int8" or "int4".
            **kwargs: Passed on to `keras.Model.quantize`.

        Raises:
            ValueError: If there is no such mode.
        """
        require_quantization_mode(mode)
        require_whole_weights("quantize()")
        self.adapters.require_quantizable(mode)
        with quick_collection():
            super().quantize(mode, **kwargs)
            self.adapters.quantize(mode)

    def enable_lora(self, *args: Any, **kwargs: Any) -> None:
        """Raises an error: the optimizer of the task must know the low-rank updates. Use `Task.enable_lora`."""
        raise NotImplementedError("enable_lora() is a method of tasks: use model.enable_lora(rank) of the task model.")

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Saves the backbone to a `.keras` file, see `keras.Model.save`.

        Raises:
            ValueError: If the weights are quantized, because the file does not store this and could not be loaded.
        """
        if any(getattr(layer, "quantization_mode", None) for layer in sublayers(self)):
            raise ValueError(
                "save() needs a backbone whose weights are not quantized: quantize() a task of it, whose files keep it."
            )
        super().save(*args, **kwargs)

    def logits(self, hidden: Any) -> Any:
        """Returns the logits of hidden states, `(batch, length, vocabulary)`.

        Args:
            hidden: `(batch, length, width)`; of an encoder-decoder the hidden states of the decoder.

        Reference:
            Vaswani et al. 2017, section 3.4 (shared with the embedding); Gemma Team 2024, "Gemma 2", section 2 (soft
            cap).
        """
        return self.score(self.output_vectors(hidden))

    def output_vectors(self, hidden: Any) -> Any:
        """Returns hidden states projected to the width of the output matrix, `(batch, length, output_dim)`.

        Args:
            hidden: `(batch, length, width)`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not predict tokens.")

    def score(self, vectors: Any) -> Any:
        """Returns the logits of vectors, `(batch, length, vocabulary)`.

        Args:
            vectors: `(batch, length, output_dim)`, with the width of the embedding's table, or of the hidden states if
                the output projection is not tied.
        """
        raise NotImplementedError(f"{type(self).__name__} does not predict tokens.")

    def output_map(self) -> OutputMap | None:
        """Returns the tensors that `score` computes with; None if it cannot be written so, see `OutputMap.of_layer`.

        A subclass that overrides `score` alone has None.
        """
        return None

    # Whether prompts are fed token by token, so that a graph is for one length of them.
    unrolls_prompts = False

    @property
    def attention_kinds(self) -> tuple[str, ...]:
        """The keys of the result of `attention_weights`: "encoder", "decoder", "cross"; empty if it has none."""
        return ()

    def attention_weights(self, inputs: dict[str, Any]) -> dict[str, list[Any]]:
        """Returns the attention weights of every layer.

        To get the weights with which a text was generated, pass it as the decoder's input.

        Args:
            inputs: As for a call.

        Returns:
            For each of the `attention_kinds` a list with one entry `(batch, heads, length, attended_length)` per layer.
            A recurrent model has one layer and one head.
        """
        points = {kind: _POINTS[kind] for kind in self.attention_kinds}
        with Capture(points.values()) as found:
            self(inputs, training=False)
        return {kind: found[name] for kind, name in points.items()}

    @property
    def last_stack(self) -> str:
        """The last stack, "encoder" or "decoder", which is also the prefix of its capture points."""
        return "decoder" if self.config.architecture != "encoder" else "encoder"

    # whether the hidden states of each layer have the width of the last
    has_one_width = True

    def finish(self, hidden: Any) -> Any:
        """Returns the hidden states after a layer of the last stack in the form of those of the last layer.

        Args:
            hidden: `(batch, length, hidden_dim)`, without padding.
        """
        return hidden

    @property
    def decodes_rows(self) -> bool:
        """Whether each row can have its own index, so that texts can start and end at different steps."""
        return False

    def start_decoding(self, inputs: dict[str, Any], capacity: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the initial state of a decoding loop, and its constants.

        Args:
            inputs: For an encoder-decoder `encoder_token_ids` and `encoder_padding_mask`, `(batch, encoder_length)`.
                For prompts of several lengths, padded on the left, `padding_mask` `(batch, prompt_length)`, true where
                a token is real; a decoder always takes it.
            capacity: Largest number of positions to decode, prompt included.

        Returns:
            `(state, constants)`: nested dictionaries and lists of tensors with the batch on axis 0.
        """
        raise NotImplementedError(f"{type(self).__name__} does not decode.")

    def advance(
        self, token_ids: Any, index: Any, state: dict[str, Any], constants: dict[str, Any], count: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        """Feeds tokens at positions `index, index + 1, ...` to the decoder.

        Args:
            token_ids: `(batch, new)`.
            index: Number of positions decoded so far, a scalar integer. If `decodes_rows` is true, also one per row
                `(batch,)`, with prompts that are not padded on the left.
            state, constants: Results of `start_decoding`, with the state of the last `advance`.
            count: With an index per row, the number of tokens of each row, `(batch,)`, which are followed by padding.
                None if no row has padding.

        Returns:
            Hidden states `(batch, new, hidden_dim)` and the new state.
        """
        raise NotImplementedError(f"{type(self).__name__} does not decode.")

    def decode_step(
        self, token_ids: Any, index: Any, state: dict[str, Any], constants: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Feeds one token per row at position `index` and returns the logits of the next one.

        Args:
            token_ids: `(batch,)`.
            index: Position, a scalar integer.
            state, constants: Results of `start_decoding`, with the state of the last step.

        Returns:
            Logits `(batch, vocabulary)` in float32 and the new state.
        """
        hidden, state = self.advance(ops.expand_dims(token_ids, 1), index, state, constants)
        return ops.cast(self.logits(hidden)[:, 0], "float32"), state

    def resize_state(self, state: dict[str, Any], capacity: int, shift: Any = None) -> dict[str, Any] | None:
        """Returns a state with room for `capacity` positions.

        Args:
            state: A state, outside of a loop.
            capacity: Number of positions, no fewer than before.
            shift: Number of positions by which each row moves to the right, NumPy integers `(batch,)`; negative for
                the left.

        Returns:
            The new state; None if rows cannot be moved because the state does not hold all of their entries any more.
        """
        return state if shift is None else None

    def can_rewind(self, capacity: int) -> bool:
        """Returns whether fed tokens can be replaced by feeding others at their positions.

        Args:
            capacity: Number of positions of the state.
        """
        return False

    def input_fields(self) -> tuple[Field, ...]:
        """Returns the token-level tensors that a call needs, by name, each `(batch, length)`."""
        sides = ("encoder_", "decoder_") if self.config.architecture == "encoder_decoder" else ("",)
        ids = {"dtype": "int32", "description": "ids of tokens"}
        mask = {"dtype": "bool", "description": "true where a token is real"}
        return tuple(
            Field(side + name, ("batch", f"{side}length"), **of)
            for side in sides
            for name, of in (("token_ids", ids), ("padding_mask", mask))
        )

    def optional_fields(self) -> tuple[Field, ...]:
        """Returns the tensors that are optional in a call, and required in an export."""
        return ()

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the token-level tensors that a call needs."""
        return tuple(field.name for field in self.input_fields())

    def output_fields(self) -> tuple[Field, ...]:
        """Returns the fields of the result of a call: hidden states, of both sides for an encoder-decoder."""
        if self.config.architecture != "encoder_decoder":
            shape = ("batch", "length", self.config.hidden_dim)
            return (Field("hidden_states", shape, "float32", "of the last layer"),)
        return tuple(
            Field(f"{side}_sequence_output", ("batch", f"{side}_length", width), "float32", f"of the {side}")
            for side, width in zip(("encoder", "decoder"), self.output_widths, strict=True)
        )

    @property
    def output_widths(self) -> tuple[int, int]:
        """Widths of the hidden states of encoder and decoder."""
        return self.config.hidden_dim, self.config.hidden_dim

    @property
    def output_shape(self) -> tuple[Any, ...]:
        """The shape of the result of a call, for `summary()`; shapes of both sides for an encoder-decoder."""
        shapes = tuple(field.sizes for field in self.output_fields())
        return shapes[0] if len(shapes) == 1 else shapes

    def endpoints(self) -> dict[str, Endpoint]:
        """Returns the endpoint `forward` of an export: token-level inputs to the result of a call, in float32."""
        inputs, outputs = (*self.input_fields(), *self.optional_fields()), self.output_fields()

        def forward(*tensors: Any) -> Any:
            named = {field.name: tensor for field, tensor in zip(inputs, tensors, strict=True)}
            results = self(named, training=False)
            return keras.tree.map_structure(lambda result: ops.cast(result, "float32"), results)

        return {"forward": Endpoint(forward, inputs, outputs, "Hidden states of token-level inputs.")}

    def export(self, directory: str | os.PathLike[str], format: str = SAVED_MODEL, *, weights: str = "float32") -> None:
        """Exports `endpoints()`: token ids in, hidden states out. To export a tokenizer too, export a task.

        Args:
            directory: Where to; replaced if it holds an export.
            format: "tf_saved_model", "onnx", "litert" or "openvino", see `Task.export`.
            weights: "float32" or "int8", not for a SavedModel.

        Raises:
            ValueError: If the backend is not TensorFlow, the format is unknown, or it cannot express the model.
            ImportError: If the packages of the format are missing.
            FileExistsError: If the directory exists and does not hold an export.

        Example:

        >>> backbone.export("exported")
        >>> served = tf.saved_model.load("exported")
        >>> served.forward(token_ids, padding_mask).shape
        TensorShape([2, 10, 512])
        """
        require_format(format)
        if format == SAVED_MODEL:
            if weights != "float32":
                raise ValueError(f"weights must be 'float32' for a SavedModel, got {weights!r}.")
            write_saved_model(directory, self.endpoints(), variables=self.active_variables, title=type(self).__name__)
            return
        require_plain_weights(self, format, weights)
        write_runtime_format(directory, self.endpoints(), format=format, weights=weights)

    def get_config(self) -> dict[str, Any]:
        return {
            "config": self.config.to_dict(),
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            "adapters": self.adapters.config(),
            "origin": None if self.origin is None else self.origin.to_dict(),
        }

    @property
    def active_variables(self) -> list[keras.Variable]:
        """All variables but those of inactive low-rank updates."""
        return active_variables(self)

    def parameter_count(self) -> int:
        """Returns the number of weights. Shared weights count once; low-rank updates do not count."""
        return sum(size_of(weight) for weight in self.weights if not is_factor(weight))


@contextlib.contextmanager
def default_policy(dtype: Any) -> Iterator[None]:
    """Layers made inside have this dtype policy unless they are given another; None changes nothing.

    Args:
        dtype: Name of a policy, or a policy.
    """
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(before if dtype is None else dtype)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def require_plain_policy(policy: keras.DTypePolicy) -> None:
    """Raises a ValueError unless a dtype policy is one of floating-point numbers, which models are made with.

    Args:
        policy: The policy of a model that is being made.
    """
    types = (policy.compute_dtype, policy.variable_dtype)
    # a policy of quantized layers computes in floats, too; models are quantized afterwards
    if policy.quantization_mode is not None or any(kind not in FLOATS for kind in types):
        raise ValueError(
            f"dtype must be a policy of floating-point numbers, such as 'mixed_bfloat16', got {policy.name!r}: make "
            f"the model first, then call quantize() with one of {QUANTIZATION_MODES}."
        )


def require_right_padding(name: str, mask: Any, training: bool | None = None) -> None:
    """Checks that no row has a token behind padding.

    A graph of TensorFlow has the check in it, an `InvalidArgumentError`, which XLA leaves out. Elsewhere numbers are
    looked at where they are known, and not in training, which would wait for the device in each step.

    Args:
        name: What the mask is called, for the error.
        mask: True where a token is real, `(batch, length)`.
        training: Whether the model trains.

    Raises:
        ValueError: If one has, naming the first, or the mask has another rank.
    """
    if len(mask.shape) != 2:
        raise ValueError(f"{name} must have the shape (batch, length), got {tuple(mask.shape)}.")
    message = f"{name} must have its padding on the right, got a token behind padding in row"
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if not tf.executing_eagerly():
            token_mask = tf.cast(mask, tf.bool)
            wrong = tf.reduce_any(token_mask[:, 1:] & ~token_mask[:, :-1], axis=1)
            tf.debugging.Assert(~tf.reduce_any(wrong), [message, tf.where(wrong)[:1, 0]])
            return
    if training:
        return
    try:
        token_mask = ops.convert_to_numpy(mask).astype("bool")
    except (NotImplementedError, TypeError):
        return  # a traced tensor of JAX or torch
    wrong = np.flatnonzero((token_mask[:, 1:] & ~token_mask[:, :-1]).any(axis=1))
    if wrong.size:
        raise ValueError(f"{message} {wrong[0]}.")


def require_quantization_mode(mode: Any) -> None:
    """Raises a ValueError if weights cannot be stored in a mode.

    Args:
        mode: What the user passed as `mode` of `quantize`.
    """
    if mode not in QUANTIZATION_MODES:
        hint = " Keras trains in float8, and stores no weight in fewer bits." if mode == "float8" else ""
        raise ValueError(f"mode must be one of {QUANTIZATION_MODES}, got {mode!r}.{hint}")


@contextlib.contextmanager
def quick_collection() -> Iterator[None]:
    """Keeps the objects that are there out of Python's searches for circles while weights are quantized.

    Keras searches whenever it takes a kernel away, each time all objects of the process. Kernels are no part of a
    circle, and are gone with their last reference.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
