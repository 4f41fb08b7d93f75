"""What all tasks share: a backbone, a head and a preprocessor; training and prediction on texts; saving."""

import os
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import keras
import numpy as np

from zoo.backbones.backbone import Backbone
from zoo.export import Endpoint, require_format, write_saved_model
from zoo.huggingface import save_task as save_huggingface_task
from zoo.preprocessing import EVALUATION_SEED, Examples, Preprocessor, map_by_length
from zoo.preprocessing.datasets import batches_of, converted, opened, rows_of, split
from zoo.preprocessing.rows import is_dataset, is_raw, require_count, shorten
from zoo.tasks.adaptation import LoraReport, LowRankUpdates, QuantizationReport, enable_lora, quantize, renew_training
from zoo.tasks.inputs import require_labels, require_token_level
from zoo.tasks.loading import QUANTIZATION, default_policy, load_task, save_task
from zoo.tasks.logits import loss_of_logits, metrics_of_logits
from zoo.tokenizers import Tokenizer

# Arguments of `keras.Model`; all others that a task does not name are those of its preprocessor.
KERAS_OPTIONS = ("name", "dtype", "trainable")
NAMES = ("x", "y", "sample_weight")


class Task(keras.Model):
    """A backbone with what it takes to do one job: a head, and a preprocessor between texts and tokens.

    `fit`, `evaluate` and `predict` take raw texts: lists, arrays and tensors of strings, `tf.data` of these, generators
    and `keras.utils.PyDataset` of batches of them. What holds no strings is on token level and goes to Keras.

    A subclass names its `preprocessor_class` and `architectures`, and defines `call`, `default_loss` and
    `predict_texts`.

    Args:
        backbone: The backbone.
        preprocessor: The preprocessor; a tokenizer, of which the task then makes a preprocessor of its kind; or None
            for use on token level.
        **options: `name`, `dtype` and `trainable` of `keras.Model`; all others are arguments of the preprocessor that
            the task makes.

    Raises:
        ValueError: If the backbone is of another architecture, or the preprocessor does not fit it.
    """

    preprocessor_class: ClassVar[type[Preprocessor]] = Preprocessor
    # which backbones the task takes
    architectures: ClassVar[tuple[str, ...]] = ("encoder",)

    def __init__(self, backbone: Backbone, preprocessor: Any = None, **options: Any):
        super().__init__(**{name: options.pop(name) for name in KERAS_OPTIONS if name in options})
        # Keras wraps this method of each layer in one that returns nothing
        self.quantize = types.MethodType(Task.quantize, self)
        architecture = backbone.config.architecture
        if architecture not in self.architectures:
            raise ValueError(
                f"{type(self).__name__} needs a backbone with architecture {' or '.join(self.architectures)}, got "
                f"{architecture!r}."
            )
        self.backbone = backbone
        self.preprocessor = self._make_preprocessor(preprocessor, options).for_backbone(backbone.config)
        # of the architecture: adapted and quantized layers have other weights
        self.backbone_parameters = backbone.parameter_count()
        self._quantization: str | None = None
        self._updates: LowRankUpdates | None = None

    def _make_preprocessor(self, given: Any, options: dict[str, Any]) -> Preprocessor:
        if not isinstance(given, Preprocessor):
            return self.preprocessor_class(given, **options)
        if options:
            raise ValueError(f"{sorted(options)} are arguments of the preprocessor, which is given already.")
        if not isinstance(given, self.preprocessor_class):
            raise ValueError(
                f"preprocessor must be a {self.preprocessor_class.__name__}, a tokenizer or None, got a "
                f"{type(given).__name__}."
            )
        return given

    # What a subclass defines.

    def default_loss(self) -> Any:
        """Returns the loss of `compile(loss="auto")`."""
        raise NotImplementedError

    def default_optimizer(self) -> Any:
        """Returns the optimizer of `compile(optimizer="auto")`."""
        return keras.optimizers.Adam(1e-4, global_clipnorm=1.0)

    def default_metrics(self) -> list[Any]:
        """Returns the weighted metrics of a `compile` that is given no metrics."""
        return []

    def predict_texts(self, x: Any, batch_size: int) -> Any:
        """Returns what `predict` gives for raw inputs, one entry per row.

        Args:
            x: Raw inputs of the user, not checked yet.
            batch_size: Rows per batch.
        """
        raise NotImplementedError(f"{type(self).__name__} does not predict from texts.")

    def own_options(self) -> dict[str, Any]:
        """Returns the arguments of the constructor but backbone, preprocessor and its arguments, as plain values."""
        return {}

    # whether the model returns logits, of which `predict` makes probabilities or texts
    returns_logits = True
    # whether each logit is a decision of its own
    logits_are_binary = False

    # What backbone and preprocessor know.

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the token-level inputs that a call needs."""
        return self.backbone.input_names

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the preprocessor; None for a task that is only used on token level."""
        return self.preprocessor.tokenizer

    @property
    def longest(self) -> int:
        """Most tokens of a row."""
        return self.preprocessor.sequence_length

    def options(self) -> dict[str, Any]:
        """Returns the arguments of the constructor but backbone and tokenizer, as plain values."""
        return {**self.preprocessor.options(), **self.own_options()}

    # Training and prediction.

    def compile(self, optimizer: Any = "auto", loss: Any = "auto", **kwargs: Any) -> None:
        """Configures training; what is left out gets the task's default.

        Args:
            optimizer: Default `default_optimizer()`.
            loss: Default `default_loss()`. A cross-entropy by name is that of logits, which the model returns.
            **kwargs: Passed on to `keras.Model.compile`. Without `metrics` and `weighted_metrics` the task's own
                `default_metrics()` are shown.
        """
        if isinstance(optimizer, str) and optimizer == "auto":
            optimizer = self.default_optimizer()
        if isinstance(loss, str) and loss == "auto":
            loss = self.default_loss()
        elif self.returns_logits:
            loss = loss_of_logits(loss)
        for name in ("metrics", "weighted_metrics") if self.returns_logits else ():
            if name in kwargs:
                kwargs[name] = metrics_of_logits(kwargs[name], self.logits_are_binary, name)
        if "metrics" not in kwargs and "weighted_metrics" not in kwargs:
            kwargs["weighted_metrics"] = self.default_metrics() or None
        super().compile(optimizer=optimizer, loss=loss, **kwargs)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        *,
        sample_weight: Any = None,
        class_weight: Mapping[Any, float] | None = None,
        validation_data: Any = None,
        validation_split: float = 0.0,
        validation_batch_size: int | None = None,
        shuffle: bool = True,
        packed: bool | int = False,
        **kwargs: Any,
    ) -> Any:
        """Trains, on raw texts or on token-level batches.

        Args:
            x: Texts (list, array or tensor of strings), what else the task takes, a `tf.data.Dataset` of `x`, `(x, y)`
                or `(x, y, sample_weight)` (rows, or batches of rows), a generator or `keras.utils.PyDataset` of such
                batches, or anything on token level that `keras.Model.fit` takes.
            y: Targets, where the task has them.
            batch_size: Rows per batch. Default 32.
            epochs: Number of passes over the data.
            sample_weight: Weight of each row, `(rows,)`.
            class_weight: Weight of labels, by name or number; those that are not named have 1.
            validation_data: `(x, y)`, `(x, y, sample_weight)`, a dataset, or for tasks without targets `x` alone.
            validation_split: Share of the rows, taken from the end, that is kept for validation, in [0, 1).
            validation_batch_size: Rows per batch of validation. Default `batch_size`.
            shuffle: Whether rows are shuffled anew in each epoch; a dataset keeps its order.
            packed: For a `CausalLM`: whether texts, those of the validation too, stand end to end in rows without
                padding, without seeing each other: True for rows of the longest that the model takes, or the length of
                a row. Otherwise each text is a row, and one that is longer than the model an error.
            **kwargs: Passed on to `keras.Model.fit`.

        Returns:
            The `keras.callbacks.History`.

        Raises:
            TypeError, ValueError: If a row is wrong, naming argument, row and what is allowed, before the first step.
        """
        self._require_trainable("fit()")
        if not self.compiled:
            self.compile()
        held_size = validation_batch_size or batch_size
        if validation_data is not None:
            validation_data = self._validation(validation_data, held_size, packed)
        x, has_texts = opened(x)
        if has_texts or is_raw(x):
            if validation_split and (validation_data is not None or packed or is_dataset(x) or has_texts):
                raise ValueError(
                    f"validation_split={validation_split!r} must be 0 with a dataset, with packed texts or with "
                    "validation_data."
                )
            options = {"shuffle": shuffle, "class_weight": self._class_weight(class_weight)}
            if validation_split:
                examples = self.preprocessor.examples(x, y, sample_weight)
                x, held = split(examples, validation_split)
                y = sample_weight = None
                validation_data = batches_of(self.preprocessor, held, held_size, seed=EVALUATION_SEED)
            x = self._batches((x, y, sample_weight), NAMES, batch_size, packed=packed, **options)
            y = sample_weight = batch_size = validation_batch_size = class_weight = None
            validation_split, shuffle = 0.0, False
        else:
            if packed:
                raise ValueError(f"packed={packed!r} needs texts, got {type(x).__name__} {shorten(x)}.")
            require_token_level(self, x, "x")
            require_labels(self, x, y, "x", "y")
            if class_weight is not None:
                weights = self._class_weight(class_weight)
                kwargs["class_weight"] = {label: float(weight) for label, weight in enumerate(weights)}
                class_weight = None
        return super().fit(
            x,
            y,
            batch_size=batch_size,
            epochs=epochs,
            sample_weight=sample_weight,
            validation_data=validation_data,
            validation_split=validation_split,
            validation_batch_size=None if is_dataset(validation_data) else validation_batch_size,
            shuffle=shuffle,
            **kwargs,
        )

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        *,
        sample_weight: Any = None,
        packed: bool | int = False,
        **kwargs: Any,
    ) -> Any:
        """Computes the loss and metrics, on raw texts or on token-level batches; arguments as for `fit`."""
        if not self.compiled:
            self.compile()
        x, has_texts = opened(x)
        if has_texts or is_raw(x):
            data = (x, y, sample_weight)
            x = self._batches(data, NAMES, batch_size, packed=packed, seed=EVALUATION_SEED)
            y = sample_weight = batch_size = None
        else:
            require_token_level(self, x, "x")
            require_labels(self, x, y, "x", "y")
        return super().evaluate(x, y, batch_size=batch_size, sample_weight=sample_weight, **kwargs)

    def predict(self, x: Any, batch_size: int | None = None, **kwargs: Any) -> Any:
        """Returns what the task makes of raw texts; of token-level batches the outputs of the model.

        Args:
            x: Texts, what else the task takes, a `tf.data.Dataset` of these, or token-level inputs.
            batch_size: Rows per batch. Default 32.
            **kwargs: Passed on to `keras.Model.predict` on token level; with texts only `verbose` may be given.
        """
        x, has_texts = opened(x)
        if not has_texts and not is_raw(x):
            require_token_level(self, x, "x")
            return super().predict(x, batch_size=batch_size, **kwargs)
        if set(kwargs) - {"verbose"}:
            raise ValueError(f"predict() on texts takes x, batch_size and verbose, got {sorted(kwargs)} too.")
        if has_texts or is_dataset(x):
            x = rows_of(self.preprocessor, x)
        return self.predict_texts(x, require_count(32 if batch_size is None else batch_size, "batch_size"))

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        require_token_level(self, inputs, "inputs")
        return super().__call__(inputs, *args, **kwargs)

    def train_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any) -> Any:
        """As `keras.Model.train_on_batch`, on a batch of raw rows too."""
        self._require_trainable("train_on_batch()")
        if not self.compiled:
            self.compile()
        return super().train_on_batch(*self._one_batch(x, y, sample_weight, seed=None), **kwargs)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any) -> Any:
        """As `keras.Model.test_on_batch`, on a batch of raw rows too."""
        if not self.compiled:
            self.compile()
        return super().test_on_batch(*self._one_batch(x, y, sample_weight, seed=EVALUATION_SEED), **kwargs)

    def predict_on_batch(self, x: Any) -> Any:
        """As `keras.Model.predict_on_batch`; of raw rows what `predict` gives."""
        if is_raw(x):
            return self.predict(x)
        require_token_level(self, x, "x")
        return super().predict_on_batch(x)

    def _one_batch(self, x: Any, y: Any, sample_weight: Any, seed: Any) -> Any:
        if is_raw(x):
            rows = self.preprocessor.examples(x, y, sample_weight)
            batch = self.preprocessor.collate(*rows[:3], seed)
            return keras.tree.map_structure(lambda part: None if part is None else np.asarray(part), batch)
        require_token_level(self, x, "x")
        require_labels(self, x, y, "x", "y")
        return x, y, sample_weight

    def _require_trainable(self, what: str) -> None:
        if self._quantization is not None and self._updates is None:
            raise ValueError(
                f"{what} needs weights that can train; these are stored in {self._quantization}. Train before "
                "quantize(), or call enable_lora() behind it."
            )

    def map_batches(self, function: Callable, rows: Examples, batch_size: int) -> list[Any]:
        """Runs the model on batches of rows of similar length; one result per row, in their order.

        Args:
            function: From the numbers of the rows of a batch, their token-level inputs and the outputs of the model to
                one result per row.
            rows: What `preprocessor.rows` returned.
            batch_size: Rows per batch.
        """

        def run(numbers: np.ndarray) -> Sequence[Any]:
            inputs = self.preprocessor.inputs(rows.take(numbers).tokens)
            inputs = {name: np.asarray(value) for name, value in inputs.items()}
            return function(numbers, inputs, self.predict_on_batch(inputs))

        return map_by_length(run, rows.lengths, require_count(batch_size, "batch_size"))

    def _batches(
        self,
        data: tuple[Any, Any, Any],
        names: tuple[str, str, str],
        batch_size: int | None,
        *,
        shuffle: bool = False,
        packed: bool | int = False,
        seed: Any = None,
        class_weight: np.ndarray | None = None,
    ) -> Any:
        """Token-level batches of `(x, y, sample_weight)`, raw as users pass them, or checked."""
        x, y, sample_weight = data
        options = {"seed": seed, "class_weight": class_weight}
        self.preprocessor.require_tokenizer("Text input")
        if packed:
            if y is not None:
                raise ValueError(f"{names[1]} must be None with packed texts: the texts are their own labels.")
            return self.preprocessor.packed_dataset(
                x,
                batch_size,
                None if packed is True else packed,
                sample_weight=sample_weight,
                shuffle=shuffle,
                names=(names[0], names[2]),
            )
        if isinstance(x, Examples):
            return batches_of(self.preprocessor, x, batch_size, shuffle=shuffle, **options)
        is_column = not (is_dataset(x) or hasattr(x, "__next__") or isinstance(x, keras.utils.PyDataset))
        if is_column:
            examples = self.preprocessor.examples(x, y, sample_weight, names)
            return batches_of(self.preprocessor, examples, batch_size, shuffle=shuffle, **options)
        for name, value in zip(names[1:], (y, sample_weight), strict=True):
            if value is not None:
                raise ValueError(f"{name} must be None where {names[0]} is a dataset: the dataset holds it.")
        if is_dataset(x):
            return batches_of(self.preprocessor, x, batch_size, **options)
        if batch_size is not None:
            raise ValueError(f"batch_size={batch_size} must be None: {names[0]} yields batches already.")
        return converted(self.preprocessor, x, **options)

    def _validation(self, data: Any, batch_size: int | None, packed: bool | int) -> Any:
        names = tuple(f"validation_data[{index}]" for index in range(3))
        options = {"packed": packed, "seed": EVALUATION_SEED}
        data, has_texts = opened(data)
        if has_texts or is_dataset(data):
            is_text = has_texts or is_raw(data)
            return self._batches((data, None, None), names, batch_size, **options) if is_text else data
        parts = data
        if not isinstance(data, tuple) or (data and isinstance(data[0], (str, bytes))):
            parts = (data,)
        if not 1 <= len(parts) <= 3:
            raise ValueError(f"validation_data must be (x, y) or (x, y, sample_weight), got {len(parts)} entries.")
        if not is_raw(parts[0]):
            return data
        return self._batches((*parts, *[None] * (3 - len(parts))), names, batch_size, **options)

    def _class_weight(self, class_weight: Mapping[Any, float] | None) -> np.ndarray | None:
        """Weight of each label, `(labels,)`."""
        return None if class_weight is None else self.preprocessor.class_weights(class_weight)

    # Saving.

    def endpoints(self, **options: Any) -> dict[str, Endpoint]:
        """Returns the endpoints of an export by name; the first is the one that is called by default.

        Args:
            **options: What a subclass says.
        """
        raise NotImplementedError(f"{type(self).__name__} names no endpoints: define endpoints() to export it.")

    def export(self, directory: str | os.PathLike, format: str = "tf_saved_model", **options: Any) -> None:
        """Writes a SavedModel whose functions are `endpoints(**options)`: strings in, strings and numbers out.

        A process that imports only `tensorflow` and `tensorflow_text` loads it with `tf.saved_model.load(directory)`.
        Each endpoint is a signature of the same name too, the first one also "serving_default". `signature.json`
        describes their inputs and outputs, and `assets.extra` holds the files of the tokenizer.

        Args:
            directory: Where to; replaced if it holds a SavedModel.
            format: "tf_saved_model".
            **options: Arguments of `endpoints`.

        Raises:
            ValueError: If the backend is not TensorFlow, the task has no tokenizer, or an argument is out of range.
            FileExistsError: If the directory exists and holds no SavedModel.

        Example:

        >>> model.export("exported")
        >>> tf.saved_model.load("exported").serve(tf.constant(["a text"]))
        """
        require_format(format)
        tokenizer = self.preprocessor.require_tokenizer("export()")
        write_saved_model(
            directory,
            self.endpoints(**options),
            variables=self.variables,
            resources=tokenizer.trackables,
            save_assets=self.save_assets,
        )

    @classmethod
    def from_preset(
        cls,
        preset: str | os.PathLike,
        *,
        load_weights: bool = True,
        tokenizer: Any = None,
        dtype: Any = None,
        **choices: Any,
    ) -> "Task":
        """Returns the task of a saved model, or with a named architecture.

        A saved model of another task gives its backbone, for example a `MaskedLM` to a `TextClassifier`; the head
        starts untrained, as it does with other `labels` than those saved, and a warning says so.

        Args:
            preset: A directory that `save_to_preset` wrote, a directory of the Transformers library, `hf://owner/name`
                for one of the Hugging Face hub, or a name of `zoo.list_presets()`.
            load_weights: Whether to load the weights. Named architectures have none here: pass False.
            tokenizer: Tokenizer for a named architecture; a saved model has its own.
            dtype: Policy of all layers, for example "mixed_bfloat16". Default `keras.config.dtype_policy()`.
            **choices: Arguments of the task and of its preprocessor, for example `labels=["bad", "good"]`; for a named
                architecture also replaced choices of its configuration, for example `vocabulary_size=8000`.

        Raises:
            ValueError: If there is no such preset, if it has no weights and `load_weights` is True, or if the saved
                model is one of a task with another kind of backbone.

        Example:

        >>> model = Seq2SeqLM.from_preset("transformer_tiny", load_weights=False, vocabulary_size=8000)
        """
        with default_policy(dtype):
            return load_task(cls, preset, load_weights, tokenizer, choices)

    def save_to_preset(self, directory: str | os.PathLike) -> None:
        """Writes configuration, weights and preprocessor to a directory, whole or not at all.

        Args:
            directory: Where to.
        """
        save_task(self, directory)

    def saved_options(self) -> dict[str, Any]:
        """Returns `options()` and what was done to the weights, for a saved model."""
        return {**self.options(), **({} if self._quantization is None else {QUANTIZATION: self._quantization})}

    def save_to_huggingface(self, directory: str | os.PathLike, *, model_type: str | None = None) -> str:
        """Writes the model for the Transformers library, see `zoo.huggingface.save_task`.

        Args:
            directory: Where to.
            model_type: The family to write it as. Default: the first that can express it.

        Returns:
            The model type.
        """
        return save_huggingface_task(self, directory, model_type=model_type)

    def get_config(self) -> dict[str, Any]:
        serialize = keras.saving.serialize_keras_object
        return {
            "backbone": serialize(self.backbone),
            "preprocessor": SavedPreprocessor(self.preprocessor),
            "name": self.name,
            "trainable": self.trainable,
            "dtype": serialize(self.dtype_policy),
            "quantization": self._quantization,
            "lora": None if self._updates is None else self._updates.config(),
            **self.own_options(),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Task":
        config = dict(config)
        mode, lora = config.pop("quantization"), config.pop("lora")
        for part in ("backbone", "preprocessor"):
            if isinstance(config[part], dict):
                config[part] = keras.saving.deserialize_keras_object(config[part])
        config["preprocessor"] = config["preprocessor"].preprocessor
        task = cls(**config)
        # weights are given to it later, quantized and adapted as they were saved
        if mode is not None:
            task.quantize(mode)
        if lora is not None:
            task.enable_lora(**lora)
        return task

    def save_assets(self, directory: str) -> None:
        """Writes the tokenizer; Keras calls it for `.keras` files."""
        if self.tokenizer is not None:
            self.tokenizer.save(directory)

    def load_assets(self, directory: str) -> None:
        """Reads the tokenizer."""
        if os.path.isdir(directory) and os.listdir(directory):
            preprocessor = self.preprocessor
            self.preprocessor = type(preprocessor)(Tokenizer.load(directory), **preprocessor.options())

    def save_own_variables(self, store: Any) -> None:
        if self._updates is not None:
            self._updates.save(store)

    def load_own_variables(self, store: Any) -> None:
        if self._updates is not None:
            self._updates.load(store)

    def get_compile_config(self) -> dict[str, Any] | None:
        return super().get_compile_config()

    def compile_from_config(self, config: dict[str, Any]) -> None:
        # Keras asks for this where compile() has defaults of its own
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    # Adapting.

    def enable_lora(
        self, rank: int, *, alpha: float | None = None, targets: Sequence[str] = ("query", "value")
    ) -> LoraReport:
        """Adds low-rank updates to layers of the backbone; only these and the task's head train from then on.

        A `.keras` file loads with the updates, to train on. A preset holds them added to the weights and loads as a
        model without, as `merge_lora` makes one in memory.

        Args:
            rank: Rank of the updates.
            alpha: The updates are multiplied by `alpha / rank`. Default `rank`.
            targets: Names of the layers to adapt: "query", "key", "value", "output" (attention), "up", "down" and so on
                (feed-forward), or paths of single layers.

        Returns:
            What was adapted: paths, trainable and total number of weights. It prints as one line.

        Raises:
            ValueError: If a target matches no layer, a number is out of range, or updates are there already.

        Example:

        >>> print(model.enable_lora(8))
        LoRA of rank 8 on 24 layers: 300,290 of 109,785,604 weights train (0.27 %).

        Reference:
            Hu et al. 2022, "LoRA", section 4.
        """
        require_count(rank, "rank")
        if alpha is not None and not alpha > 0:
            raise ValueError(f"alpha must be above 0, got {alpha!r}.")
        report, self._updates = enable_lora(self, rank, alpha=alpha, targets=targets)
        return report

    def merge_lora(self) -> None:
        """Adds the low-rank updates to the weights and takes them away: a model as before `enable_lora`, adapted.

        All weights that trained before `enable_lora` train again.

        Raises:
            ValueError: If there are no updates, or the weights are quantized.
        """
        if self._updates is None:
            raise ValueError("merge_lora() needs low-rank updates: call enable_lora() first.")
        self._updates.merge()
        self._updates = None
        renew_training(self)

    def quantize(self, mode: str = "int8", **kwargs: Any) -> QuantizationReport:
        """Stores weights in fewer bits, for prediction; saved models stay so.

        Args:
            mode: "int8" (weights and, while it runs, activations) or "int4".
            **kwargs: Passed on to `keras.Model.quantize`.

        Returns:
            What was quantized: paths, size before and after. It prints as one line.

        Raises:
            ValueError: If there is no such mode, no layer can be quantized, it was done already, or there are low-rank
                updates.

        Example:

        >>> print(model.quantize("int8"))
        int8 weights in 77 layers: 437,935,112 bytes became 110,713,352 (4.0 times less).
        """
        if self._updates is not None:
            raise ValueError("quantize() needs a model without low-rank updates: call merge_lora() first.")
        report = quantize(self, lambda mode: super(Task, self).quantize(mode, **kwargs), mode)
        self._quantization = mode
        return report


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class SavedPreprocessor:
    """A preprocessor in the configuration of a task: with its tokenizer in memory, without it in a file.

    A `.keras` file holds the files of the tokenizer as they are, see `Task.save_assets`: no configuration, and no error
    that shows one, has megabytes of text.

    Args:
        preprocessor: The preprocessor.
    """

    def __init__(self, preprocessor: Preprocessor):
        self.preprocessor = preprocessor

    def get_config(self) -> dict[str, Any]:
        kind = keras.saving.get_registered_name(type(self.preprocessor))
        return {"kind": kind, "options": self.preprocessor.options()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "SavedPreprocessor":
        kind = keras.saving.get_registered_object(config["kind"])
        if kind is None or not issubclass(kind, Preprocessor):
            raise ValueError(
                f"The file needs the preprocessor {config['kind']!r}, which is not there: import the module that "
                "registers it with keras.saving.register_keras_serializable."
            )
        return cls(kind(None, **config["options"]))
