"""Models of the Hugging Face hub, fetched once and kept in its cache."""

import re
from pathlib import Path
from typing import Any

PREFIX = "hf://"
# no pickled weights, no code
PATTERNS = ("*.json", "*.txt", "*.model", "*.jinja", "*.spm", "*.safetensors", "*.weights.h5")
# the same weights a second time
LEFT_OUT = ("consolidated*", "original/*", "onnx/*", "openvino/*", "coreml/*", "rust_model*")
# what an earlier model has left there would be read with the files of the new one, or in their place
REPLACED = (
    *(
        "config.json",
        "adapter_config.json",
        "adapter_model.safetensors",
        "task_options.json",
        "model*.safetensors",
        "model*.safetensors.index.json",
        "model*.weights.h5",
        "task.json",
        "task.weights.h5",
    ),
    *("generation_config.json", "chat_template.*", "modules.json", "*sentence_*.json", "config_sentence_*.json"),
    *("tokenizer*", "vocab*", "merges.txt", "added_tokens.json", "special_tokens_map.json", "*.model", "*.spm"),
)
_ADDRESS = re.compile(r"hf://(?P<name>[\w.-]+/[\w.-]+|[\w.-]+)(@(?P<revision>[\w./-]+))?")
# what the errors of the hub's library mean, by their names: they have changed their modules
_CAUSES = {
    "GatedRepoError": "Its owner asks for an agreement: accept it on https://huggingface.co/{name} and log in with "
    "`hf auth login`.",
    "RepositoryNotFoundError": "The hub has no model of this name that you may see: look at the name, or log in with "
    "`hf auth login` if it is private.",
    "RevisionNotFoundError": "The model has no such revision.",
    "OfflineModeIsEnabled": "It is not in the cache, and HF_HUB_OFFLINE is set: fetch it once with "
    "`hf download {name}`, on this machine or for its cache.",
    "LocalEntryNotFoundError": "It is not in the cache, and the hub cannot be reached (or HF_HUB_OFFLINE is set): "
    "fetch it once with `hf download {name}`, where there is a network.",
}


class HubError(OSError):
    """A model could not be fetched from the hub, or not be uploaded."""


def fetch(address: str) -> Path:
    """Returns the local directory of a model on the hub, which is fetched if needed.

    `huggingface_hub` keeps it in its cache. With the environment variable `HF_HUB_OFFLINE=1` only the cache is used.
    Only configurations, tokenizers and safetensors files, or the files of a preset, are fetched.

    Args:
        address: `hf://owner/name`, or `hf://owner/name@revision` for a branch, tag or commit.

    Raises:
        ValueError: If the address has another form.
        HubError: If there is no such model, if it needs an agreement, or if it is not in the cache and there is no
            network.
        ImportError: If `huggingface_hub` is not installed.

    Example:

    >>> fetch("hf://openai-community/gpt2")
    PosixPath('.../models--openai-community--gpt2/snapshots/...')
    """
    name, revision = _parse(address)
    hub = _library(address)
    try:
        return Path(
            hub.snapshot_download(
                name, revision=revision, allow_patterns=list(PATTERNS), ignore_patterns=list(LEFT_OUT)
            )
        )
    except Exception as error:  # of the library, of what it uses for HTTP: their kinds change
        raise HubError(f"{address} could not be fetched. {_cause(error, name)}") from error


def push(folder: Path, address: str, *, private: bool | None = None, message: str = "Upload model") -> str:
    """Uploads the files of a folder to a model on the hub, in one commit.

    The commit also removes weights, tokenizers and settings of an existing model that the folder does not have. Other
    files are kept.

    Args:
        folder: The folder.
        address: `owner/name` or `hf://owner/name`, with `@revision` at the end for a branch. The repository is created
            if it does not exist.
        private: Whether a new repository is private; None for the default of the owner's account.
        message: First line of the commit message.

    Returns:
        `hf://owner/name@commit`, an address for `fetch`.

    Raises:
        ValueError: If the address has another form.
        HubError: If the upload fails.
        ImportError: If `huggingface_hub` is not installed.

    Example:

    >>> push(Path("exported"), "me/model")
    'hf://me/model@3f1c...'
    """
    address = require_address(address)
    name, revision = _parse(address)
    hub = _library(address)
    try:
        api = hub.HfApi()
        api.create_repo(name, private=private, exist_ok=True)
        if revision is not None:
            api.create_branch(name, branch=revision, exist_ok=True)
        done = api.upload_folder(
            repo_id=name,
            folder_path=str(folder),
            revision=revision,
            commit_message=message,
            ignore_patterns=[".*"],
            delete_patterns=list(REPLACED),
        )
    except Exception as error:
        is_offline = type(error).__name__ == "OfflineModeIsEnabled"
        cause = "HF_HUB_OFFLINE is set: unset it to write." if is_offline else _cause(error, name)
        raise HubError(f"{address} could not be written. {cause}") from error
    return f"{PREFIX}{name}@{done.oid}"


def require_address(address: str) -> str:
    """Returns the address of a model that is to be written, with `hf://` before it.

    Args:
        address: `owner/name`, or `hf://owner/name`, with `@revision` behind it for a branch.

    Raises:
        ValueError: If it has another form.
    """
    address = address if str(address).startswith(PREFIX) else f"{PREFIX}{address}"
    _parse(address)
    return address


def is_address(address: str) -> bool:
    """Whether a text is `hf://owner/name`, perhaps with `@revision` behind it.

    Args:
        address: The text.
    """
    return _ADDRESS.fullmatch(address) is not None


def _parse(address: str) -> tuple[str, str | None]:
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise ValueError(f"The address of a model of the hub must be hf://owner/name[@revision], got {address!r}.")
    return match["name"], match["revision"]


def _library(address: str) -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError(f"{address} needs the package huggingface_hub: pip install huggingface_hub") from error
    return huggingface_hub


def _cause(error: Exception, name: str) -> str:
    kinds = [kind.__name__ for kind in type(error).__mro__]
    found = next((_CAUSES[kind] for kind in kinds if kind in _CAUSES), None)
    lines = str(error).strip().splitlines() or [""]
    return f"{kinds[0]}: {lines[0][:300]}" if found is None else found.format(name=name)
