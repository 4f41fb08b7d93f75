"""What the Sentence Transformers library stores with a cross-encoder: what becomes of its logits."""

from pathlib import Path
from typing import Any

from zoo.huggingface.labels import MODULES
from zoo.huggingface.sentence_modules import (
    MODEL_FILE,
    MODULES_FILE,
    SCORER,
    read_model_settings,
    read_modules,
    write_modules,
)
from zoo.storage import quote, require_type
from zoo.storage.user_warnings import warn_user


def is_cross_encoder(directory: Path) -> bool:
    """Returns whether a directory holds a cross-encoder of that library with its list of modules.

    Args:
        directory: The directory.

    Raises:
        ValueError: If it has other modules than the model.
    """
    modules, kind = read_modules(directory), read_model_settings(directory).get("model_type")
    if not modules or kind != SCORER:
        return False
    kinds = [module.kind for module in modules]
    if kinds != ["Transformer"]:
        raise ValueError(
            f"{directory / MODULES_FILE}: type must be Transformer alone in a cross-encoder, got {quote(kinds)}."
        )
    return True


def read_pair_activation(directory: Path) -> str | None:
    """Returns the name of the function that a cross-encoder applies to its logits; None where it is not stored.

    Args:
        directory: The directory.

    Raises:
        ValueError: If it has other modules than the model, or the name is no text.
    """
    if not is_cross_encoder(directory):
        return None
    settings = read_model_settings(directory)
    name, prompts = settings.get("activation_fn"), settings.get("prompts", {})
    require_type(name, str | None, f"{directory / MODEL_FILE}: activation_fn")
    require_type(prompts, dict[str, str], f"{directory / MODEL_FILE}: prompts")
    if any(prompts.values()):
        warn_user(
            f"{directory / MODEL_FILE}: prompts, which a TextClassifier does not put before texts: {quote(prompts)}."
        )
    return name


def write_cross_encoder(directory: Path, options: dict[str, Any]) -> None:
    """Writes what makes a directory a cross-encoder.

    Args:
        directory: The directory of the model.
        options: What `options()` of a `TextClassifier` of pairs returned.
    """
    settings: dict[str, Any] = {
        "activation_fn": f"torch.nn.modules.{MODULES[options['problem']]}",
        "prompts": {},
        "default_prompt_name": None,
    }
    write_modules(directory, SCORER, ["Transformer"], settings)
