"""Base class of all tasks: a backbone, a head and a preprocessor, with saving, export and adaptation."""

import html
import os
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Self

import keras

from layers.errors import refuse_names
from zoo.backbones.adapters import LoraReport, active_variables, is_factor, size_of
from zoo.backbones.backbone import Backbone, default_policy, require_plain_policy
from zoo.backbones.freezing import FreezeReport, freeze
from zoo.export import RUNTIME_FORMATS, SAVED_MODEL, Endpoint, Request, requests_of
from zoo.gguf import reader as _gguf  # noqa: F401  (registers itself)
from zoo.huggingface import save_task as save_huggingface_task
from zoo.inspect import Inspection, inspect_task
from zoo.inspect.row import Decisions, Row, is_token_level, row_of_ids, row_of_text
from zoo.keras_hub import save_task as save_keras_hub_task
from zoo.preprocessing import Preprocessor
from zoo.preprocessing.rows import require_count
from zoo.signatures import signature_of
from zoo.storage import find_reader
from zoo.tasks.adaptation import Adaptation, QuantizationReport
from zoo.tasks.exporting import export_task
from zoo.tasks.registry import parameters_of, task_class_of
from zoo.tasks.saving import SavedPreprocessor, push_task, save_task
from zoo.tasks.text_model import TextModel
from zoo.tokenizers import Tokenizer

# Arguments of `keras.Model`; all others that a task does not name are those of its preprocessor.
KERAS_OPTIONS = ("name", "dtype", "trainable")
# arguments of KerasHub's tasks that are others here
_NAMES_OF_KERAS_HUB = {
    "num_classes": "labels, the names of the classes",
    "activation": "predict(texts), which returns probabilities, as the task itself returns logits",
    "preprocessor": "tokenizer, and arguments of the preprocessor such as sequence_length",
}
# arguments of low-rank updates in KerasHub and PEFT
_NAMES_OF_LORA = {
    "target_layer_names": "targets",
    "target_modules": "targets",
    "layers_to_transform": "blocks",
    "r": "rank",
    "lora_alpha": "alpha",
    "lora_dropout": "dropout",
    "use_dora": "dora",
    "adapter_name": "name",
}


