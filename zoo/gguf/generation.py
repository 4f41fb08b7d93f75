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
    for key in header.metadata:
        name = key.removeprefix(_PREFIX)
        if name == key or name in _DETAILS:
            continue
        if name in _SETTINGS:
            theirs, kind = _SETTINGS[name]
            found = header.require(key, kind)
            values[theirs] = shortest(found) if kind is float else found
        elif header.require(key, (int, float, str)) != 0:  # with which each of them is switched off
            values[key] = header.metadata[key]
    _leave_out_what_is_off(values, last=header.get(f"{_PREFIX}penalty_last_n", int))
    if {"temperature", "top_k", "top_p", "min_p"} & set(values):
        values["do_sample"] = values.get("temperature", 1.0) > 0
        values["temperature"] = max(values.get("temperature", 1.0), 0.0)
        values.setdefault("top_k", 0)
    if len(known) > 1 or (values and known):
        values["eos_token_id"] = known
    return values


def _leave_out_what_is_off(values: dict[str, Any], last: int | None) -> None:
    """Takes away what says nothing to llama.cpp, and what says all of the text, as it is here.

    Args:
        values: The settings, which are changed.
        last: For how many of the last tokens repetition is penalized; None where the file does not say it.
    """
    if "top_k" in values:
        values["top_k"] = max(values["top_k"], 0)
    if values.get("top_p", 0) >= 1:
        del values["top_p"]
    if values.get("min_p", 1) <= 0:
        del values["min_p"]
    if last == 0 or values.get("repetition_penalty", 1) in (0, 1):
        values.pop("repetition_penalty", None)
    if "repetition_penalty" not in values or last == -1:
        values.pop(f"{_PREFIX}penalty_last_n", None)


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
