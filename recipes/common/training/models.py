"""What a run starts from: a new model or a saved one, which of its weights train."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import layers
import zoo
from recipes.common.config import differences, setting, value_of
from recipes.common.errors import ConfigError, errors_of, shown, warnings_of
from recipes.common.run_folder import RunFolder
from recipes.common.saved_models import require_trained
from recipes.common.training.precision import advise_policy
from recipes.common.training.tokenizers import TokenizerConfig, load_or_train_tokenizer

# by the end of the name: beyond all models, and what would take longer to build than anybody waits
_MOST = {"num_layers": 1000, "num_decoder_layers": 1000, "max_length": 1 << 20, "": 1 << 24}
AnyTask = TypeVar("AnyTask", bound="zoo.Task")


@dataclasses.dataclass(frozen=True)
class LoraConfig:
    """Low-rank updates, which then train in place of the backbone's weights (Hu et al. 2022)."""

    rank: int | None = setting(
        None, "Rank of the low-rank updates. null: no updates, and all weights train.", least=1, most=1 << 16
    )
    alpha: float | None = setting(None, "The updates are multiplied by alpha / rank. null: the factor is 1.", above=0)
    dropout: float = setting(0.0, "Dropout rate of the inputs of the updates in training.", least=0, below=1)
    targets: list[str] = setting(
        ["query", "value"],
        "Layers that get updates: query, key, value, output, gate, up, down, ..., all (of the blocks), or paths.",
    )
    blocks: list[int] | None = setting(
        None, "Blocks that get updates, from 0, or from -1 for the last. null: all blocks of each stack."
    )
    dora: bool = setting(
        False, "The updates also learn the norm of each column of the kernels (DoRA, Liu et al. 2024)."
    )
    modules_to_save: list[str] = setting(
        [],
        "Parts of the backbone whose own weights train too: token_embedding, final_norm, block_0/attention_norm, ...",
    )


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The model: a new one by preset and options, or a saved one by start_from, and which of its weights train."""

    preset: str = setting(
        "modern_encoder_tiny", "Name of the preset of a new model, one of zoo.list_presets().", offers="presets"
    )
    options: dict[str, Any] | None = setting(
        None, "Choices that differ from the preset. null: none. A saved model takes dropout and max_length."
    )
    start_from: str | None = setting(
        None,
        "Model to start from, with its tokenizer: the folder of a saved model or of the "
        "Transformers library, an adapter of the PEFT library, a run folder, hf://owner/name, or a "
        "preset with published weights.",
        offers="paths",
    )
    lora: LoraConfig = LoraConfig()
    freeze: list[str] = setting(
        [], "Parts that do not train: backbone, embeddings, encoder, block_0, decoder/block_1, ..."
    )
    quantize: Literal["int8", "int4"] | None = setting(
        None,
        "int8: stores the weights of the backbone in 8 bits and trains low-rank updates (QLoRA, Dettmers et al. 2023).",
    )
    rematerialize: bool = setting(
        False, "Whether the backward pass recomputes blocks, which saves memory and takes time."
    )

    @property
    def choices(self) -> dict[str, Any]:
        """What is given by `options`; without it, for a new model of the recipe's preset, what the recipe chooses."""
        return value_of(self, "options")


@dataclasses.dataclass(frozen=True)
class HeadConfig:
    """The head of a classifier; recipes derive from it."""

    pooling: Literal["first", "mean", "max", "last", "pooler"] | None = setting(
        None,
        "How token vectors become one vector. null: as in the classifier started from, or mean for a new one.",
    )
    head_dropout: float | None = setting(
        None,
        "Dropout rate before the last linear layer. null: that of the classifier started from, or 0.1 for a new one.",
        least=0,
        below=1,
    )


