"""The file `adapter_config.json` of the PEFT library, read and written."""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from zoo.config.checks import require
from zoo.storage import quote, quote_key, read_json, to_dataclass

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
# by our tasks
TASK_TYPES = {
    "CausalLM": "CAUSAL_LM",
    "QuestionAnswerer": "QUESTION_ANS",
    "Seq2SeqLM": "SEQ_2_SEQ_LM",
    "TextClassifier": "SEQ_CLS",
    "TextEmbedder": "FEATURE_EXTRACTION",
    "TokenClassifier": "TOKEN_CLS",
}
# bookkeeping, how training began, and how kernels are stored in memory there
_WITHOUT_EFFECT = (
    *("auto_mapping", "corda_config", "eva_config", "fan_in_fan_out", "inference_mode", "loftq_config"),
    *("lora_ga_config", "megatron_core", "peft_version", "qalora_group_size", "runtime_config"),
)
# initial values that leave the weights of the model as they are: with others the file is no use without theirs
_INITIAL_VALUES = (True, False, None, "eva", "gaussian", "orthogonal")
_MOST_CHARACTERS, _MOST_REPETITIONS = 1000, 3


@dataclasses.dataclass(frozen=True)
class AdapterConfig:
    """What changes the outputs of a model with low-rank updates; names and meanings are those of PEFT's `LoraConfig`.

    Args:
        r: Rank of the updates.
        lora_alpha: They are multiplied by `lora_alpha / r`.
        use_rslora: Whether by `lora_alpha / sqrt(r)` instead (Kalajdzievski 2023).
        use_dora: Whether updates have a magnitude for each output too (Liu et al. 2024).
        lora_dropout: Rate at which inputs of updates are dropped in training.
        rank_pattern, alpha_pattern: Other ranks and alphas by regular expressions for ends of names of modules.
        target_modules: Names, or ends of names, of the modules with updates; or a regular expression for them.
        exclude_modules, layers_to_transform, layers_pattern: Which of these have none after all.
        modules_to_save: Ends of names of modules that are in the file whole: the head, and others.
        task_type: What PEFT calls the task.
        base_model_name_or_path: The model that the updates are for.
        revision: Branch, tag or commit of that model on the hub.
    """

    r: int = 8
    lora_alpha: float = 8
    use_rslora: bool = False
    use_dora: bool = False
    lora_dropout: float = 0.0
    rank_pattern: dict[str, int] | None = None
    alpha_pattern: dict[str, float] | None = None
    target_modules: list[str] | str | None = None
    exclude_modules: list[str] | str | None = None
    layers_to_transform: list[int] | int | None = None
    layers_pattern: list[str] | str | None = None
    modules_to_save: list[str] | None = None
    task_type: str | None = None
    base_model_name_or_path: str | None = None
    revision: str | None = None

    def alpha_of(self, module: str, rank: int) -> float:
        """Returns what the update of a module is multiplied by, times its rank.

        Args:
            module: Name of the module.
            rank: Its rank.

        Raises:
            ValueError: If the rank is none that the file names, or a pattern is beyond what is tried.
        """
        ranks = {self.r, *(self.rank_pattern or {}).values()}
        if rank not in ranks:
            raise ValueError(f"r or rank_pattern must have the rank {rank} of {module}, got {sorted(ranks)}.")
        patterns = self.alpha_pattern or {}
        alpha = next((patterns[text] for text in patterns if _ends_with(module, text)), self.lora_alpha)
        return alpha * rank**0.5 if self.use_rslora else alpha

    def saves(self, module: str) -> bool:
        """Returns whether `modules_to_save` has a module, or one around it.

        Args:
            module: Name of the module.
        """
        parts = module.split(".")
        around = [".".join(parts[: index + 1]) for index in range(len(parts))]
        return any(name.endswith(end) for name in around for end in self.modules_to_save or ())

    def check_targets(self, adapted: Iterable[str], all_modules: Iterable[str]) -> None:
        """Checks that updates are there for the modules that are named, and for no others.

        What a regular expression means is not looked at: the tensors of the file decide.

        Args:
            adapted: Names of the modules with updates.
            all_modules: Names of all modules that could have some, with the same beginnings.

        Raises:
            ValueError: If one is missing or has no place.
        """
        targets = self.target_modules
        if not isinstance(targets, list):
            return
        adapted = set(adapted)
        known = set(targets)
        for module in sorted(adapted):
            if not _ends(module) & known:
                raise ValueError(f"target_modules must name {module}, which has an update, got {quote(targets)}.")
        if self.exclude_modules or self.layers_pattern or self.layers_to_transform is not None:
            return
        for module in all_modules:
            if module not in adapted and _ends(module) & known and not self.saves(module):
                raise ValueError(f"target_modules must not name {module}, which has no update in {WEIGHTS_FILE}.")


