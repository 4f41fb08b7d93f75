"""The formats of well-known models by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.tokenizers.chat.chat_format import ChatFormat
from zoo.tokenizers.chat.turn import Strip, Turn


def _same(roles: Sequence[str], before: str, after: str, strips: Strip = "") -> dict[str, Turn]:
    return {role: Turn(before.format(role=role), after.format(role=role), strips) for role in roles}


def _plain(end_token: str) -> ChatFormat:
    """For tokenizers that recipes train on running text: they have no control token but the end of a text."""
    return ChatFormat(
        {
            "system": Turn("", "\n", "both"),
            "user": Turn("User: ", "\n", "both"),
            "assistant": Turn("Assistant: ", f"{end_token}\n", "both"),
        },
        reply="Assistant:",
        special_tokens=(end_token,),
    )


_ALL = ("system", "user", "assistant")
_CHATML = ChatFormat(
    _same(_ALL, "<|im_start|>{role}\n", "<|im_end|>\n"),
    reply="<|im_start|>assistant\n",
    special_tokens=("<|im_start|>", "<|im_end|>"),
)
_LLAMA3 = ChatFormat(
    _same(_ALL, "<|start_header_id|>{role}<|end_header_id|>\n\n", "<|eot_id|>", "both"),
    start="<|begin_of_text|>",
    reply="<|start_header_id|>assistant<|end_header_id|>\n\n",
    special_tokens=("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
)
_DATES = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
_LLAMA3_SYSTEM = _LLAMA3.turns["system"]
_GEMMA = ChatFormat(
    {
        "user": Turn("<start_of_turn>user\n", "<end_of_turn>\n", "both"),
        "assistant": Turn("<start_of_turn>model\n", "<end_of_turn>\n", "both"),
    },
    start="<bos>",
    reply="<start_of_turn>model\n",
    special_tokens=("<bos>", "<start_of_turn>", "<end_of_turn>"),
    alternates=True,
)
# Llama 3.1 and later state dates before the system message: those of its template.
CHAT_FORMATS: dict[str, ChatFormat] = {
    "chatml": _CHATML,
    "qwen2.5": dataclasses.replace(
        _CHATML, default_system="You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    ),
    "smollm2": dataclasses.replace(
        _CHATML, default_system="You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    ),
    "llama2": ChatFormat(
        {
            "system": Turn("<<SYS>>\n", "\n<</SYS>>\n\n"),
            "user": Turn("<s>[INST] ", " [/INST]", "both"),
            "assistant": Turn(" ", " </s>", "both"),
        },
        special_tokens=("<s>", "</s>"),
        system_place="first_user",
        strips_whole_turn=True,
        alternates=True,
    ),
    "llama3": _LLAMA3,
    "llama3.1": dataclasses.replace(
        _LLAMA3,
        turns={
            **_LLAMA3.turns,
            "system": dataclasses.replace(_LLAMA3_SYSTEM, before=_LLAMA3_SYSTEM.before + _DATES),
        },
        default_system="",
    ),
    "gemma": _GEMMA,
    "gemma3": dataclasses.replace(
        _GEMMA, turns={"system": Turn("", "\n\n"), **_GEMMA.turns}, system_place="first_user"
    ),
    "mistral": ChatFormat(
        {"user": Turn("[INST] ", " [/INST]"), "assistant": Turn("", "</s>")},
        start="<s>",
        special_tokens=("<s>", "</s>"),
        alternates=True,
    ),
    "phi3": ChatFormat(
        _same(_ALL, "<|{role}|>\n", "<|end|>\n"),
        reply="<|assistant|>\n",
        special_tokens=("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
    ),
    "plain": _plain("<eos>"),
    "zephyr": ChatFormat(_same(_ALL, "<|{role}|>\n", "</s>\n"), reply="<|assistant|>\n", special_tokens=("</s>",)),
}


def get_chat_format(value: Any, *, end_token: str | None = None) -> ChatFormat | None:
    """Returns the format that a value describes.

    Args:
        value: A `ChatFormat`, a name in `CHAT_FORMATS`, what `ChatFormat.to_dict` returned, or None.
        end_token: The token with which texts of the tokenizer end, and replies in the format "plain"; None for `<eos>`.

    Raises:
        ValueError: If it is none of these.
    """
    if value is None or isinstance(value, ChatFormat):
        return value
    if isinstance(value, Mapping):
        return ChatFormat.from_dict(value)
    if not isinstance(value, str) or value not in CHAT_FORMATS:
        raise ValueError(f"chat_format must be one of {sorted(CHAT_FORMATS)}, or a ChatFormat, got {value!r}.")
    if value == "plain" and end_token is not None:
        return _plain(end_token)
    return CHAT_FORMATS[value]