def check_model(config: Any) -> None:
    """Checks the group `model` of a configuration, before data are read.

    Args:
        config: The configuration of a recipe, with the groups `model`, `training` and, where it trains one,
            `tokenizer`.

    Raises:
        ConfigError: If a value is out of range, has no effect beside another one, or does not go together with it.
        DataError: If `model.start_from` is a run that has not been trained.
    """
    model, lora = config.model, config.model.lora
    changed = differences(type(config)(), config)
    if model.start_from is not None:
        require_trained(model.start_from)
        for name, (default, value) in changed.items():
            if name == "model.preset" or name.startswith("tokenizer."):
                raise ConfigError(
                    f"{name} must be {shown(default)} with model.start_from, whose model and tokenizer are taken, got "
                    f"{shown(value)}"
                )
    elif model.preset is not None:
        check_architecture(model.preset, model.choices)
    if lora.rank is None:
        for name in ("alpha", "dropout", "targets", "blocks", "dora", "modules_to_save"):
            if f"model.lora.{name}" in changed:
                default, value = changed[f"model.lora.{name}"]
                raise ConfigError(
                    f"model.lora.{name} must be {shown(default)} without model.lora.rank, got {shown(value)}"
                )
        if model.quantize is not None:
            raise ConfigError(
                f"model.quantize must be null without model.lora.rank, got {model.quantize!r}: quantized weights do "
                "not train; a trained model is quantized by Task.quantize"
            )
    if model.quantize == "int4":
        raise ConfigError(
            "model.quantize must be 'int8', got 'int4': what 4 bits cost in quality has not been measured with these "
            "models, and Keras stores no 4-bit numbers of the kind that QLoRA was measured with (NormalFloat)"
        )
    if lora.rank is not None and config.training.average_checkpoints != 1:
        raise ConfigError(
            "training.average_checkpoints must be 1 with model.lora.rank, got "
            f"{config.training.average_checkpoints}: the product of two averages is no average of products"
        )


def check_architecture(preset: str, options: dict[str, Any]) -> None:
    """Checks the choices of a model before data are read, and that this machine can hold it.

    Args:
        preset: Name of the architecture.
        options: Choices that differ from the preset.

    Raises:
        ConfigError: If there is no such preset or choice, a number is beyond all models, or the weights with their
            gradients and the optimizer's two moments need more than the memory of this machine.
    """
    if "vocabulary_size" in options:
        raise ConfigError("model.options must not hold vocabulary_size: the tokenizer decides about it")
    with errors_of("model"):
        config = zoo.preset_config(preset, **options)
        sizes = zoo.config.minimum_weight_counts(config)
    for name, value in _numbers(config.to_dict()):
        most = next((most for end, most in _MOST.items() if name.endswith(end)))
        if value > most:
            raise ConfigError(f"model.options: {name} must be at most {most:,}, got {shown(value)}")
    needed, memory = 16 * sum(sizes.values()), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ConfigError(
            f"model.options: {', '.join(sizes)} take at least {needed / 1e9:,.0f} GB in training, this machine has "
            f"{memory / 1e9:,.0f} GB"
        )


def _numbers(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, int]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{name}.")
        for number in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(number, int):
                yield prefix + name, number


def make_or_load_task(
    kind: type[AnyTask],
    model: ModelConfig,
    tokenizer: TokenizerConfig,
    run: RunFolder,
    texts: Callable[[], Iterable[str]],
    *,
    mask_token: str | None = None,
    end_token: str = "<|endoftext|>",
    special_tokens: Sequence[str] = (),
    defaults: Mapping[str, Any] | None = None,
    **task_options: Any,
) -> AnyTask:
    """Returns the task that a run trains, new or on a saved model, and says which of its weights train.

    Args:
        kind: The class.
        model: The group `model`.
        tokenizer: The group `tokenizer`, for a new model.
        run: The run folder, which notes the saved model.
        texts: Gives what the tokenizer of a new model is trained on.
        mask_token, end_token, special_tokens: Of that tokenizer, see `load_or_train_tokenizer`.
        defaults: Choices of a new model that `model.options` may replace.
        **task_options: Arguments of the task.

    Raises:
        ConfigError: If there is no such preset, choice or model, the saved one does not fit the task or its weights
            cannot train, or something that is named is not in it.
    """
    if model.start_from is not None:
        with zoo.distribution.scope():
            task = load_start(kind, model, **task_options)
        name = run.start = model.start_from
    else:
        with zoo.distribution.first_process_first("tokenizer"):
            trained = load_or_train_tokenizer(
                tokenizer, run, texts, mask_token=mask_token, end_token=end_token, special_tokens=special_tokens
            )
        with zoo.distribution.scope():
            task = make_task(kind, model.preset, trained, {**(defaults or {}), **model.choices}, **task_options)
        name = model.preset
    print(f"{name}: {task.count_params():,} parameters")
    advice = advise_policy(task.backbone.config.hidden_dim)
    if advice:
        print(advice)
    with zoo.distribution.scope():
        adapt(task, model)
    return task


