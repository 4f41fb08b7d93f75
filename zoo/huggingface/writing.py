"""Writing directories of the Transformers library."""

import contextlib
import dataclasses
import json
import os
from typing import Any

import keras
import ml_dtypes
import numpy as np

from zoo.backbones.backbone import Backbone
from zoo.backbones.origin import Origin
from zoo.config import TransformerConfig
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.directory import OWN_FILES, check_count, head_of, is_huggingface
from zoo.huggingface.family import Family, Head, all_families, get_family, types_of_layers
from zoo.huggingface.labels import written_names
from zoo.huggingface.rotary import without_dynamic
from zoo.huggingface.unsupported_parts import require_own_classes, written_head
from zoo.huggingface.weights import Row, layer_view, named_layers, table_rows, with_half_split_pairs
from zoo.storage import replace_folder, write_tensors
from zoo.storage.checkpoint import CONFIG_FILE, WEIGHTS_FILE
from zoo.storage.user_warnings import warn_user

# of the families that cannot express a model
_MOST_SHOWN, _FAR = 3, 1000
# dtypes of weights in files
WRITTEN = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def write_backbone(
    backbone: Backbone,
    directory: str | os.PathLike[str],
    *,
    model_type: str | None = None,
    task: Any = None,
    dtype: str | None = None,
    extra: Any = None,
) -> str:
    """Writes a directory that the Transformers library reads.

    Args:
        backbone: The backbone.
        directory: Where to; replaced if it holds such a model, an error if it holds something else.
        model_type: The family to write it as. Default: that which it was read from, if it can express the
            configuration, else the first that can.
        dtype: Dtype of the weights in the file: "float32", "bfloat16" or "float16". Default: that of the files which
            it was read from, or where its own weights are no float32, that of these.
        task: Task whose head is written too; None for an encoder alone, for a base model that was read from one, or
            for a language model.
        extra: Called with the new directory and the dtype, to write more to it.

    Returns:
        The model type.

    Raises:
        ValueError: If no family, or not the given one, can express the configuration, or a class is one of one's own.
        FileExistsError: If the directory exists and holds something else.

    Example:

    >>> write_backbone(backbone, "exported", model_type="bert")
    'bert'
    """
    require_own_classes(backbone, task)
    # decoders have their output projection in the backbone
    generators = {"decoder": "CausalLM", "encoder_decoder": "Seq2SeqLM"}
    task_name = generators.get(getattr(backbone.config, "architecture", None)) if task is None else type(task).__name__
    origin = backbone.origin
    if task is None and origin is not None and origin.is_base_model:
        task_name = None
    dtype = dtype_to_write(backbone, dtype)
    _require_plain_weights(backbone)
    problems: dict[str, tuple[int, str]] = {}
    for family in _candidates(backbone, task_name, origin) if model_type is None else [get_family(model_type)]:
        try:
            values, rows = _describe(family, backbone, task, task_name)
        except (ValueError, KeyError, TypeError) as error:
            problems.setdefault(str(error), (_distance(error), family.model_type))
            continue
        with replace_folder(directory, is_huggingface, "model of the Transformers library", OWN_FILES) as folder:
            values["dtype"] = dtype
            (folder / CONFIG_FILE).write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")
            tensors = {row.name: row.write().astype(WRITTEN[dtype], copy=False) for row in rows}
            write_tensors(folder / WEIGHTS_FILE, tensors, {"format": "pt"})
            if extra is not None:
                extra(folder, dtype)
        was_of = None if origin is None else (origin.task, origin.model_type)
        if was_of == (task_name, family.model_type) and origin.left_out:
            warn_user(
                f"The files that the model was read from had further heads, which a {task_name} has no place for and "
                f"which are not written: {', '.join(origin.left_out)}."
            )
        return family.model_type
    nearest = sorted(problems, key=lambda text: problems[text][0])[:_MOST_SHOWN]
    lines = [f"{problems[text][1]}: {text}" for text in nearest]
    raise ValueError(
        "No family of the Transformers library here can express this model. The closest ones lack:\n  "
        + "\n  ".join(lines)
    )


