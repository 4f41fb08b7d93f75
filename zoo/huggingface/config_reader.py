"""Reading a configuration of the Transformers library: a key of theirs is used, or known not to matter, or an error."""

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from zoo.config.checks import require
from zoo.huggingface.config_keys import CHOICE_OF, KEYS, LAYERS, MOST_WIDTH, WIDTHS, is_integer
from zoo.huggingface.declared_keys import stray_keys
from zoo.huggingface.generation_keys import KEYS as GENERATION
from zoo.huggingface.generation_keys import UNSUPPORTED
from zoo.storage import quote, quote_key
from zoo.storage.user_warnings import warn_user

# keys that change no output of the model: bookkeeping, numbers of special tokens, choices of generation and training
# loops, ways to compute the same thing, heads that score one choice among others (summary_...)
NEUTRAL = frozenset(
    """
    directionality n_special pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head
    pooler_type predict_special_tokens
    _attn_implementation _attn_implementation_autoset _name_or_path _num_labels architectures attn_implementation
    cache_implementation chunk_size_feed_forward cls_token_id dtype finetuning_task force_bos_token_to_be_generated
    gradient_checkpointing id2label initializer_cutoff_factor initializer_factor label2id language mask_token_id
    model_type name num_labels output_attentions output_hidden_states output_past output_scores prefix pretraining_tp
    problem_type reference_compile remove_invalid_values return_dict return_dict_in_generate
    sbert_ce_default_activation_function sentence_transformers sep_token_id summary_activation summary_first_dropout
    summary_last_dropout summary_proj_to_labels summary_type summary_use_proj task_specific_params tokenizer_class
    torch_dtype torchscript transformers.js_config transformers_version use_bfloat16 use_cache
    """.split()
) | frozenset((*GENERATION, *UNSUPPORTED))

# keys that all configurations have, with the one value that changes nothing; families that read one take it
USUAL = {
    "add_cross_attention": False,
    "cross_attention_hidden_size": None,
    "is_decoder": False,
    "is_encoder_decoder": False,
    "quantization_config": None,
    "tf_legacy_loss": False,
    "tie_encoder_decoder": False,
}

# activations by the names of the Transformers library
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_accurate": "gelu_tanh",
    "gelu_python": "gelu",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "linear": "identity",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu_squared",
    "sigmoid": "sigmoid",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "identity": "linear",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu_squared": "relu2",
    "sigmoid": "sigmoid",
    "silu": "silu",
    "tanh": "tanh",
}
# how the projections to the vocabulary of encoders are named
_PROJECTIONS = ("decoder.weight", "generator_lm_head.weight", "vocab_projector.weight")
# stands for a key that must be there
REQUIRED: Any = object()


