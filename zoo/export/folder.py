"""The folder of an export: the files that accompany those of a format."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo.export.endpoint import Endpoint, describe
from zoo.storage import replace_folder
from zoo.storage.tokenizer import TOKENIZER_FILES

# Servers leave these alone.
DESCRIPTION_FILE = "signature.json"
ASSETS_FOLDER = "assets.extra"
# files of an export, besides those that its endpoints name
_OWN = (
    *("saved_model.pb", "fingerprint.pb", "variables/variables.*", "assets", DESCRIPTION_FILE, "model_card.md"),
    *(
        "run_model.py",
        "model.gguf",
        "Modelfile",
        "model.tflite",
        "weights.bin",
        *(f"openvino_{name}.{ending}" for name in ("model", "tokenizer", "detokenizer") for ending in ("xml", "bin")),
        *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model"),
        ASSETS_FOLDER,
        f"{ASSETS_FOLDER}/tf_serving_warmup_requests",
    ),
    *(f"{ASSETS_FOLDER}/{name}" for name in TOKENIZER_FILES),
)


@contextlib.contextmanager
def export_folder(
    directory: str | os.PathLike[str],
    endpoints: Mapping[str, Endpoint],
    *,
    save_assets: Callable[[str], None] | None = None,
    **about: Any,
) -> Iterator[Path]:
    """A context with a folder of `signature.json` and assets, which becomes the export if the block ends without error.

    Args:
        directory: The directory to write. An export that it holds is replaced; files of others stay.
        endpoints: The endpoints by name. The first is the default one.
        save_assets: Writes further files, such as those of the tokenizer, to a folder.
        **about: Further entries of `signature.json`, as JSON values.

    Raises:
        FileExistsError: If the directory exists and does not hold an export.
    """
    with replace_folder(directory, _is_export, "export", _own_files(directory)) as folder:
        write_description(folder, {**about, **describe(endpoints)})
        yield folder
        if save_assets is not None:
            (folder / ASSETS_FOLDER).mkdir(exist_ok=True)
            save_assets(str(folder / ASSETS_FOLDER))


def write_description(folder: Path, description: Mapping[str, Any]) -> None:
    """Writes `signature.json`.

    Args:
        folder: The folder of the export.
        description: Its content.
    """
    content = json.dumps(description, indent=2, ensure_ascii=False)
    (folder / DESCRIPTION_FILE).write_text(content + "\n", encoding="utf-8")


def _is_export(folder: Path) -> bool:
    return (folder / DESCRIPTION_FILE).exists()


def _own_files(directory: str | os.PathLike[str]) -> list[str]:
    """The files of the export in a folder, also those that have the names of its endpoints."""
    try:
        endpoints = json.loads(Path(directory, DESCRIPTION_FILE).read_text(encoding="utf-8"))["endpoints"]
    except (OSError, ValueError, KeyError, TypeError):
        endpoints = {}
    return [*_OWN, *(f"{name}{ending}" for name in endpoints for ending in (".onnx", ".xml", ".bin"))]
