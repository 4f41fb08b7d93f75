"""Models of the Hugging Face hub, fetched once and kept in its cache."""

import re
from pathlib import Path

PREFIX = "hf://"
# no pickled weights, no code
PATTERNS = ("*.json", "*.txt", "*.model", "*.jinja", "*.safetensors")
_ADDRESS = re.compile(r"hf://(?P<name>[\w.-]+/[\w.-]+|[\w.-]+)(@(?P<revision>[\w./-]+))?")


def fetch(address: str) -> Path:
    """Returns the directory of a model of the hub, fetched if it is not there yet.

    `huggingface_hub` keeps it in its cache; with the environment variable `HF_HUB_OFFLINE=1` it takes it from there
    without asking. Only configurations, tokenizers and safetensors files are fetched.

    Args:
        address: `hf://owner/name`, with `@revision` behind it for a branch, tag or commit.

    Raises:
        ValueError: If the address has another form.
        ImportError: If `huggingface_hub` is not installed.

    Example:

    >>> fetch("hf://openai-community/gpt2")
    PosixPath('.../models--openai-community--gpt2/snapshots/...')
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise ValueError(f"The address of a model of the hub must be hf://owner/name[@revision], got {address!r}.")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ImportError(f"{address} needs the package huggingface_hub: pip install huggingface_hub") from error
    return Path(snapshot_download(match["name"], revision=match["revision"], allow_patterns=list(PATTERNS)))