class Task(TextModel):
    """Base class of tasks: a backbone with a head, and a preprocessor between texts and tokens.

    A subclass sets `preprocessor_class` and `architectures`, and defines `call`, `default_loss`, `predict_texts` and
    `endpoints`. For `inspect`, it also defines `outputs_of`, which computes the result of a call from the hidden states
    of the backbone, and `decisions`.

    Args:
        backbone: The backbone.
        preprocessor: The preprocessor; a tokenizer, from which the task makes its preprocessor; or None for use on
            token level.
        **options: `name`, `dtype` and `trainable` of `keras.Model`. All others are arguments of the preprocessor that
            the task makes.

    Raises:
        ValueError: If the task does not support the architecture of the backbone, or the preprocessor does not fit it.
    """

    preprocessor_class: ClassVar[type[Preprocessor]] = Preprocessor
    # which backbones the task takes
    architectures: ClassVar[tuple[str, ...]] = ("encoder",)
    # names of the arguments that are a `FittedOption`
    fitted_options: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "task_class" not in vars(cls.preprocessor_class):
            cls.preprocessor_class.task_class = cls

    def __init__(self, backbone: Backbone, preprocessor: Any = None, **options: Any) -> None:
        super().__init__(**{name: options.pop(name) for name in KERAS_OPTIONS if name in options})
        require_plain_policy(self.dtype_policy)
        # Keras wraps this method of each layer in one that returns nothing
        self.quantize = types.MethodType(Task.quantize, self)
        architecture = backbone.config.architecture
        if architecture not in self.architectures:
            raise ValueError(
                f"backbone of a {type(self).__name__} must have the architecture "
                f"{' or '.join(map(repr, self.architectures))}, got {architecture!r}."
            )
        self.backbone = backbone
        self.adaptation: Adaptation = Adaptation(self)
        self.input_names: Sequence[str] = backbone.input_names
        self.preprocessor: Preprocessor = self._make_preprocessor(preprocessor, options).for_backbone(backbone.config)
        # of the architecture: adapted and quantized layers have other weights
        self.backbone_parameters: int = sum(size_of(weight) for weight in backbone.weights if not is_factor(weight))

    def _make_preprocessor(self, given: Any, options: dict[str, Any]) -> Preprocessor:
        if not isinstance(given, Preprocessor):
            self._refuse_names(f"{type(self).__name__}()", options)
            return self.preprocessor_class(given, **options)
        if options:
            raise ValueError(
                f"{', '.join(options)} must be given to the preprocessor where one is given, got them here."
            )
        if not isinstance(given, self.preprocessor_class):
            raise ValueError(
                f"preprocessor must be a {self.preprocessor_class.__name__}, a tokenizer or None, got a "
                f"{type(given).__name__}."
            )
        return given

    # What a subclass defines.

    @classmethod
    def _refuse_names(cls, caller: str, given: Collection[str]) -> None:
        """Raises an error for names of arguments that KerasHub's tasks have, unless a task of the user has them too."""
        own = cls.arguments()
        refuse_names(caller, [name for name in given if name not in own], _NAMES_OF_KERAS_HUB)

    def own_options(self) -> dict[str, Any]:
        """Returns the constructor arguments as plain values, without backbone, preprocessor and its arguments."""
        return {}

    def endpoints(self) -> dict[str, Endpoint]:
        """Returns the endpoints of an export by name. The first one is the default. A subclass may add options."""
        raise NotImplementedError(f"{type(self).__name__} names no endpoints: define endpoints() to export it.")

    def token_endpoints(self) -> dict[str, Endpoint]:
        """Returns the token-level endpoints by name, for formats other than SavedModel. A subclass may add options."""
        raise NotImplementedError(
            f"{type(self).__name__} names no endpoints from token ids to numbers: define token_endpoints() for the "
            f"formats {', '.join(RUNTIME_FORMATS)}."
        )

    def attention_endpoint(self) -> Endpoint:
        """Returns the endpoint `attention` of an export, see `zoo.tasks.attention_endpoint`."""
        raise ValueError(f"attention must be False for a {type(self).__name__}, got True.")

    def checked_fitted(self, name: str, value: Any) -> Any:
        """Checks a value of one of the `fitted_options`, and returns it as the task keeps it.

        Args:
            name: Name of the argument.
            value: The value from the user or a file.

        Raises:
            ValueError: If the value is not allowed.
        """
        return value

    # Inspecting.

    def inspect(
        self, text: Any, target: Any = None, *, top_k: int = 5, lens: bool = True, gradients: bool = True
    ) -> Inspection:
        """Returns what the model does with one text: attention, predictions, and gradients.

        The model runs once. With `gradients`, it runs forward and backward once more for each row of its predictions,
        in batches.

        Args:
            text: One row of the task: a text, a pair of texts as a tuple, a list of words, a conversation for a
                `CausalLM`, or token-level inputs of one row.
            target: For a `Seq2SeqLM`, the target text; None for the text that the model generates.
            top_k: Number of most probable choices to return.
            lens: Whether to compute predictions from the hidden states of each layer (logit lens).
            gradients: Whether to compute gradients.

        Raises:
            TypeError, ValueError: If the task does not take such a row, or the text is longer than the model's maximum.

        Example:

        >>> found = model.inspect("Once upon a time")
        >>> found.attention.shape    # layers, heads, and each token to each
        (12, 12, 5, 5)
        >>> found.save_html("page.html")
        """
        row = self.row_of(text, target)
        return inspect_task(self, row, top_k=require_count(top_k, "top_k"), lens=lens, gradients=gradients)

    def row_of(self, text: Any, target: Any = None) -> Row:
        """Returns the token row of one text, see `inspect`.

        Args:
            text, target: Arguments of `inspect`.

        Raises:
            TypeError, ValueError: If the task does not take such a row.
        """
        if target is not None:
            raise ValueError(f"target must be None for a {type(self).__name__}, got {target!r}.")
        if not is_token_level(text):
            return row_of_text(self.preprocessor, text)
        config = self.backbone.config
        return row_of_ids(text, self.input_names, config.vocabulary_size, config.max_length)

    def backbone_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Returns the inputs of the backbone, from the inputs of a call.

        Args:
            inputs: As for a call.
        """
        return inputs

    def finish(self, hidden: Any) -> Any:
        """Returns the hidden states after a layer in the form in which the head reads those of the last layer.

        Args:
            hidden: `(batch, length, hidden_dim)`, without padding.
        """
        return self.backbone.finish(hidden)

    def outputs_of(self, hidden: Any, inputs: dict[str, Any], training: bool | None = None) -> Any:
        """Returns the outputs of the head for hidden states.

        Args:
            hidden: The inputs of the head, `(batch, length, width)`.
            inputs, training: As for a call.
        """
        raise NotImplementedError(f"{type(self).__name__} has no head of its own: define outputs_of().")

    def decisions(self, outputs: Any, tokens: Sequence[str]) -> Decisions | None:
        """Returns the predictions in the outputs, for `inspect`; None for a task without any, such as an embedder.

        Args:
            outputs: The result of a call, without padding.
            tokens: The tokens that the last stack read.
        """
        return None

    # What the preprocessor knows.

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the preprocessor; None for a task that is only used on token level."""
        return self.preprocessor.tokenizer

    @property
    def longest(self) -> int:
        """Largest number of tokens of a row."""
        return self.preprocessor.sequence_length

    def options(self) -> dict[str, Any]:
        """Returns the constructor arguments as plain values, without backbone and tokenizer."""
        return {**self.preprocessor.options(), **self.own_options()}

    # Saving.

    def example_requests(self, endpoints: Mapping[str, Endpoint], examples: Sequence[Any]) -> list[Request]:
        """Returns requests with examples, which warm a server and are shown in the model card of an export.

        Args:
            endpoints: The endpoints of the export.
            examples: As for `export`.

        Raises:
            ValueError: If the task does not take an example.
        """
        return requests_of(endpoints, examples)

    def export(
        self,
        directory: str | os.PathLike[str],
        format: str = SAVED_MODEL,
        *,
        examples: Sequence[Any] = (),
        weights: str = "float32",
        strings: bool | Sequence[str] = False,
        attention: bool = False,
        **options: Any,
    ) -> None:
        """Exports the model for production. The write is atomic: the directory appears whole or not at all.

        * "tf_saved_model": a SavedModel whose functions are `endpoints(**options)`: strings in, strings and numbers
          out. A process that imports only `tensorflow` and `tensorflow_text` loads it with
          `tf.saved_model.load(directory)`. Each endpoint is also a signature of the same name, and the first one also
          "serving_default".
        * "onnx", "litert" and "openvino": `token_endpoints(**options)`, token ids in, numbers out, for ONNX Runtime,
          LiteRT and OpenVINO. `run_model.py` in the directory runs them with NumPy and the runtime alone. It includes
          the decoding loop for text generation.
        * "openvino_genai": a causal language model, a text embedder or a cross-encoder for the pipelines of OpenVINO
          GenAI, with its tokenizer: texts in, texts, vectors or scores out, without Python. The graph of a language
          model keeps keys and values.
        * "gguf": a causal language model for llama.cpp, Ollama and LM Studio, in one file with its tokenizer and chat
          template, with any backend. The extra `gguf` writes it.

        In every other format `signature.json` describes inputs and outputs, and `assets.extra` holds the files of the
        tokenizer.

        Model servers expect `NAME/VERSION`. `zoo.export.new_version("models/NAME")` returns the folder of the next
        version.

        Args:
            directory: The directory to write. An export that it holds is replaced.
            format: "tf_saved_model", "onnx", "litert", "openvino", "openvino_genai" or "gguf".
            examples: A few real inputs for a SavedModel: a text each, or a tuple of texts if the default endpoint has
                several inputs; for a chat model also conversations. `model_card.md` shows the outputs for them. A
                server runs them before it reports that it is ready, so that the first request is not slow.
            weights: "float32", or "int8" for matrices in 8 bits, by the tool of the format. A SavedModel has the
                weights of the model, see `quantize`. With "openvino_genai" also "int4". With "gguf" also "float16",
                "bfloat16", "q8_0", "q5_1", "q5_0", "q4_1" and "q4_0", see `zoo.gguf.write_gguf`.
            strings: With the format "onnx", whether to add an endpoint `serve` that takes strings. It needs a tokenizer
                of onnxruntime-extensions that gives the same ids, which is checked on a few texts in many languages, or
                on the texts passed here. A SavedModel always takes strings.
            attention: Whether a SavedModel also has an endpoint `attention`, which returns the attention weights of
                each token of a text.
            **options: Arguments of `endpoints`, or of `token_endpoints`.

        Raises:
            ValueError: If the backend is not TensorFlow, the task has no tokenizer, the format cannot express the model
                (the message says why), or an argument is out of range.
            ImportError: If the packages of the format are missing.
            FileExistsError: If the directory exists and does not hold an export.

        Example:

        >>> model.export("exported", examples=["a typical text"])
        >>> served = tf.saved_model.load("exported")  # keep a reference: its functions do not keep their variables
        >>> served.serve(tf.constant(["a text"]))
        >>> model.export("exported_onnx", format="onnx", weights="int8")
        """
        export_task(
            self,
            directory,
            format,
            examples=examples,
            weights=weights,
            strings=strings,
            attention=attention,
            options=options,
        )

    @classmethod
    def from_preset(
        cls,
        preset: str | os.PathLike[str],
        *,
        load_weights: bool = True,
        tokenizer: Any = "auto",
        dtype: Any = None,
        **choices: Any,
    ) -> Self:
        """Returns the task of a saved model or of a named architecture.

        A saved model of another task provides its backbone, for example a `MaskedLM` for a `TextClassifier`. The head
        is then new, and a warning says so. The head is also new if the number of `labels` differs from that of the
        saved model. With the same number of labels, their names are replaced and the head is kept.

        `Task.from_preset` returns the task class that the files name.

        Args:
            preset: A directory that `save_to_preset` wrote, the folder of a run, a directory of the Transformers
                library or of KerasHub, an adapter that names its model, a checkpoint of llama2.c, `hf://owner/name` for
                one of these on the Hugging Face Hub or in an installed package, or a name of `zoo.list_presets()`.
            load_weights: Whether to load the weights. Named architectures without published weights need False.
            tokenizer: Tokenizer for a named architecture, or in place of the one in files of another library; None for
                a model on token level, also where that of the files is not supported. Default "auto", that of the
                files. A model that `save_to_preset` wrote has its own.
            dtype: Dtype policy of all layers, for example "mixed_bfloat16". Default `keras.config.dtype_policy()`.
            **choices: Arguments of the task and of its preprocessor, for example `labels=["bad", "good"]`. Also
                fields of the configuration to replace, for example `vocabulary_size=8000`. If weights are loaded, only
                fields that do not change them: `dropout` and `max_length`.

        Raises:
            ValueError: If there is no such preset, if it has no weights and `load_weights` is True, or if the task does
                not support the architecture of the saved model.

        Example:

        >>> model = Seq2SeqLM.from_preset("transformer_tiny", load_weights=False, vocabulary_size=8000)
        """
        reader, source = find_reader(preset, weights=load_weights)
        kind = task_class_of(reader.task_of(source), os.fspath(preset)) if cls is Task else cls
        kind._refuse_names(f"{kind.__name__}.from_preset()", choices)
        with default_policy(dtype):
            return reader.load_task(kind, source, load_weights, tokenizer, choices)

    @classmethod
    def arguments(cls) -> dict[str, Any]:
        """Returns the names and types of the arguments of the task and of the preprocessor that it makes."""
        return parameters_of(cls, cls.preprocessor_class)

    def save_to_preset(self, directory: str | os.PathLike[str]) -> None:
        """Writes configuration, weights and preprocessor to a directory, which appears whole or not at all.

        Args:
            directory: The directory to write.
        """
        save_task(self, directory)

    def save_to_huggingface(
        self,
        directory: str | os.PathLike[str],
        *,
        model_type: str | None = None,
        license: str | None = None,
        base_model: str | None = None,
        dtype: str | None = None,
    ) -> str:
        """Writes the model for the Transformers library, see `zoo.huggingface.save_task`.

        Active low-rank updates are merged into the weights that are written. Inactive updates are left out.

        Args:
            directory: The directory to write.
            model_type: The model family of the files. Default: that which the model was read from, if it can express
                it, else the first that can.
            license: Identifier of the licence, such as "apache-2.0", for the model card.
            base_model: Name on the hub of the model that this one was made from, for the model card.
            dtype: Dtype of the weights: "float32", "bfloat16" or "float16". Default: that of the files that the model
                was read from, else its own.

        Returns:
            The model type.
        """
        return save_huggingface_task(
            self, directory, model_type=model_type, license=license, base_model=base_model, dtype=dtype
        )

    def push(
        self,
        address: str,
        *,
        format: str = "huggingface",
        private: bool | None = None,
        license: str | None = None,
        base_model: str | None = None,
        dtype: str | None = None,
        message: str = "Upload model",
    ) -> str:
        """Uploads the model to the Hugging Face Hub with a model card: everything in one commit, or nothing.

        Args:
            address: `owner/name`, or `owner/name@revision` for a branch. The repository is created if it does not
                exist.
            format: "huggingface" for the files of the Transformers library, "preset" for those of `save_to_preset`, or
                "adapter" for the active low-rank updates alone, see `save_adapter`.
            private: Whether a new repository is private; None for the default of the owner's account.
            license: Identifier of the licence, such as "apache-2.0".
            base_model: Name on the hub of the model that this one was made from.
            dtype: Dtype of the weights of the format "huggingface", see `save_to_huggingface`.
            message: First line of the commit message.

        Returns:
            `hf://owner/name@commit`, an address for `from_preset`.

        Raises:
            ValueError: If the format is unknown, cannot express the model, or has no choice of a dtype.
            HubError: If the upload fails.

        Example:

        >>> model.push("me/sentiment", license="apache-2.0", base_model="google-bert/bert-base-uncased")
        'hf://me/sentiment@3f1c...'
        """
        return push_task(
            self,
            address,
            format=format,
            private=private,
            license=license,
            base_model=base_model,
            dtype=dtype,
            message=message,
        )

    def save_to_keras_hub(self, directory: str | os.PathLike[str], *, class_name: str | None = None) -> str:
        """Writes the model as a preset of KerasHub, see `zoo.keras_hub.save_task`.

        Active low-rank updates are merged into the weights that are written. Inactive updates are left out.

        Args:
            directory: The directory to write.
            class_name: KerasHub's class of the backbone. Default: the first that can express the task.

        Returns:
            Name of KerasHub's backbone class.
        """
        return save_keras_hub_task(self, directory, class_name=class_name)

    def _repr_html_(self) -> str:
        """Returns a summary for notebooks: class, backbone, tokenizer, number of weights and longest row."""
        config = self.backbone.config
        rows = {
            "backbone": f"{config.architecture}, {type(config).__name__}",
            "parameters": f"{self.count_params():,}",
            "max_length": self.longest,
            "tokenizer": "None" if self.tokenizer is None else repr(self.tokenizer),
        }
        cells = "".join(f"<tr><th>{name}</th><td>{html.escape(str(value))}</td></tr>" for name, value in rows.items())
        return f"<table><caption>{type(self).__name__} {html.escape(self.name)}</caption>{cells}</table>"

    def get_config(self) -> dict[str, Any]:
        self.adaptation.require_own("saving")
        serialize = keras.saving.serialize_keras_object
        return {
            "backbone": serialize(self.backbone),
            "preprocessor": SavedPreprocessor(self.preprocessor),
            "name": self.name,
            "trainable": self.trainable,
            "dtype": serialize(self.dtype_policy),
            "quantization": self.adaptation.mode,
            "quantized_head": self.adaptation.quantized_head,
            **self.own_options(),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        config = dict(config)
        mode, head = config.pop("quantization"), config.pop("quantized_head")
        for part in ("backbone", "preprocessor"):
            if isinstance(config[part], dict):
                config[part] = keras.saving.deserialize_keras_object(config[part])
        config["preprocessor"] = config["preprocessor"].preprocessor
        task = cls(**config)
        # weights are given to it later, quantized as they were saved
        if mode is not None:
            task.quantize(mode, head=head)
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

    # Adapting.

    @property
    def active_variables(self) -> list[keras.Variable]:
        """All variables but those of inactive low-rank updates."""
        return active_variables(self)

    def require_trainable(self, what: str) -> None:
        self.adaptation.require_trainable(what)

    def freeze(self, *parts: str) -> FreezeReport:
        """Excludes parts of the model from training, see `zoo.backbones.freezing.freeze`."""
        report = freeze(self, parts)
        self.adaptation.renew_training()
        return report

    @signature_of(Adaptation.enable_lora)
    def enable_lora(self, *arguments: Any, **options: Any) -> LoraReport:
        refuse_names("enable_lora()", options, _NAMES_OF_LORA)
        return self.adaptation.enable_lora(*arguments, **options)

    @signature_of(Adaptation.merge_lora)
    def merge_lora(self, *names: str) -> None:
        self.adaptation.merge_lora(*names)

    @signature_of(Adaptation.activate_adapters)
    def activate_adapters(self, *names: str, **options: Any) -> None:
        self.adaptation.activate_adapters(*names, **options)

    @signature_of(Adaptation.remove_adapters)
    def remove_adapters(self, *names: str) -> None:
        self.adaptation.remove_adapters(*names)

    @signature_of(Adaptation.save_adapter)
    def save_adapter(self, *arguments: Any, **options: Any) -> str | None:
        return self.adaptation.save_adapter(*arguments, **options)

    @signature_of(Adaptation.load_adapter)
    def load_adapter(self, *arguments: Any, **options: Any) -> LoraReport:
        return self.adaptation.load_adapter(*arguments, **options)

    @signature_of(Adaptation.quantize)
    def quantize(self, *arguments: Any, **options: Any) -> QuantizationReport:
        return self.adaptation.quantize(*arguments, **options)
