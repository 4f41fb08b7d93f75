"""Heads of KerasHub's tasks: which arguments of ours they mean, and where their weights are."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from zoo.config import TransformerConfig
from zoo.config.checks import require
from zoo.storage import require_type

# of the norm of every MaskedLM there, whatever the backbone has
EPSILON = 1e-5
POOLINGS = {"mean": "mean", "cls": "first", "max": "max"}


@dataclasses.dataclass(frozen=True)
class Head:
    """The head of a class of tasks of KerasHub.

    Args:
        options: Arguments of our task that mean it, whatever theirs are.
        table: Paths of the weights by names of our layers, see `zoo.huggingface.directory.head_layers`.
        read: Returns further arguments of our task from theirs, for a backbone with our configuration.
        write: Returns their arguments from ours.
    """

    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    table: Mapping[str, str] = dataclasses.field(default_factory=dict)
    read: Callable[[dict[str, Any], TransformerConfig], dict[str, Any]] = lambda given, config: {}
    write: Callable[[dict[str, Any]], dict[str, Any]] = lambda options: {}


def _read_classifier(given: dict[str, Any], config: TransformerConfig) -> dict[str, Any]:
    classes, rate = given.get("num_classes"), given.get("dropout", 0.1)
    require_type(classes, int, "num_classes")
    require(classes >= 1, "num_classes", classes, "at least 1")
    require_type(rate, float, "dropout")
    require(0 <= rate < 1, "dropout", rate, "in [0, 1)")
    # ours returns logits in any case
    require(given.get("activation") in (None, "linear", "softmax"), "activation", given["activation"], "'linear'")
    width = given.get("hidden_dim")
    require(width in (None, config.hidden_dim), "hidden_dim", width, f"that of the backbone, {config.hidden_dim}")
    return {"labels": classes, "head_dropout": float(rate), **({"problem": "regression"} if classes == 1 else {})}


def _write_classifier(options: dict[str, Any]) -> dict[str, Any]:
    labels = options["labels"]
    return {
        "num_classes": labels if isinstance(labels, int) else len(labels),
        "dropout": options["head_dropout"],
    }


def _classifier(pooling: str, hidden_activation: str | None) -> Head:
    options = {"pooling": pooling, "hidden_activation": hidden_activation, "projection_bias": True}
    table = {"projection": "logits"}
    if hidden_activation is not None:
        options |= {"inner_bias": True, "inner_norm": False}
        table["dense"] = "pooled_dense"
    return Head(options, table, _read_classifier, _write_classifier)


def _masked_lm(activation: str) -> Head:
    return Head(
        {"head": "transform", "head_activation": activation, "head_bias": True, "head_norm_epsilon": EPSILON},
        {
            "dense": "mlm_head/intermediate_dense",
            "norm": "mlm_head/intermediate_layer_norm",
            "output_bias": "mlm_head/output_bias",
        },
    )


def _read_embedder(given: dict[str, Any], config: TransformerConfig) -> dict[str, Any]:
    pooling, normalize = given.get("pooling_mode", "mean"), given.get("normalize", True)
    require(isinstance(pooling, str) and pooling in POOLINGS, "pooling_mode", pooling, f"one of {sorted(POOLINGS)}")
    require_type(normalize, bool, "normalize")
    return {"pooling": POOLINGS[pooling], "normalize": normalize}


def _write_embedder(options: dict[str, Any]) -> dict[str, Any]:
    names = {ours: theirs for theirs, ours in POOLINGS.items()}
    pooling = options["pooling"]
    require(pooling in names, "pooling", pooling, f"one of {sorted(names)}")
    # which it has none of
    require(options["width"] is None, "width", options["width"], "None")
    require(not options["projections"], "projections", options["projections"], "empty")
    require(not any(options["prompts"].values()), "prompts", options["prompts"], "empty")
    return {"pooling_mode": names[pooling], "normalize": options["normalize"]}


_ON_POOLER, _EMBEDDER = _classifier("pooler", None), Head(read=_read_embedder, write=_write_embedder)
_DECODERS = (
    *("GPT2", "OPT", "GPTNeoX", "Llama", "Llama3", "Mistral", "Qwen", "Qwen3", "Phi3", "Gemma", "Gemma3", "Mixtral"),
    *("QwenMoe", "Qwen3Moe", "GptOss", "SmolLM3"),
)
# by the names of their classes of tasks
HEADS: dict[str, Head] = {
    "BertTextClassifier": _ON_POOLER,
    "AlbertTextClassifier": _ON_POOLER,
    "RobertaTextClassifier": _classifier("first", "tanh"),
    "XLMRobertaTextClassifier": _classifier("first", "tanh"),
    "DistilBertTextClassifier": _classifier("first", "relu"),
    "DebertaV3TextClassifier": _classifier("first", "gelu"),
    "AlbertMaskedLM": _masked_lm("gelu_tanh"),
    **{f"{name}MaskedLM": _masked_lm("gelu") for name in ("Bert", "Roberta", "XLMRoberta", "DistilBert", "DebertaV3")},
    "BertTextEmbedder": _EMBEDDER,
    "XLMRobertaTextEmbedder": _EMBEDDER,
    **{f"{name}CausalLM": Head() for name in _DECODERS},
    "BartSeq2SeqLM": Head(),
    # it decodes from the padding token
    "T5Seq2SeqLM": Head(),
}


def name_of_task(class_name: str, kind: str) -> str:
    """Returns the name of a class of tasks of KerasHub.

    Args:
        class_name: Name of the class of its backbone.
        kind: Name of our class.

    Example:

    >>> name_of_task("BertBackbone", "MaskedLM")
    'BertMaskedLM'
    """
    return class_name.removesuffix("Backbone") + kind


def kind_of(name: Any) -> str | None:
    """Returns the name of our class for one of KerasHub; None for one that is not known here.

    Args:
        name: Name of a class of tasks of KerasHub.

    Example:

    >>> kind_of("BertMaskedLM")
    'MaskedLM'
    """
    kinds = ("CausalLM", "MaskedLM", "Seq2SeqLM", "TextClassifier", "TextEmbedder")
    return next((kind for kind in kinds if isinstance(name, str) and name in HEADS and name.endswith(kind)), None)


def get_head(class_name: str, kind: str) -> Head:
    """Returns the head of a task on a backbone.

    Args:
        class_name: Name of the class of the backbone.
        kind: Name of our class of tasks.

    Raises:
        ValueError: If KerasHub has no such task, or it is not known here.
    """
    name = name_of_task(class_name, kind)
    if name not in HEADS:
        raise ValueError(f"KerasHub has no {name} that is known here.")
    return HEADS[name]