def describe_task(task: Any) -> dict[str, Any]:
    """Returns the content of `config.json` for a task, for programs that read no weights of the library.

    Args:
        task: The task.

    Returns:
        The configuration of the first family that can express the model; its sizes alone if there is none.
    """
    backbone, name = task.backbone, type(task).__name__
    for family in _candidates(backbone, name, backbone.origin):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return _describe(family, backbone, task, name)[0]
    config = backbone.config
    return {
        "architectures": [name],
        "hidden_size": config.hidden_dim,
        "max_position_embeddings": config.max_length,
        "num_attention_heads": config.attention.num_heads,
        "num_hidden_layers": config.num_layers,
        "vocab_size": config.vocabulary_size,
        **_special_ids(task),
    }


def dtype_to_write(backbone: Backbone, dtype: str | None) -> str:
    """Returns the dtype of the weights in a file.

    Args:
        backbone: The backbone.
        dtype: The one that is asked for; None for that of the files which the backbone was read from.

    Raises:
        ValueError: If it is not one of these.
    """
    if dtype is None:
        own, origin = backbone.variable_dtype, backbone.origin
        came = "float32" if origin is None or own != "float32" else origin.dtype
        dtype = came if came != "float32" and came in WRITTEN else own
    if dtype not in WRITTEN:
        raise ValueError(f"dtype must be one of {sorted(WRITTEN)} or None, got {dtype!r}.")
    return dtype


def _distance(error: Exception) -> int:
    """How far away a family is: the more choices or weights its refusal names, the further."""
    text = str(error)
    if not isinstance(error, ValueError):
        return _FAR
    kinds = {"its ": 0, "it cannot express": 0, "This kind of model has no place for the weights": 1}
    return text.count(", ") + next((far for start, far in kinds.items() if text.startswith(start)), 10)


def _require_plain_weights(backbone: Backbone) -> None:
    if not isinstance(backbone.config, TransformerConfig):
        raise ValueError(f"The Transformers library has Transformers, this is a {type(backbone).__name__}.")
    for name, layer in named_layers(backbone).items():
        mode = getattr(layer, "quantization_mode", None)
        if mode is not None:
            raise ValueError(f"{name} is quantized ({mode}): write a model before it is quantized.")


def _candidates(backbone: Backbone, task_name: str | None, origin: Origin | None) -> list[Family]:
    """The families that have a task, that which the backbone is from before the others."""
    families, is_encoder = [], backbone.config.architecture == "encoder"
    for family in all_families(None if origin is None else origin.model_type):
        with contextlib.suppress(ValueError):
            head_of(family, task_name, is_encoder)
            families.append(family)
    if not families:
        raise ValueError(f"The Transformers library has no family here with the task {task_name}.")
    return families


def _describe(family: Family, backbone: Backbone, task: Any, task_name: str | None) -> tuple[dict[str, Any], list[Row]]:
    """Configuration and tensors of a family, if they mean the same model."""
    expressed = express(family, backbone.config, named_layers(backbone), task, task_name, backbone.origin)
    check_count(expressed.rows, backbone)
    head, rows = expressed.head, expressed.rows
    if family.needs_segments and "segment_embedding" not in expressed.layers:
        table = keras.Variable(np.zeros((1, backbone.config.embedding_dim)), trainable=False, name="embeddings")
        layers = {"segment_embedding": layer_view(embeddings=table)}
        rows = rows + table_rows(layers, {"segment_embedding": family.table_of(backbone.config)["segment_embedding"]})
    rows = rows + [Row(name, (value,), False) for name, value in _constants(family, backbone.config).items()]
    if head.architecture not in (family.architecture, family.encoder_architecture):
        rows = [dataclasses.replace(row, name=family.stored_name(row.name, head)) for row in rows]
        if head.table:
            rows += table_rows(written_head(task), head.table)
    return expressed.values, rows


