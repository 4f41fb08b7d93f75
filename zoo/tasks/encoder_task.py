"""Base class of the tasks that read hidden states: from a head and what it predicts to predictions and exports."""

from collections.abc import Sequence
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from zoo.backbones.backbone import Backbone
from zoo.config import TransformerConfig
from zoo.export import Endpoint, Field
from zoo.inspect.row import Decisions
from zoo.preprocessing import Examples
from zoo.preprocessing.rows import require_count
from zoo.preprocessing.text_embedder import PARTS
from zoo.tasks.attention_endpoint import attention_endpoint
from zoo.tasks.pooling import pool, take_positions
from zoo.tasks.task import Task
from zoo.tasks.token_endpoints import encoder_endpoints
from zoo.tasks.tokens_endpoint import tokens_endpoint


class EncoderTask(Task):
    """Base class of tasks that read the hidden states of a backbone.

    A subclass says what a row is (`preprocessor_class`), which vectors of it the head reads (`pooling`), what the head
    is (`add_head`), what comes out (`results` and `result_fields`), and the default loss and metrics. `fit`, `predict`
    and the exports of all formats follow. A task whose results are not one per text also defines `predict_texts` and
    `endpoints`.

    With an encoder-decoder, encoder and decoder read the same tokens, and the task reads the decoder's hidden states.
    The backbone's pooler is trained only in tasks that use it. Several tasks may share a backbone.

    Args:
        backbone, preprocessor: See `Task`.
        decoder_start_id: With an encoder-decoder, the id of the token before the decoder's tokens, or "last" for the
            last token of each row (mBART). Default the tokenizer's start token, else its padding token.
        **options: As for `Task`.

    Raises:
        ValueError: If the task does not support the architecture of the backbone, or there is no such token.

    Reference:
        Lewis et al. 2020, "BART", section 3.1 (the same tokens for encoder and decoder).
    """

    # which vector of a text the head reads, see `zoo.tasks.pooling.pool`; None for the vectors of its tokens
    pooling: str | None = None
    # the input that says which tokens the head reads, where there is one
    positions_input: ClassVar[str | None] = None
    # how the outputs of a text come from those of its windows: their "mean" or "max"
    window_merge = "mean"
    # rate of the default optimizer
    learning_rate: ClassVar[float] = 5e-5

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: Any = None,
        *,
        decoder_start_id: int | str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, **options)
        config = backbone.config
        if not isinstance(config, TransformerConfig):
            raise ValueError(
                f"backbone of a {type(self).__name__} must be a Transformer, got a {type(backbone).__name__}."
            )
        self.decoder_start_id: int | str | None = None
        if config.architecture != "encoder_decoder":
            if decoder_start_id is not None:
                raise ValueError(
                    f"decoder_start_id must be None with a backbone of one stack, got {decoder_start_id!r}."
                )
            return
        self.input_names: Sequence[str] = ("token_ids", "padding_mask")
        ids = (decoder_start_id, *(getattr(self.tokenizer, name, None) for name in ("start_id", "pad_id")))
        first = next((index for index in ids if index is not None), None)
        if first != "last":
            first = require_count(first, "decoder_start_id", 0, config.vocabulary_size - 1)
        self.decoder_start_id = first

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        embedding = self.backbone.config.embedding
        return embedding.factor_dim if embedding.factor_output else self.backbone.config.hidden_dim

    @property
    def labels(self) -> Any:
        """The `Labels` of the preprocessor; None if it has none."""
        return getattr(self.preprocessor, "labels", None)

    def add_head(self, head: keras.layers.Layer) -> None:
        """Sets the head, a layer from the vectors of a text, or of each token, to the outputs of the task.

        Args:
            head: The layer.
        """
        head.build((None, self.width) if self.pooling else (None, None, self.width))
        self.head = head
        self.built = True

    def own_options(self) -> dict[str, Any]:
        return {} if self.decoder_start_id is None else {"decoder_start_id": self.decoder_start_id}

    # What a call computes.

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        if "token_ids" in inputs:
            return self.outputs_of(self.hidden(inputs, training), inputs, training)
        # the texts of a group
        parts = [
            {name.removeprefix(f"{part}_"): value for name, value in inputs.items() if name.startswith(f"{part}_")}
            for part in PARTS
        ]
        outputs = [self.outputs_of(self.hidden(part, training), part, training) for part in parts if part]
        return ops.stack(outputs, axis=1)

    def outputs_of(self, hidden: Any, inputs: dict[str, Any], training: bool | None = None) -> Any:
        return self.head(self.head_inputs(hidden, inputs))

    def head_inputs(self, hidden: Any, inputs: dict[str, Any]) -> Any:
        """Returns the vectors that the head reads, `(batch, width)` or `(batch, length, width)`.

        Args:
            hidden: Hidden states, `(batch, length, width)`.
            inputs: As for a call.
        """
        if self.pooling is not None:
            return pool(hidden, inputs["padding_mask"], self.pooling, self.backbone)
        positions = inputs.get(self.positions_input)
        return hidden if positions is None else take_positions(hidden, positions)

    def hidden(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        """Returns hidden states, `(batch, length, width)`; those of the decoder for an encoder-decoder.

        If the backbone has a final projection to another width (OPT), they are its outputs.

        Args:
            inputs: `token_ids` and `padding_mask`, `(batch, length)`, and other inputs of the backbone. Padding must be
                on the right with an encoder-decoder.
            training: Whether dropout is active.
        """
        states = self.backbone(self.backbone_inputs(inputs), training=training)
        return self._narrowed(states if self.decoder_start_id is None else states["decoder_sequence_output"])

    def _narrowed(self, states: Any) -> Any:
        narrow = self.backbone.output_factor
        return states if narrow is None or self.decoder_start_id is not None else narrow(states)

    def finish(self, hidden: Any) -> Any:
        return self._narrowed(super().finish(hidden))

    def backbone_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Returns the inputs of the backbone. In an encoder-decoder both stacks read the same tokens."""
        if self.decoder_start_id is None:
            fed = {name: value for name, value in inputs.items() if name != self.positions_input}
            has_global = self.backbone.config.attention.global_tokens is not None
            chosen = self.global_tokens(inputs) if has_global and "global_mask" not in fed else None
            return fed if chosen is None else {**fed, "global_mask": chosen}
        ids, mask = inputs["token_ids"], inputs["padding_mask"]
        if self.decoder_start_id == "last":
            start = ops.squeeze(pool(ids[:, :, None], mask, "last"), -1)
        else:
            start = ops.full_like(ids[:, 0], self.decoder_start_id)
        shifted = ops.concatenate([start[:, None], ids[:, :-1]], axis=1)
        stacks = {"encoder_token_ids": ids, "encoder_padding_mask": mask}
        stacks |= {"decoder_token_ids": shifted, "decoder_padding_mask": mask}
        return stacks

    def global_tokens(self, inputs: dict[str, Any]) -> Any:
        """Returns which tokens are global, `(batch, length)`, where a call does not say it; None for the backbone's.

        Only asked with `attention.global_tokens`.

        Args:
            inputs: As for a call.
        """
        return None

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        return self._without_idle(super().trainable_variables)

    @property
    def trainable_weights(self) -> list[keras.Variable]:
        return self._without_idle(super().trainable_weights)

    @property
    def non_trainable_variables(self) -> list[keras.Variable]:
        return self._others(self.variables, self.trainable_variables)

    @property
    def non_trainable_weights(self) -> list[keras.Variable]:
        return self._others(self.weights, self.trainable_weights)

    def _without_idle(self, variables: list[keras.Variable]) -> list[keras.Variable]:
        # Keras asks before the task has a backbone, too
        pooler = getattr(getattr(self, "backbone", None), "pooler", None)
        is_used = pooler is None or self.pooling == "pooler"
        return variables if is_used else self._others(variables, pooler.variables)

    @staticmethod
    def _others(variables: list[keras.Variable], these: list[keras.Variable]) -> list[keras.Variable]:
        left_out = {id(variable) for variable in these}
        return [variable for variable in variables if id(variable) not in left_out]

    # Training.

    def default_optimizer(self) -> keras.optimizers.Optimizer:
        """Returns AdamW with the `learning_rate`, gradients clipped to norm 1 (Devlin et al. 2019, appendix A.3)."""
        return keras.optimizers.AdamW(self.learning_rate, weight_decay=0.01, global_clipnorm=1.0)

    # What comes out.

    def result_fields(self) -> tuple[Field, ...]:
        """Returns what `results` returns: names, shapes, types and meanings."""
        return ()

    def results(self, outputs: Any) -> dict[str, Any]:
        """Returns the results, numbers by name; operations of `keras.ops`, which every format of exports can hold.

        Args:
            outputs: The result of a call, in float32 whatever the policy.
        """
        raise NotImplementedError(f"{type(self).__name__} has no results: define result_fields() and results().")

    def result_properties(self) -> dict[str, Any]:
        """Returns what a client of an export needs to know of the results, as JSON values. By default the labels."""
        return {} if self.labels is None else {"labels": self.labels.strings}

    def text_result_fields(self) -> tuple[Field, ...]:
        """Returns what `text_results` returns."""
        return ()

    def text_results(self, results: dict[str, Any]) -> dict[str, Any]:
        """Returns further results of a SavedModel, such as names of labels; a graph function of TensorFlow.

        Args:
            results: What `results` returned.
        """
        return {}

    def decisions(self, outputs: Any, tokens: Sequence[str]) -> Decisions | None:
        """Returns the "probabilities" of the labels of a text; None for a task without such results."""
        shapes = {field.name: field.shape for field in self.result_fields()}
        if self.labels is None or shapes.get("probabilities") != ("batch", len(self.labels)):
            return None
        probabilities = ops.maximum(self.results(_float32(outputs))["probabilities"], np.finfo("float32").tiny)
        return Decisions(ops.expand_dims(ops.log(probabilities), 1), self.labels.strings, ("label",))

    def predict_texts(self, x: Any, batch_size: int) -> Any:
        """Returns the results of rows as arrays: one array, or a dictionary by name if there are several.

        Raises:
            NotImplementedError: If the results are those of tokens, of which texts have different numbers.
        """
        if any("length" in field.shape for field in self.result_fields()):
            raise NotImplementedError(
                f"{type(self).__name__} has results for each token: define predict_texts() and endpoints()."
            )
        outputs = ops.convert_to_tensor(self.outputs_of_texts(self.preprocessor.rows(x, "x"), batch_size))
        results = {name: ops.convert_to_numpy(value) for name, value in self.results(outputs).items()}
        return results if len(results) > 1 else next(iter(results.values()))

    def outputs_of_texts(self, rows: Examples, batch_size: int) -> np.ndarray:
        """Returns the outputs of a task with one vector of outputs per text, float32 `(texts, outputs)`.

        Args:
            rows: The result of `preprocessor.rows`: texts, or their windows, whose outputs are merged.
            batch_size: Rows per batch.
        """
        values = self.map_batches(lambda numbers, inputs, outputs: ops.convert_to_numpy(outputs), rows, batch_size)
        if not values:
            return ops.convert_to_numpy(self.head(ops.zeros((0, self.width))))
        outputs = np.array(values, "float32")
        return outputs if rows.groups is None else self._merged(outputs, rows.groups).numpy()

    def _merged(self, outputs: Any, row: Any) -> Any:
        """Outputs of texts from those of their windows; a graph function."""
        import tensorflow as tf

        merge = {"mean": tf.math.segment_mean, "max": tf.math.segment_max}[self.window_merge]
        return merge(outputs, row)

    # Exports.

    def text_fields(self) -> tuple[Field, ...]:
        """Returns the inputs of the endpoint `serve`: texts, or the texts of pairs."""
        return tuple(Field(name, ("batch",), "string", "texts") for name in self.preprocessor.text_names)

    def serve_endpoint(self, description: str, preprocessor: Any = None) -> Endpoint:
        """Returns the endpoint `serve` of a task whose results are one per text.

        Args:
            description: What it does.
            preprocessor: A preprocessor in place of that of the task.
        """
        preprocessor = preprocessor or self.preprocessor

        def serve(*texts: Any) -> dict[str, Any]:
            inputs, row = preprocessor.inference_rows(texts if len(texts) > 1 else texts[0])
            outputs = self(inputs, training=False)
            results = self.results(_float32(outputs if row is None else self._merged(outputs, row)))
            return {**results, **self.text_results(results)}

        outputs = (*self.result_fields(), *self.text_result_fields())
        return Endpoint(serve, self.text_fields(), outputs, description)

    def endpoints(self) -> dict[str, Endpoint]:
        """Returns the endpoints of an export, for any batch size.

        * `serve`: the texts of rows, string tensors `(batch,)`, to `result_fields` and `text_result_fields`.
        * `label_names()`, if the task has labels: the labels, strings `(labels,)`.
        * `tokens`: the texts of rows to the ids that the model reads, see `zoo.tasks.tokens_endpoint`.

        A text longer than the model allows raises an `InvalidArgumentError`, unless the task truncates or has a
        `stride`.
        """
        serve = self.serve_endpoint(f"Results of a {type(self).__name__}.")
        return {"serve": serve, **self.label_endpoints(), "tokens": self.tokens_endpoint()}

    def tokens_endpoint(self, preprocessor: Any = None) -> Endpoint:
        """Returns the endpoint `tokens`, see `zoo.tasks.tokens_endpoint`.

        Args:
            preprocessor: A preprocessor in place of that of the task.
        """
        return tokens_endpoint(self, self.text_fields(), preprocessor or self.preprocessor)

    def label_endpoints(self) -> dict[str, Endpoint]:
        """Returns the endpoint `label_names`, if the task has labels: strings `(labels,)`, in their order."""
        import tensorflow as tf

        labels = self.labels
        if labels is None:
            return {}
        output = Field("label_names", (len(labels),), "string", "the labels in the order of the probabilities")
        names = Endpoint(lambda: tf.constant(labels.strings), (), (output,), "The names of the labels.")
        return {"label_names": names}

    def token_endpoints(self) -> dict[str, Endpoint]:
        """Returns the endpoint `forward`: token-level inputs to `result_fields`."""
        return encoder_endpoints(
            self,
            lambda inputs: self.results(_float32(self(inputs, training=False))),
            self.result_fields(),
            **self.result_properties(),
        )

    def attention_endpoint(self) -> Endpoint:
        """Returns the endpoint `attention`, see `zoo.tasks.attention_endpoint`."""

        def tokens(*texts: Any) -> Any:
            return self.preprocessor.tokens(texts if len(texts) > 1 else texts[0])

        return attention_endpoint(self, self.text_fields(), tokens)


def _float32(outputs: Any) -> Any:
    """Outputs of a head in the type of results, also if it computes in another one."""
    return keras.tree.map_structure(lambda part: ops.cast(part, "float32"), outputs)
