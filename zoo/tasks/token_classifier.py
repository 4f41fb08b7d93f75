"""Token classification: a label for each word, for example to find names."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.backbones.backbone import Backbone
from zoo.export import Endpoint, Field
from zoo.inspect.row import Decisions, Row, is_token_level
from zoo.preprocessing import TokenClassifierPreprocessor, split_words
from zoo.preprocessing.examples import Examples
from zoo.preprocessing.token_rows import checked_lengths, padded_length
from zoo.tasks.encoder_task import EncoderTask
from zoo.tasks.entities import (
    ENTITY_FIELDS,
    STRATEGIES,
    are_tags,
    entities_in_graph,
    entity_tuples,
    join_tokens,
    tag_moves,
)
from zoo.tasks.heads import classification_head
from zoo.tasks.registry import FittedOption
from zoo.tokenizers.tensors import as_utf8
from zoo.training.calibration import Calibration, fit_temperature, require_temperature
from zoo.training.losses import TokenCrossEntropy
from zoo.training.metrics import TokenAccuracy

# of `entities`: words of the task, and what Transformers' pipeline has
_ALL_STRATEGIES = ("words", *STRATEGIES)
_UNKNOWN = f"aggregation_strategy must be one of {', '.join(_ALL_STRATEGIES)}, got"


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class TokenClassifier(EncoderTask):
    """Token classification: a label for each word of a text, such as its part of speech, or a tag of entities.

    Tags are those of BIO, BIOES or BILOU.

    A text is tokenized as a whole, and each word of a list separately. The first token of a word represents it. In
    scripts without spaces each character is a word. If one token holds several of them, they form one part of an
    entity. A word without any token in the model's input gets the label "O", or the first label if there is no "O".

    Args:
        backbone: An encoder; or a decoder, in which a word sees only the words before it.
        preprocessor: A `TokenClassifierPreprocessor`; a tokenizer; or None for use on token level.
        hidden_activation: Activation of the head's inner layer; None for no inner layer.
        inner_bias: Whether the inner layer has a bias.
        inner_norm: Whether a layer norm follows the inner layer.
        projection_bias: Whether the last linear map of the head has a bias.
        head_dropout: Rate of the dropout before the last linear map.
        temperature: Divisor of the logits before the softmax, see `calibrate`.
        **options: Arguments of `TokenClassifierPreprocessor` where none is given, above all `labels`, also `split`,
            `sequence_length`, `truncate` and `stride`; and `name`, `dtype` and `trainable`.

    Call arguments:
        inputs: `{"token_ids", "padding_mask"}`, `(batch, length)`, optionally `"segment_ids"`. With
            `"word_positions"`, `(batch, words)` padded with -1, only the tokens at these positions are classified.
        training: Whether dropout is active.

    Returns:
        Logits `(batch, length, labels)` or `(batch, words, labels)`, float32.

    Raises:
        ValueError: If the backbone has two stacks, or an argument is out of range.

    Example:

    >>> model = TokenClassifier.from_preset("path/to/model", labels=["O", "B-PER", "I-PER"])
    >>> model.fit([["Ada", "Lovelace", "wrote"]], [["B-PER", "I-PER", "O"]])
    >>> model.tag("Ada Lovelace wrote")
    ['B-PER', 'I-PER', 'O']

    Reference:
        Devlin et al. 2019, "BERT", section 5.3.
    """

    preprocessor_class = TokenClassifierPreprocessor
    positions_input = "word_positions"
    labels_are_of_tokens = True
    architectures = ("encoder", "decoder")
    temperature = FittedOption()

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: Any = None,
        *,
        hidden_activation: str | None = None,
        inner_bias: bool = True,
        inner_norm: bool = False,
        projection_bias: bool = True,
        head_dropout: float = 0.1,
        temperature: float = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, **options)
        self.temperature = temperature
        choices = (hidden_activation, inner_bias, inner_norm, projection_bias, head_dropout)
        self.add_head(classification_head(self, len(self.labels), *choices))

    def checked_fitted(self, name: str, value: Any) -> float:
        return require_temperature(value)

    def own_options(self) -> dict[str, Any]:
        return {**self.head.task_options(), "temperature": self.temperature}

    def row_of(self, text: Any, target: Any = None) -> Row:
        """Returns the row of a text, or of a list of words. Each word gets a label."""
        row = super().row_of(text, target)
        if row.places is not None and not len(row.places):
            raise ValueError("text must have at least one word to label, got none.")
        if is_token_level(text):
            return row
        words = self.preprocessor.words(self.preprocessor.check_rows([text], "text")).to_list()[0]
        # those that no token of the model is of have the position -1
        positions = np.asarray(self.preprocessor([text])["word_positions"])[0, : len(words)]
        seen = (word for word, position in zip(words, positions, strict=True) if position >= 0)
        return row._replace(names=[word.decode("utf-8", "replace") for word in seen])

    def decisions(self, outputs: Any, tokens: Sequence[str]) -> Decisions:
        """Returns the probabilities of the labels of each word."""
        return Decisions(ops.log_softmax(outputs / self.temperature, axis=-1), self.labels.strings)

    # Training.

    def default_loss(self) -> TokenCrossEntropy:
        """Returns `TokenCrossEntropy()`: the mean over all words."""
        return TokenCrossEntropy()

    def default_metrics(self) -> list[Any]:
        """Returns the accuracy over all words."""
        return [TokenAccuracy(name="accuracy")]

    # Use.

    def probabilities(self, logits: Any, word_positions: Any) -> Any:
        """Returns the label probabilities of each word, `(batch, words, labels)`.

        Args:
            logits: `(batch, words, labels)`.
            word_positions: `(batch, words)`, -1 for words without any token in the input.
        """
        outside = ops.one_hot(self.preprocessor.outside, len(self.labels), dtype="float32")
        positions = ops.convert_to_tensor(word_positions)
        seen = ops.expand_dims(positions >= 0, -1)
        values = self.results(logits)["probabilities"]
        # of several words of one token, only the first can begin an entity, and only the last end it
        same = positions[:, 1:] == positions[:, :-1]
        for widths, later in (([(0, 0), (1, 0)], True), ([(0, 0), (0, 1)], False)):
            moves = tag_moves(self.labels.names or [], later)
            if moves is not None:
                is_part = ops.expand_dims(ops.pad(ops.cast(same, "int32"), widths) > 0, -1)
                values = ops.where(is_part, ops.matmul(values, moves), values)
        return ops.where(seen, values, outside)

    def predict_texts(self, x: Any, batch_size: int) -> list[np.ndarray]:
        """Returns the probability of each label of each word, a list of arrays `(words, labels)`."""
        return self._unit_probabilities(self.preprocessor.rows(x, "x"), batch_size)

    def _unit_probabilities(self, rows: Examples, batch_size: int) -> list[np.ndarray]:
        """The probability of each label of each word, or of what else has a label."""
        counts = rows.tokens["first"].row_lengths().numpy()

        def words(numbers: np.ndarray, inputs: dict[str, Any], logits: Any) -> list[np.ndarray]:
            values = ops.convert_to_numpy(self.probabilities(logits, inputs["word_positions"]))
            return [value[:count] for value, count in zip(values, counts[numbers], strict=True)]

        found = self.map_batches(words, rows, batch_size)
        if rows.groups is None:
            return found
        starts = np.flatnonzero(np.diff(rows.groups, prepend=-1))
        return [np.concatenate(found[start:end]) for start, end in zip(starts, [*starts[1:], None], strict=False)]

    def calibrate(self, x: Any, y: Any, *, batch_size: int = 32) -> Calibration:
        """Sets the temperature that maximises the likelihood of held-out data. Predicted labels do not change.

        Further training does not change the temperature, so calibrate again after it.

        Args:
            x: Texts or lists of words that the model was not trained on, as for `fit`.
            y: The labels of their words, or spans.
            batch_size: Texts per batch.

        Returns:
            A `Calibration`: the temperature, and calibration error and negative log-likelihood per word on these data,
            before and after.

        Raises:
            ValueError: If a row is invalid, or if all predictions are correct.

        Reference:
            Guo et al. 2017, "On Calibration of Modern Neural Networks", section 4.2.
        """
        rows = self.preprocessor.examples(x, y)
        labels = rows.targets.to_list()

        def words(numbers: np.ndarray, inputs: dict[str, Any], logits: Any) -> list[tuple[np.ndarray, np.ndarray]]:
            logits, positions = ops.convert_to_numpy(logits), inputs["word_positions"]
            # of several words of one token, the first has its label
            seen = (positions >= 0) & (np.diff(positions, prepend=-1) != 0)
            places = [np.flatnonzero(row) for row in seen]
            of_rows = zip(numbers, logits, places, strict=True)
            return [(row[place], np.array(labels[number], "int32")[place]) for number, row, place in of_rows]

        found = self.map_batches(words, rows, batch_size)
        calibration = fit_temperature(*(np.concatenate(part) for part in zip(*found, strict=True)))
        self.temperature = calibration.temperature
        return calibration

    def tag(self, texts: Any, *, batch_size: int = 32) -> list[Any]:
        """Returns the label of each word.

        Args:
            texts: A text, many texts (split into words, see `split` of the preprocessor), or a list of lists of words.
            batch_size: Texts per batch.

        Returns:
            For each text a list with one label per word: its name, or its number if labels have no names. For a single
            text its list alone.

        Raises:
            TypeError, ValueError: If a row is not text, or is too long. The message names the row.
        """
        if isinstance(texts, (str, bytes)):
            return self.tag([texts], batch_size=batch_size)[0]
        return self.preprocessor.labels_of(self.predict_texts(texts, batch_size))

    def entities(self, texts: Any, *, aggregation_strategy: str = "words", batch_size: int = 32) -> list[Any]:
        """Returns the entities that tags of BIO, BIOES or BILOU mark, with their positions and scores.

        Args:
            texts: As for `tag`.
            aggregation_strategy: Which units of a text have a tag each. "words": those of `tag`. The others are those
                of Transformers' pipeline, for texts alone. "simple": tokens. "first", "average" and "max": words of
                this pipeline, by their first token, the mean of all tokens, or the token with the highest probability.
                "none": tokens, which are not joined to entities, and are labelled with their tag.
            batch_size: Texts per batch.

        Returns:
            For each text a list of `zoo.preprocessing.Entity`: label, text, `start` and `end` in characters (end
            exclusive), units, and mean probability of its tags. For a single text its list alone.

        Raises:
            ValueError: If the labels of the task are not tags, or the strategy is not known, or not for words.

        Example:

        >>> model.entities("Ada Lovelace, of London, wrote.")
        [Entity(label='PER', text='Ada Lovelace', start=0, end=12, words=(0, 2), score=0.98), ...]

        Reference:
            Ramshaw and Marcus 1995, "Text Chunking using Transformation-Based Learning", section 4.1;
            `TokenClassificationPipeline` of the Transformers library.
        """
        if not are_tags(self.labels.names):
            raise ValueError(
                f"entities() needs labels that are tags of BIO, BIOES or BILOU, got labels={self.labels.option!r}."
            )
        if aggregation_strategy not in _ALL_STRATEGIES:
            raise ValueError(f"aggregation_strategy must be one of {_ALL_STRATEGIES}, got {aggregation_strategy!r}.")
        if isinstance(texts, (str, bytes)):
            return self.entities([texts], aggregation_strategy=aggregation_strategy, batch_size=batch_size)[0]
        if aggregation_strategy == "words":
            return self.preprocessor.entities(texts, self.predict_texts(texts, batch_size))
        return self._aggregated(texts, aggregation_strategy, batch_size)

    def _aggregated(self, texts: Any, strategy: str, batch_size: int) -> list[Any]:
        """Entities of texts by one of `STRATEGIES`."""
        import tensorflow as tf

        x = self.preprocessor.check_rows(texts, "texts")
        if x.shape.rank != 1:
            raise ValueError(f"aggregation_strategy must be 'words' for lists of words, got {strategy!r}.")
        x = tf.constant([text.decode("utf-8", "replace") for text in x.numpy()], tf.string, shape=x.shape)
        tokens = self.preprocessor.text_tokens(x)
        rows = self.preprocessor.rows_of_tokens(x, tokens[0], "texts")
        values = self._unit_probabilities(rows, batch_size)
        values = tf.concat([*values, np.zeros((0, len(self.labels)), "float32")], axis=0)
        *places, values = join_tokens(strategy, x, tokens, values, self.preprocessor.tokenizer)
        found = entities_in_graph(x, *places, values, self.labels.names, join=strategy != "none")
        return entity_tuples(x.numpy(), found, places[0])

    def result_fields(self) -> tuple[Field, ...]:
        shape = ("batch", "length", len(self.labels))
        return (Field("probabilities", shape, "float32", "of the labels of each token"),)

    def results(self, outputs: Any) -> dict[str, Any]:
        """Returns the probabilities of tokens; those of a word are those of its first token."""
        return {"probabilities": ops.softmax(outputs / self.temperature, axis=-1)}

    def endpoints(self) -> dict[str, Endpoint]:
        """Returns the endpoints of an export, for any batch size.

        * `serve(texts)`: string tensor `(batch,)`, split into words like the task does, to "words" and "tags", strings
          `(batch, words)`, "probabilities" `(batch, words, labels)`, float32, and "starts" and "ends", byte offsets of
          each word in its text, int64 `(batch, words)`. Rows are padded with "" and 0.
        * `entities(texts)`, only if the labels are tags of entities: the result of `entities()` of the task as "labels"
          and "texts", strings `(batch, entities)`, "starts" and "ends", byte offsets, int64, and "scores", float32.
          Rows are padded with "" and 0.
        * `aggregate(texts, aggregation_strategy)`, with it: the same for a strategy of `entities()`, a string `()`.
        * `tag_words(words, counts)`: words `(batch, words)` and their number in each row, int32 `(batch,)`, to the
          outputs of `serve` without offsets.
        * `label_names()`: the labels in the order of the probabilities, strings `(labels,)`.

        A text longer than the model allows raises an `InvalidArgumentError`, unless the task truncates or has a
        `stride`.
        """
        import tensorflow as tf

        names = self.labels.strings

        def probabilities(tokens: dict[str, Any]) -> Any:
            """Of the words of all texts, `(words, labels)`, from what `preprocessor.tokens` returned."""
            preprocessor = self.preprocessor
            if preprocessor.stride is None:
                inputs = checked_lengths(preprocessor.inputs(tokens), preprocessor.sequence_length)
            else:
                tokens, *_ = preprocessor.windows(tokens)
                inputs = preprocessor.inputs(tokens)
            values = self.probabilities(self(inputs, training=False), inputs["word_positions"])
            # those of a text, and of its windows, follow each other
            return tf.boolean_mask(values, tf.sequence_mask(tokens["first"].row_lengths(), tf.shape(values)[1]))

        def tag(rows: Any, words: Any) -> dict[str, Any]:
            width = padded_length(tf.reduce_max(tf.concat([words.row_lengths(), [1]], axis=0)))
            values = words.with_values(probabilities(self.preprocessor.tokens(rows)))
            values = values.to_tensor(0.0, shape=tf.stack([-1, width, len(names)]))
            tags = tf.gather(tf.constant(names), tf.argmax(values, axis=-1))
            is_word = tf.sequence_mask(words.row_lengths(), width)
            return {
                "words": words.to_tensor("", shape=tf.stack([-1, width])),
                "tags": tf.where(is_word, tags, ""),
                "probabilities": values,
            }

        def serve(texts: Any) -> dict[str, Any]:
            words, starts, ends = split_words(texts, self.preprocessor.split)
            outputs = tag(texts, words)
            shape = tf.shape(outputs["words"])
            return {**outputs, "starts": starts.to_tensor(0, shape=shape), "ends": ends.to_tensor(0, shape=shape)}

        def entities(texts: Any) -> dict[str, Any]:
            _, starts, ends = split_words(texts, self.preprocessor.split)
            return entities_in_graph(texts, starts, ends, probabilities(self.preprocessor.tokens(texts)), names)

        def aggregate(texts: Any, strategy: Any) -> dict[str, Any]:
            def by_tokens() -> dict[str, Any]:
                tokens = self.preprocessor.text_tokens(texts)
                values = probabilities(self.preprocessor.of_single_tokens(tokens[0]))

                def by(name: str) -> Any:
                    def run() -> dict[str, Any]:
                        units = join_tokens(name, texts, tokens, values, self.preprocessor.tokenizer)
                        return entities_in_graph(texts, *units, names, join=name != "none")

                    return run

                number = tf.argmax(tf.constant(STRATEGIES) == strategy, output_type=tf.int32)
                return tf.switch_case(number, [by(name) for name in STRATEGIES])

            is_known = tf.reduce_any(tf.constant(_ALL_STRATEGIES) == strategy)
            check = tf.debugging.Assert(is_known, [_UNKNOWN, as_utf8(strategy)])
            with tf.control_dependencies([] if check is None else [check]):
                by_words = tf.identity(strategy == "words")
            return tf.cond(by_words, lambda: entities(texts), by_tokens)

        def tag_words(words: Any, counts: Any) -> dict[str, Any]:
            words = tf.RaggedTensor.from_tensor(words, lengths=tf.cast(counts, tf.int64))
            return tag(words, words)

        shape = ("batch", "words")
        texts, words = (
            self.text_fields()[0],
            Field("words", shape, "string", "words of each text"),
        )
        counts = Field("counts", ("batch",), "int32", "number of words of each text")
        tagged = (
            words,
            Field("tags", shape, "string", "the likeliest label of each word"),
            Field("probabilities", (*shape, len(self.labels)), "float32", "of each label"),
        )
        places = tuple(Field(name, shape, "int64", f"where words {name[:-1]}, in bytes") for name in ("starts", "ends"))
        found = {
            "serve": Endpoint(serve, (texts,), (*tagged, *places), "Splits texts into words and labels these."),
            "tag_words": Endpoint(tag_words, (words, counts), tagged, "Labels words."),
            **self.label_endpoints(),
        }
        if are_tags(self.labels.names):
            strategy = Field("aggregation_strategy", (), "string", f"one of {', '.join(_ALL_STRATEGIES)}", "simple")
            about = "Finds the entities that tags mark"
            found["entities"] = Endpoint(entities, (texts,), ENTITY_FIELDS, f"{about}, by words.")
            found["aggregate"] = Endpoint(aggregate, (texts, strategy), ENTITY_FIELDS, f"{about}, by a strategy.")
        return found