def _constants(family: Family, config: TransformerConfig) -> dict[str, np.ndarray]:
    """The constants that are written, by name."""
    return {name: constant.value for constant in family.constants(config) for name in constant.names}


@dataclasses.dataclass(frozen=True)
class Expressed:
    """A backbone as a model of a family.

    Args:
        head: The head of the task there.
        values: What `config.json` says.
        layers: The layers by the names that tables use, their features in the order of the family.
        rows: The tensors of the backbone, without prefix.
    """

    head: Head
    values: dict[str, Any]
    layers: dict[str, Any]
    rows: list[Row]


def express(
    family: Family,
    config: TransformerConfig,
    layers: dict[str, Any],
    task: Any = None,
    task_name: str | None = None,
    origin: Origin | None = None,
) -> Expressed:
    """Returns a backbone as a model of a family.

    Args:
        family: The family.
        config: The configuration of the backbone.
        layers: What `named_layers` returned, or what has the shapes of these weights.
        task: Task whose head is looked at too; None for none.
        task_name: What the task is called; None for the base model.
        origin: Where the backbone came from, if anywhere.

    Raises:
        ValueError: If the family cannot express it.
    """
    head, config = head_of(family, task_name, config.architecture == "encoder"), without_dynamic(config)
    options = {} if task is None else task.options()
    values = {
        "model_type": family.model_type,
        "architectures": [head.architecture],
        # the library's own defaults are those of the first model of a family
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")),
        **({} if origin is None else origin.special_ids),
        **family.write(config),
        # of the same family they may be others than usual
        **(origin.special_ids if origin is not None and origin.model_type == family.model_type else {}),
        **_special_ids(task),
        **head.write(options),
    }
    rows = table_rows(layers, family.table_of(config))
    constants = _constants(family, config)
    shapes = {row.name: row.shape for row in rows} | {name: value.shape for name, value in constants.items()}
    reader = ConfigReader(values, shapes, values_of=constants.__getitem__)
    read = family.read(reader)
    if family.needs_segments and not config.embedding.num_segments:
        read = dataclasses.replace(read, embedding=dataclasses.replace(read.embedding, num_segments=0))
    if (config.position.layout, read.position.kind, read.position.layout) == ("interleaved", "rotary", None):
        config = dataclasses.replace(config, position=dataclasses.replace(config.position, layout=None))
        layers = with_half_split_pairs(layers, config)
        rows = table_rows(layers, family.table_of(config))
    differing = differences(read, config)
    if differing:
        raise ValueError(f"it cannot express {differing}")
    reader.finish()
    read_options = head.options(reader)
    if "projection" in head.table and "projection_bias" in options:
        read_options.setdefault("projection_bias", True)
    if head.table and task_name == "MaskedLM":
        read_options.setdefault("head_norm_epsilon", config.norm.epsilon)
    for key, value in read_options.items():
        is_same = options.get(key) == value
        if key == "labels":
            is_same = written_names(options[key]) == written_names(value)
        if not is_same and "dropout" not in key:
            raise ValueError(f"its {head.architecture} has {key}={value!r}, this task {key}={options.get(key)!r}")
    return Expressed(head, values, layers, rows)


def _special_ids(task: Any) -> dict[str, int]:
    """Ids of the special tokens that the tokenizer of a task has, by the names of the library."""
    tokenizer = getattr(task, "tokenizer", None)
    if tokenizer is None:
        return {}
    ids = {
        "pad_token_id": tokenizer.pad_id,
        "bos_token_id": tokenizer.start_id,
        "eos_token_id": tokenizer.end_id,
        "decoder_start_token_id": getattr(task.preprocessor, "decoder_start_id", None),
    }
    return {key: value for key, value in ids.items() if value is not None}


