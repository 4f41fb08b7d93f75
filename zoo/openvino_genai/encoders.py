"""Embedders for `TextEmbeddingPipeline` and cross-encoders for `TextRerankPipeline`."""

import abc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from layers.fusion import portable_operations
from zoo.huggingface import write_text_files
from zoo.huggingface.writing import describe_task
from zoo.openvino_genai.conversion import converted
from zoo.openvino_genai.part import Part, differences
from zoo.openvino_genai.positions import positions_as_tables
from zoo.openvino_genai.tokenizers import SEGMENTS, write_row_tokenizer

_IDS, _MASK = "input_ids", "attention_mask"
# names of prompts, ours and of the Sentence Transformers library, that an argument of the pipeline stands for
_INSTRUCTIONS = {"query_instruction": ("query",), "embed_instruction": ("document", "passage", "corpus")}
# the `model_type` of config.json for which the pipeline takes no pairs
_READ_AS_LANGUAGE_MODEL = "qwen3"
_EMBED = """vectors = pipeline.embed_documents(["a text", "another text"])
vector = pipeline.embed_query("a question")"""
_RERANK = """for index, score in pipeline.rerank("a question", ["a text", "another text"]):
    print(index, score)"""


class Encoder(Part):
    """A task that reads whole texts: one graph without a state.

    Args:
        task: The task.
    """

    def require(self) -> None:
        objection = self.objection()
        if objection is not None:
            raise ValueError(
                f"The format 'openvino_genai' cannot hold this {type(self.task).__name__}: {objection}. The formats "
                "'onnx' and 'openvino' take token ids, and a SavedModel (format='tf_saved_model') holds every model."
            )

    def objection(self) -> str | None:
        """Returns why the pipeline cannot hold the task; None if it can."""
        backbone, preprocessor = self.task.backbone, self.task.preprocessor
        if type(preprocessor) is not self.task.preprocessor_class:
            return f"its preprocessor, a {type(preprocessor).__name__}, may make other rows than the pipeline"
        stacks = [stack for stack in (backbone.encoder, backbone.decoder) if stack is not None]
        if any(stack.position_by_length is not None for stack in stacks):
            return "its positions depend on the length of the text, which no table holds"
        if any(backbone.config.feed_forward.has_experts(index) for index in range(backbone.config.num_layers)):
            return "it has experts, whose results in OpenVINO change with the padding of a batch"
        return None

    @property
    def has_segments(self) -> bool:
        """Whether the model reads to which text of a pair a token belongs."""
        return bool(self.task.preprocessor.segments)

    @abc.abstractmethod
    def outputs(self, inputs: Mapping[str, Any]) -> Any:
        """Returns what the model makes of rows, float32 `(batch, width)`; operations of `keras.ops`.

        Args:
            inputs: Token-level inputs of the task.
        """

    def as_output(self, outputs: Any, mask: Any) -> Any:
        """Returns `outputs` in the shape that the pipeline takes.

        Args:
            outputs: `(batch, width)`.
            mask: True where a token is real, `(batch, length)`.
        """
        return outputs

    def write_files(self, folder: Path) -> None:
        write_text_files(self.task, folder)
        write_row_tokenizer(self.task, folder, self.has_segments)

    def graph(self) -> Any:
        import tensorflow as tf

        names = [_IDS, _MASK, *[SEGMENTS] * self.has_segments]

        def call(*tensors: Any) -> dict[str, Any]:
            given = dict(zip(names, tensors, strict=True))
            mask = tf.cast(given[_MASK], tf.bool)
            inputs = {"token_ids": tf.cast(given[_IDS], tf.int32), "padding_mask": mask}
            if self.has_segments:
                # tokenizers pad segments with the id of the padding token
                inputs["segment_ids"] = tf.where(mask, tf.cast(given[SEGMENTS], tf.int32), 0)
            with portable_operations(converted=True), positions_as_tables(self.task.backbone):
                return {self.output: self.as_output(self.outputs(inputs), mask)}

        specs = [tf.TensorSpec((None, None), tf.int64, name) for name in names]
        function = tf.function(call, input_signature=specs, autograph=False).get_concrete_function()
        return converted(function, self.output)

    def agreement(self, path: Path, exact: bool) -> dict[str, float]:
        """As in the base, for rows of three lengths together, and each alone in Python."""
        import openvino

        request = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
        length = min(12, self.task.longest)
        lengths = np.array([length, max(1, length // 2), max(1, length - 2)])
        ids = np.random.default_rng(0).integers(0, self.task.backbone.config.vocabulary_size, (3, length))
        mask = np.arange(length) < lengths[:, None]
        segments = np.arange(length) > lengths[:, None] // 2 if len(self.task.preprocessor.text_names) == 2 else ids < 0
        given = {_IDS: ids, _MASK: mask.astype("int64"), SEGMENTS: segments.astype("int64")}
        if not self.has_segments:
            del given[SEGMENTS]
        found = request.infer(given)[self.output]
        expected = []
        for row, end in enumerate(lengths):
            alone = {"token_ids": ids[row : row + 1, :end].astype("int32"), "padding_mask": mask[row : row + 1, :end]}
            if self.has_segments:
                alone["segment_ids"] = segments[row : row + 1, :end].astype("int32")
            expected.append(np.asarray(self.outputs(alone))[0])
        return differences(self.output, found.reshape(3, -1, len(expected[0]))[:, 0], np.array(expected), exact)

    def notes(self) -> str:
        return f"A row has at most {self.task.longest:,} tokens; the pipeline cuts longer ones."


class Embedder(Encoder):
    """A `TextEmbedder`. Pooling, projections and normalization are in the graph.

    The pipeline pools hidden states in one of three ways, by default the first token. Here each token has the vector of
    its text, so that every way gives it: no argument makes other vectors of it in silence.

    Args:
        task: The task.
    """

    kind, pipeline, output = "A text embedder", "TextEmbeddingPipeline", "last_hidden_state"

    def outputs(self, inputs: Mapping[str, Any]) -> Any:
        return self.task.results(self.task(inputs, training=False))["embeddings"]

    def as_output(self, outputs: Any, mask: Any) -> Any:
        import tensorflow as tf

        return tf.tile(outputs[:, None], tf.stack([1, tf.shape(mask)[1], 1]))

    def options(self) -> dict[str, Any]:
        prompts, default = self.task.preprocessor.prompts, self.task.preprocessor.default_prompt
        options: dict[str, Any] = {} if self.task.normalize else {"normalize": False}
        for argument, names in _INSTRUCTIONS.items():
            chosen = next((name for name in names if name in prompts), default)
            if prompts.get(chosen):
                options[argument] = prompts[chosen]
        return options

    def use(self) -> str:
        return _EMBED

    def notes(self) -> str:
        width, pooling = self.task.default_width or self.task.width, self.task.pooling
        prompts = {key: value for key, value in self.task.preprocessor.prompts.items() if value}
        listed = "".join(f"\n* {key}: `{value!r}`" for key, value in prompts.items())
        more = f"\n\nPrompts, for `pipeline.embed(texts, prompt)`:\n{listed}" if prompts else ""
        return (
            f"Vectors have {width:,} entries. Pooling ({pooling}) is in the graph, whatever `pooling_type` says.\n\n"
            f"{super().notes()}{more}"
        )


class Reranker(Encoder):
    """A `TextClassifier` of pairs with one label or value, a cross-encoder.

    The pipeline computes the logistic function of what the graph returns: for a label its probability, for a regression
    another value in the same order.

    Args:
        task: The task.
    """

    kind, pipeline, output = "A cross-encoder", "TextRerankPipeline", "logits"

    def objection(self) -> str | None:
        preprocessor, labels = self.task.preprocessor, len(self.task.labels)
        if not preprocessor.pairs or labels != 1:
            return (
                "its pipeline takes pairs of texts with one label or value, this one has "
                f"pairs={preprocessor.pairs} and {labels}"
            )
        if describe_task(self.task).get("model_type") == _READ_AS_LANGUAGE_MODEL:
            return "its pipeline reads a Qwen3 as a language model that answers yes or no, without pairs"
        return super().objection()

    def outputs(self, inputs: Mapping[str, Any]) -> Any:
        return self.task(inputs, training=False) / self.task.temperature

    def use(self) -> str:
        return _RERANK

    def notes(self) -> str:
        is_value = self.task.preprocessor.problem == "regression"
        scores = (
            "Scores are the logistic function of the values that the model was trained on, in the same order."
            if is_value
            else f"Scores are probabilities of the label {self.task.labels[0]!r}."
        )
        return f"{scores} The pipeline returns the best `top_n`, by default 3.\n\n{super().notes()}"