class ConfigReader:
    """A configuration whose keys are taken one by one.

    Args:
        values: Content of `config.json`.
        tensors: Names of the tensors of the model, without the prefix of the base model: some choices show only there.
            With their shapes, they bound all counts of the configuration before anything is made of it.
        source: The file of the tensors, for errors.
        values_of: Function from the name of a tensor to its values; None where only names and shapes are known.

    Attributes:
        names: The keys that our choices were read from, by the choices, for errors: see `zoo.config.renamed_in_errors`.

    Example:

    >>> reader = ConfigReader({"model_type": "gpt2", "n_embd": 768}, ())
    >>> reader.take("n_embd")
    768
    >>> reader.finish()
    """

    def __init__(
        self,
        values: dict[str, Any],
        tensors: Collection[str] = (),
        source: str = "the weights",
        values_of: Callable[[str], np.ndarray] | None = None,
    ) -> None:
        self.values = values
        self.source = source
        self.values_of = values_of
        self.tensors: frozenset[str] = frozenset(tensors)
        self.names: dict[str, str] = {}
        self._taken: set[str] = set()
        self.elements: float = math.inf
        if isinstance(tensors, Mapping):
            self.elements = sum(math.prod(shape) for shape in tensors.values())

    def take(self, key: str, default: Any = REQUIRED) -> Any:
        """Returns the value of a key, or `default` where it is missing.

        Raises:
            ValueError: If it is missing and there is no default, or if it is not what this key may hold.
        """
        self._name(key)
        return self._take(key, default)

    def _name(self, key: str) -> None:
        if key in CHOICE_OF:
            self.names.setdefault(CHOICE_OF[key], key)

    def skip(self, *keys: str) -> None:
        """Passes over keys that choose nothing here; what they hold is checked.

        Args:
            *keys: The keys.
        """
        for key in keys:
            self._take(key, None)

    def _take(self, key: str, default: Any) -> Any:
        self._taken.add(key)
        if key not in self.values:
            if default is REQUIRED:
                raise ValueError(f"config.json with model_type={quote(self.values.get('model_type'))} lacks {key!r}.")
            return default
        if key in KEYS:
            # layers of a group share their tensors (ALBERT)
            bounded_by_tensors = key in LAYERS and self.elements < math.inf and "num_hidden_groups" not in self.values
            most = len(self.tensors) if bounded_by_tensors else self.elements
            value = self.values[key]
            if not (key in WIDTHS and is_integer(value) and 1 <= value <= MOST_WIDTH):
                KEYS[key].check(key, value, most, self.source)
        return self.values[key]

    def take_number(self, key: str, default: Any) -> Any:
        """Returns the value of a key, or `default` where it is missing or null."""
        if self.values.get(key) is not None:
            return self.take(key)
        self._taken.add(key)  # null is right here, whatever the key may hold in other families
        self._name(key)
        return default

    def take_only(self, key: str, *allowed: Any) -> Any:
        """Returns the value of a key that may have these values only; the first is what a missing key means.

        Raises:
            ValueError: If it has another value.
        """
        value = self.take(key, allowed[0])
        require(value in allowed, key, value, f"one of {allowed}: nothing else is supported")
        return value

    def take_tied(self) -> None:
        """Takes `tie_word_embeddings` of an encoder: false means something only where there is another projection.

        Raises:
            ValueError: If it is false and the file has a projection to the vocabulary.
        """
        tied = self.take("tie_word_embeddings", True)
        own = sorted(name for name in self.tensors if name.endswith(_PROJECTIONS))
        allowed = f"true with {', '.join(own)} in {self.source}: nothing else is supported"
        require(tied or not own, "tie_word_embeddings", tied, allowed)

    def has_layer(self, tensor: str, *classes: str) -> bool:
        """Returns whether the model has a layer: the file has its tensor or, without a file, the class has one.

        Args:
            tensor: Name of its tensor.
            classes: The classes of the library that have one.
        """
        if self.tensors:
            return tensor in self.tensors
        given = self.values.get("architectures")
        return isinstance(given, list) and not set(classes).isdisjoint(map(str, given))

    def take_activation(self, key: str, default: str) -> str:
        """Returns our name of an activation.

        Raises:
            ValueError: If it is unknown.
        """
        return activation(self.take(key, default), key)

    def finish(self) -> None:
        """Ends the reading.

        Raises:
            ValueError: If there are keys that nobody has taken, that the library knows for this `model_type`, and that
                are not known to have no effect.

        Warns:
            UserWarning: There are keys that no version of the library knows, so that they change nothing there.
        """
        if self.values.get("pruned_heads"):
            raise ValueError(f"pruned_heads must be empty, got {quote(self.values['pruned_heads'])}.")
        for key, usual in USUAL.items():
            if key not in self._taken and key in self.values:
                self.take_only(key, usual)
        unknown = set(self.values) - self._taken - NEUTRAL - {"pruned_heads"}
        model_type = self.values.get("model_type")
        # code that comes with a model may read any key
        strays = set() if self.values.get("auto_map") else stray_keys(model_type, unknown)
        if unknown - strays:
            raise ValueError(
                f"config.json with model_type={quote(model_type)} has keys that are not known here: "
                f"{self._shown(unknown - strays)}. A model imported without them might compute something else."
            )
        if strays:
            warn_user(
                f"config.json with model_type={quote(model_type)} has keys that no version of the Transformers library "
                f"has for it, so they are left out: {self._shown(strays)}."
            )

    def _shown(self, keys: Collection[str]) -> str:
        names = sorted(keys)
        shown = ", ".join(f"{quote_key(key, most=80)}={quote(self.values[key], most=80)}" for key in names[:10])
        return shown + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def activation(name: str, key: str = "activation") -> str:
    """Returns our name of an activation of the Transformers library.

    Args:
        name: Its name there.
        key: What it is the value of, for the error.

    Raises:
        ValueError: If it is unknown.

    Example:

    >>> activation("gelu_new")
    'gelu_tanh'
    """
    require(isinstance(name, str) and name in ACTIVATIONS, key, name, f"one of {sorted(ACTIVATIONS)}")
    return ACTIVATIONS[name]