def differences(read: TransformerConfig, config: TransformerConfig) -> str:
    """Returns the choices in which two configurations differ and that change what a trained model computes.

    Args:
        read: What a file says.
        config: What it should say, whose values are named; the result is empty if they agree.
    """
    ours, theirs = effective(config), effective(read)
    # one kind of positions has no longest text
    return ", ".join(f"{key}={ours[key]!r}" for key in ours if ours[key] != theirs.get(key, ours[key]))


def effective(config: TransformerConfig) -> dict[str, Any]:
    """Returns all choices that a trained model is bound to, with what a missing one means.

    Args:
        config: A configuration.
    """
    values = config.to_dict()
    parts = ("attention", "position", "norm", "feed_forward", "embedding")
    mixer = values.pop("mixer") or {}
    flat = {key: value for key, value in values.items() if key not in parts}
    flat["mixer.layers"] = [config.has_mixer(index) for index in range(config.num_layers)]
    if any(flat["mixer.layers"]):
        mixer |= {"num_key_heads": mixer["num_key_heads"] or mixer["num_heads"]}
        mixer |= {"value_dim": mixer["value_dim"] or mixer["key_dim"]}
        flat |= {f"mixer.{key}": value for key, value in mixer.items() if key != "layers"}
    for part in parts:
        flat |= {f"{part}.{key}": value for key, value in values[part].items()}
    # these matter to training only
    training = (
        "dropout",
        "initializer_range",
        "bias_initializer",
        "scale_residual_initializer",
        "capacity_factor",
        "load_balance_weight",
        "z_loss_weight",
    )
    # no rate: it acts on what a trained model computes
    flat = {key: value for key, value in flat.items() if not key.endswith(training) or key.endswith("token_dropout")}
    if config.position.kind == "relative_bias" or all(flat["mixer.layers"]):
        del flat["max_length"]  # not in their configuration
    bias = config.attention.use_bias
    flat["attention.use_bias"] = sorted(bias) if isinstance(bias, tuple) else bias
    flat["attention.num_key_value_heads"] = config.attention.num_key_value_heads or config.attention.num_heads
    flat["attention.head_dim"] = config.head_dim
    flat["attention.value_head_dim"] = config.attention.value_head_dim or config.head_dim
    flat["attention.scale"] = round(config.attention.scale or config.head_dim**-0.5, 12)
    normalize = config.feed_forward.normalize_weights
    flat["feed_forward.normalize_weights"] = (
        config.feed_forward.experts_per_token > 1 if normalize is None else normalize
    )
    types = types_of_layers(config)
    flat["attention.window_layers"] = types
    if "sliding_attention" not in types:
        flat["attention.window"] = None
    flat["embedding.output_scale"] = round(config.embedding.output_scale or 1.0, 9)
    flat["embedding.scale"] = round(config.embedding_factor, 9)
    flat["norm.final"] = config.norm.placement != "post" if config.norm.final is None else config.norm.final
    flat["position.layout"] = config.position.layout or "half_split"
    flat["position.local_base"] = config.position.local_base or config.position.base
    position = config.position_in_attention
    flat["position.layers"] = [position.acts_in_layer(index) for index in range(config.num_layers)]
    network = config.feed_forward
    flat["feed_forward.layers"] = [network.has_network(index) for index in range(config.num_layers)]
    flat["feed_forward.expert_layers"] = [network.has_experts(index) for index in range(config.num_layers)]
    flat["feed_forward.dense_intermediate_dim"] = network.dense_intermediate_dim or network.intermediate_dim
    for name, same in (
        ("num_decoder_layers", config.num_layers),
        ("decoder_num_heads", config.attention.num_heads),
        ("decoder_intermediate_dim", network.intermediate_dim),
    ):
        flat[name] = getattr(config, name) or same
    if all(flat["mixer.layers"]):  # no layer has attention
        flat = {key: value for key, value in flat.items() if not key.startswith("attention.")}
    return flat