def make_task(
    kind: type[AnyTask], preset: str, tokenizer: Any, options: Mapping[str, Any], **task_options: Any
) -> AnyTask:
    """Returns a task with initial weights.

    Args:
        kind: The class.
        preset: Name of the architecture.
        tokenizer: The tokenizer, which decides about the size of the vocabulary.
        options: Choices that differ from the preset.
        **task_options: Arguments of the task.

    Raises:
        ConfigError: If there is no such preset or choice.
    """
    with errors_of("model"):
        config = zoo.preset_config(preset, vocabulary_size=tokenizer.vocabulary_size, **options)
        return kind(zoo.Backbone.from_config(config), tokenizer, **task_options)


def load_start(kind: type[AnyTask], model: ModelConfig, **task_options: Any) -> AnyTask:
    """Returns the task on the backbone and tokenizer of a saved model, as it is when the training of a run begins.

    Its active low-rank updates are merged, and its weights are in 8 bits where `model.quantize` asks for it.

    Args:
        kind: The class.
        model: The group `model`.
        **task_options: Arguments of the task.

    Raises:
        ConfigError: If there is no such model, it does not fit the task or its weights cannot train.
    """
    directory = model.start_from
    with errors_of("model.start_from"), warnings_of("model.start_from"):
        task = kind.from_preset(directory, **task_options, **model.choices)
        task.preprocessor.require_tokenizer("training")
    adapters, mode = task.backbone.adapters, task.adaptation.mode
    if mode is not None and (mode != model.quantize or len(adapters)):
        raise ConfigError(
            f"model.start_from must be a model whose weights can train, those of {directory} are stored in {mode}"
        )
    if adapters.active:
        print(f"low-rank updates are merged: {', '.join(adapters.active)}")
        task.merge_lora()
    if len(adapters):
        task.remove_adapters(*adapters)  # those that were not active
    _quantize(task, model)
    return task


def count_trained(task: zoo.Task) -> int:
    """Returns how many numbers of a task are trained.

    Args:
        task: The task.
    """
    return sum(math.prod(weight.shape) for weight in task.trainable_weights)


def _quantize(task: zoo.Task, model: ModelConfig) -> None:
    if model.quantize is not None and task.adaptation.mode is None:
        with errors_of("model.quantize"):
            print(task.quantize(model.quantize, head=False))


def head_options(model: Any) -> dict[str, Any]:
    """Returns `pooling` and `head_dropout` of a classifier; none that a classifier to start from brings itself.

    Args:
        model: The group `model`, with these keys.

    Raises:
        ConfigError: If there is no model to start from.
    """
    given = {name: getattr(model, name) for name in ("pooling", "head_dropout") if getattr(model, name) is not None}
    if model.start_from is not None:
        with errors_of("model.start_from"):
            reader, source = zoo.storage.find_reader(model.start_from)
        with contextlib.suppress(ValueError):  # files may name no task
            if reader.task_of(source) == "TextClassifier":
                return given
    return {"pooling": "mean", "head_dropout": 0.1, **given}


def adapt(task: zoo.Task, model: ModelConfig) -> None:
    """Does what `quantize`, `lora`, `freeze` and `rematerialize` ask for, and says so.

    Args:
        task: The task.
        model: The group `model`.

    Raises:
        ConfigError: If something that is named is not in the task.
    """
    lora = model.lora
    _quantize(task, model)
    if lora.rank is not None:
        with errors_of("model.lora"):
            print(
                task.enable_lora(
                    lora.rank,
                    alpha=lora.alpha,
                    dropout=lora.dropout,
                    targets=lora.targets,
                    blocks=lora.blocks,
                    dora=lora.dora,
                    modules_to_save=lora.modules_to_save,
                )
            )
    if model.freeze:
        # what is frozen by the updates already is an error
        with errors_of("model.freeze"):
            print(task.freeze(*model.freeze))
    if model.rematerialize:
        inside = layers.keras_internals.sublayers(task)
        blocks = [layer for layer in inside if isinstance(layer, layers.TransformerBlock)]
        if not blocks:
            raise ConfigError("model.rematerialize must be false for a model without Transformer blocks, got true")
        for block in blocks:
            block.remat = True