def read_adapter_config(directory: Path) -> AdapterConfig:
    """Returns what the `adapter_config.json` of a directory says.

    Args:
        directory: The directory.

    Raises:
        ValueError: If it is no adapter of low-rank updates, or a key that changes its outputs is not supported.
        FileNotFoundError: If there is none.
    """
    path = directory / CONFIG_FILE
    values = read_json(path)
    kind = values.pop("peft_type", None)
    require(kind == "LORA", f"{path}: peft_type", kind, "'LORA', the only kind of adapters that is read")
    initial = values.pop("init_lora_weights", True)
    if initial not in _INITIAL_VALUES:
        raise ValueError(
            f"{path}: init_lora_weights must be one of {_INITIAL_VALUES}, got {quote(initial)}: it changes the weights "
            "of the model too. Convert the adapter to plain LoRA with PEFT (path_initial_model_for_weight_conversion)."
        )
    bias = values.pop("bias", "none")
    require(bias == "none", f"{path}: bias", bias, "'none' (updates of biases cannot be switched off)")
    fields = {field.name for field in dataclasses.fields(AdapterConfig)}
    for key in [key for key in values if key not in fields]:
        value = values.pop(key)
        # whatever else PEFT has is switched on by its key
        if key not in _WITHOUT_EFFECT and value not in (None, False, [], {}):
            raise ValueError(
                f"{path}: {quote_key(key)} must be false or null, got {quote(value)}: it is not supported."
            )
    config = to_dataclass(AdapterConfig, values, str(path))
    for name, ranks in (("r", [config.r]), ("rank_pattern", (config.rank_pattern or {}).values())):
        require(all(rank >= 1 for rank in ranks), f"{path}: {name}", list(ranks), "at least 1")
    for name, alphas in (("lora_alpha", [config.lora_alpha]), ("alpha_pattern", (config.alpha_pattern or {}).values())):
        require(all(alpha > 0 for alpha in alphas), f"{path}: {name}", list(alphas), "above 0")
    rate = config.lora_dropout
    require(0 <= rate < 1, f"{path}: lora_dropout", rate, "at least 0 and below 1")
    return config


def written_config(
    updates: Mapping[str, tuple[int, float]],
    all_modules: Iterable[str],
    *,
    dropout: float,
    dora: bool,
    task: str,
    modules_to_save: list[str],
    base_model: str | None,
    fan_in_fan_out: bool,
) -> dict[str, Any]:
    """Returns the content of `adapter_config.json`.

    Args:
        updates: Rank and alpha of the updates by the names of their modules.
        all_modules: Names of all modules of the model: what an end of a name could mean.
        dropout: Rate at which inputs of updates are dropped in training.
        dora: Whether updates have a magnitude for each output too.
        task: Name of our task.
        modules_to_save: Names of the modules that are in the file whole.
        base_model: The model that the updates are for.
        fan_in_fan_out: Whether modules store kernels as `(inputs, outputs)`.
    """
    ranks, alphas = ({module: pair[index] for module, pair in updates.items()} for index in (0, 1))
    rank, alpha = (Counter(values.values()).most_common(1)[0][0] for values in (ranks, alphas))
    return {
        "peft_type": "LORA",
        "task_type": TASK_TYPES.get(task),
        "base_model_name_or_path": base_model,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": _plain(alpha),
        "rank_pattern": {_pattern(module): value for module, value in ranks.items() if value != rank},
        "alpha_pattern": {_pattern(module): _plain(value) for module, value in alphas.items() if value != alpha},
        "lora_dropout": dropout,
        "use_dora": dora,
        "target_modules": short_names(updates, all_modules),
        "modules_to_save": modules_to_save or None,
        "fan_in_fan_out": fan_in_fan_out,
        "bias": "none",
    }


def short_names(chosen: Iterable[str], all_modules: Iterable[str]) -> list[str]:
    """Returns ends of names that mean some modules and no others; the whole names where there are none.

    Args:
        chosen: Names of the modules.
        all_modules: Names of all modules.

    Example:

    >>> short_names(["0.query", "1.query", "0.key"], ["0.query", "1.query", "0.key", "1.key"])
    ['0.key', 'query']
    """
    chosen = set(chosen)
    others = {name.rpartition(".")[2] for name in set(all_modules) - chosen}
    return sorted({name if name.rpartition(".")[2] in others else name.rpartition(".")[2] for name in chosen})


def _plain(value: float) -> int | float:
    return int(value) if value == int(value) else value


def _pattern(module: str) -> str:
    return re.escape(module).replace("\\_", "_")


def _ends(module: str) -> set[str]:
    """A name and all ends of it that begin behind a dot."""
    parts = module.split(".")
    return {".".join(parts[index:]) for index in range(len(parts))}


def _ends_with(module: str, pattern: str) -> bool:
    """Whether a regular expression of a file means the end of a name; those that could take for ever are refused."""
    # each of them is one more choice for every place in the name
    choices = max(len(re.findall(r"[*+?{]", pattern)), pattern.count("("))
    repeats_groups = re.search(r"\)[*+?{]|\\[0-9]|\(\?P=", pattern)
    if len(pattern) > _MOST_CHARACTERS or choices > _MOST_REPETITIONS or repeats_groups:
        raise ValueError(
            f"alpha_pattern must have expressions of at most {_MOST_CHARACTERS} characters, {_MOST_REPETITIONS} "
            f"repetitions and {_MOST_REPETITIONS} groups, none of which is repeated, got {quote(pattern)}."
        )
    try:
        return re.match(rf"(.*\.)?({pattern})$", module) is not None
    except re.error as error:
        raise ValueError(f"alpha_pattern must have regular expressions, got {quote(pattern)} ({error}).") from None
