"""How the model of a GGUF file writes texts, as `generation_config.json` of the Transformers library would say it."""

from __future__ import annotations

from typing import Any

from zoo.gguf.fields import shortest
from zoo.gguf.header import GGUFHeader
from zoo.storage import quote

_PREFIX = "general.sampling."
# their keys by llama.cpp's, and the types of these
_SETTINGS: dict[str, tuple[str, type]] = {
    "temp": ("temperature", float),
    "top_k": ("top_k", int),
    "top_p": ("top_p", float),
    "min_p": ("min_p", float),
    "penalty_repeat": ("repetition_penalty", float),
}
# settings of samplers that are switched on by another key
_DETAILS = ("xtc_threshold", "mirostat_tau", "mirostat_eta")
# roles of tokens that end a text: all of it, a turn, a message
_ENDS = ("eos", "eot", "eom")


def generation_of(header: GGUFHeader) -> dict[str, Any]:
    """Returns the tokens that end a text and the settings of samplers; nothing where a file says nothing of them.

    A setting that nothing here stands for keeps its name, by which the reader of the settings tells the user of it.
    llama.cpp draws whatever it is told; a file that has settings of draws asks for these, one with a temperature of 0
    for none.

    Args:
        header: The header of the file.

    Raises:
        ValueError: If a value has another type.
    """
    ends = [header.get(f"tokenizer.ggml.{role}_token_id", int) for role in _ENDS]
    known = list(dict.fromkeys(index for index in ends if index is not None))
    values: dict[str, Any] = {}
    for key, value in header.metadata.items():
        name = key.removeprefix(_PREFIX)
        if name == key or name in _DETAILS:
            continue
        if name not in _SETTINGS:
            if value != 0:  # with which each of them is switched off
                values[key] = value
            continue
        theirs, kind = _SETTINGS[name]
        values[theirs] = header.get(key, kind)
        if kind is float:
            values[theirs] = shortest(values[theirs])
    if values.get("repetition_penalty", 1) == 1:
        values.pop(f"{_PREFIX}penalty_last_n", None)
    elif values.get(f"{_PREFIX}penalty_last_n") == -1:  # all of the text, as here
        del values[f"{_PREFIX}penalty_last_n"]
    draws = {"temperature", "top_k", "top_p", "min_p"} & set(values)
    if draws:
        values["do_sample"] = values.get("temperature", 1.0) != 0
        values.setdefault("top_k", 0)
    if len(known) > 1 or (values and known):
        values["eos_token_id"] = known
    return values


def metadata_of(values: dict[str, Any], end_id: int | None) -> tuple[dict[str, Any], list[str]]:
    """Returns the metadata that say what a `generation_config.json` says, and what they do not say.

    Args:
        values: Content of the file.
        end_id: The end token of the tokenizer, which the metadata have already.
    """
    metadata: dict[str, Any] = {}
    ends = values.get("eos_token_id", [])
    others = [index for index in (ends if isinstance(ends, list) else [ends]) if index != end_id]
    for role, index in zip(_ENDS[1:], others, strict=False):
        metadata[f"tokenizer.ggml.{role}_token_id"] = index
    draws = values.get("do_sample", False)
    said = {"do_sample", "eos_token_id", "bos_token_id", "pad_token_id"}
    for name, (theirs, kind) in _SETTINGS.items():
        if theirs == "repetition_penalty":
            if values.get(theirs, 1) != 1:
                metadata |= {f"{_PREFIX}{name}": float(values[theirs]), f"{_PREFIX}penalty_last_n": -1}
        elif draws and theirs in values:
            metadata[f"{_PREFIX}{name}"] = kind(values[theirs])
        said.add(theirs)
    if draws and values.get("typical_p", 1) == 1:
        said.add("typical_p")
    lost = [f"{key}={quote(values[key], most=80)}" for key in sorted(set(values) - said)]
    if len(others) > len(_ENDS) - 1:
        lost.append(f"eos_token_id={quote(others[len(_ENDS) - 1 :])}")
    return metadata, lost
