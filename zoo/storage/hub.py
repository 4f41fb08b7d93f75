"""Models of the Hugging Face hub, fetched once and kept in its cache."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

PREFIX = "hf://"
# no pickled weights, no code
OF_TOKENIZER = ("*.json", "*.txt", "*.model", "*.jinja", "*.spm")
# a saved model is compared with its weights, also where they are not loaded
WITHOUT_WEIGHTS = (*OF_TOKENIZER, "*.weights.h5")
PATTERNS = (*WITHOUT_WEIGHTS, "*.safetensors")
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
_ADDRESS = re.compile(r"hf://(?P<name>[\w.-]+/[\w.-]+|[\w.-]+)(/(?P<file>[\w./-]+\.gguf))?(@(?P<revision>[\w./-]+))?")
_FIRST_PART = re.compile(r"-00001-of-(\d{5})\.gguf$")
# what the errors of the hub's library mean, by their names: they have changed their modules
_CAUSES = {
    "GatedRepoError": "Its owner asks for an agreement: accept it on https://huggingface.co/{name} and log in with "
    "`hf auth login`.",
    "RepositoryNotFoundError": "The hub has no model of this name that you may see: look at the name, or log in with "
    "`hf auth login` if it is private.",
    "RevisionNotFoundError": "The model has no such revision.",
    "EntryNotFoundError": "The model has no such file.",
    "OfflineModeIsEnabled": "It is not in the cache, and HF_HUB_OFFLINE is set: fetch it once with "
    "`hf download {name}`, on this machine or for its cache.",
    "LocalEntryNotFoundError": "It is not in the cache, and the hub cannot be reached (or HF_HUB_OFFLINE is set): "
    "fetch it once with `hf download {name}`, where there is a network.",
}


class HubError(OSError):
    """A model could not be fetched from the hub, or not be uploaded."""


def fetch(address: str, patterns: Collection[str] = PATTERNS) -> Path:
    """Returns the local directory of a model on the hub, or its GGUF file, which is fetched if needed.

    `huggingface_hub` keeps it in its cache, shows the progress and goes on with what was interrupted. Its environment
    variables count: with `HF_HUB_OFFLINE=1` only the cache is used, `HF_ENDPOINT` names a mirror, `HF_TOKEN` logs in.
    Only configurations, tokenizers and safetensors files, or the files of a preset, are fetched. Of a GGUF file all
    parts are.

    Args:
        address: `hf://owner/name` for a directory or `hf://owner/name/file.gguf` for a file, with `@revision` behind it
            for a branch, tag or commit.
        patterns: The files that are needed: `PATTERNS`, `WITHOUT_WEIGHTS` or `OF_TOKENIZER`.

    Raises:
        ValueError: If the address has another form.
        HubError: If there is no such model, if it needs an agreement, or if it is not in the cache and there is no
            network.
        ImportError: If `huggingface_hub` is not installed.

    Example:

    >>> fetch("hf://openai-community/gpt2")
    PosixPath('.../models--openai-community--gpt2/snapshots/...')
    """
    name, file, revision = _parse(address)
    hub = _library(address)
    try:
        if file is not None:
            return _fetch_file(hub, name, file, revision)
        folder = Path(
            hub.snapshot_download(
                name, revision=revision, allow_patterns=list(patterns), ignore_patterns=list(LEFT_OUT)
            )
        )
        found = [] if (folder / "config.json").is_file() else _gguf_files(hub, name, revision)
    except Exception as error:  # of the library, of what it uses for HTTP: their kinds change
        raise HubError(f"{address} could not be fetched. {_cause(error, name)}") from error
    if found:
        raise HubError(f"{address} has no config.json, but GGUF files: name one of them, {', '.join(found)}.")
    return folder


def _fetch_file(hub: Any, name: str, file: str, revision: str | None) -> Path:
    """The path of a file, or of the first one of several parts, which are fetched too."""
    first = _FIRST_PART.search(file)
    count = int(first[1]) if first else 1
    stem = file[: first.start()] if first else ""
    files = [f"{stem}-{part:05}-of-{count:05}.gguf" for part in range(1, count + 1)] if first else [file]
    return [Path(hub.hf_hub_download(name, each, revision=revision)) for each in files][0]


def _gguf_files(hub: Any, name: str, revision: str | None) -> list[str]:
    """The addresses of the GGUF files of a repository: one of each model that has several parts; none offline."""
    if hub.constants.HF_HUB_OFFLINE:
        return []
    found = [each for each in hub.HfApi().list_repo_files(name, revision=revision) if each.endswith(".gguf")]
    at = "" if revision is None else f"@{revision}"
    parts = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
    return [f"{PREFIX}{name}/{each}{at}" for each in sorted(found) if not parts.search(each)]


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
    name, _, revision = _parse(address)
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
    if _parse(address)[1] is not None:
        raise ValueError(f"The address of a model that is written must be owner/name[@revision], got {address!r}.")
    return address


def is_address(address: str) -> bool:
    """Whether a text is `hf://owner/name` or `hf://owner/name/file.gguf`, perhaps with `@revision` behind it.

    Args:
        address: The text.
    """
    return _ADDRESS.fullmatch(address) is not None


def _parse(address: str) -> tuple[str, str | None, str | None]:
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise ValueError(
            "The address of a model of the hub must be hf://owner/name[@revision] or "
            f"hf://owner/name/file.gguf[@revision], got {address!r}."
        )
    return match["name"], match["file"], match["revision"]


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
