"""Uploads of models to the hub: written completely, read back, and pushed in one commit."""

import tempfile
from pathlib import Path
from typing import Any

from zoo.huggingface import read_config
from zoo.huggingface import save_task as save_huggingface_task
from zoo.huggingface.adapter_config import read_adapter_config
from zoo.huggingface.card import CARD_FILE, adapter_card, model_card
from zoo.storage import open_preset, push
from zoo.storage.hub import PREFIX, require_address
from zoo.tasks.saving import save_task

FORMATS = ("huggingface", "preset", "adapter")


def push_task(
    task: Any,
    address: str,
    *,
    format: str,
    private: bool | None,
    license: str | None,
    base_model: str | None,
    dtype: str | None,
    message: str,
) -> str:
    """Pushes a task to a model repository of the hub, see `Task.push`.

    Args:
        task: The task.
        address: `owner/name`, or `owner/name@revision` for a branch.
        format: One of `FORMATS`.
        private, message: See `zoo.storage.push`.
        license, base_model, dtype: See `zoo.huggingface.save_task`.
    """
    if format not in FORMATS:
        raise ValueError(f"format must be one of {FORMATS}, got {format!r}.")
    if dtype is not None and format != "huggingface":
        raise ValueError(
            f"dtype must be None with format={format!r}, which has the weights as they are, got {dtype!r}."
        )
    address = require_address(address)
    name = address.removeprefix(PREFIX).partition("@")[0]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        # what cannot be written, or not be read, never gets on its way
        if format == "huggingface":
            save_huggingface_task(task, folder, name=name, license=license, base_model=base_model, dtype=dtype)
            read_config(folder)
        elif format == "adapter":
            active = task.backbone.adapters.active
            if len(active) != 1:
                raise ValueError(f"format='adapter' needs one active adapter, got {list(active)}.")
            kind = task.save_adapter(folder, active[0], base_model=base_model)
            read_adapter_config(folder)
            card = adapter_card(task, name, model_type=kind, license=license, base_model=base_model)
            (folder / CARD_FILE).write_text(card, encoding="utf-8")
        else:
            save_task(task, folder)
            with open_preset(folder):
                pass
            card = model_card(task, name, license=license, base_model=base_model)
            (folder / CARD_FILE).write_text(card, encoding="utf-8")
        return push(folder, address, private=private, message=message)
