"""The special tokens of a Hugging Face tokenizer, and their roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.storage import quote, require_type
from zoo.tokenizers.huggingface.reader import AddedToken, parts, refuse

# Roles by their names in tokenizer_config.json; the first that is given counts.
_ROLES = {
    "pad_token": ("pad_token",),
    "start_token": ("bos_token", "cls_token"),
    "end_token": ("eos_token", "sep_token"),
    "unknown_token": ("unk_token",),
    "mask_token": ("mask_token",),
}
# Where no file names the roles.
_USUAL = {
    "pad_token": ("<pad>", "[PAD]", "<|pad|>", "<|finetune_right_pad_id|>"),
    "start_token": ("<s>", "<bos>", "[CLS]", "<|begin_of_text|>", "<|startoftext|>"),
    "end_token": ("</s>", "<eos>", "[SEP]", "<|end_of_text|>", "<|endoftext|>"),
    "unknown_token": ("<unk>", "[UNK]"),
    "mask_token": ("<mask>", "[MASK]"),
}


def roles_from_config(config: Mapping[str, Any]) -> dict[str, str]:
    """Returns the tokens that `tokenizer_config.json` or `special_tokens_map.json` names, by our names of the roles."""
    roles = {}
    for role, names in _ROLES.items():
        for name in names:
            value = config.get(name)
            value = value.get("content") if isinstance(value, dict) else value
            require_type(value, str | None, f"tokenizer_config.json or special_tokens_map.json: {name}")
            if value is not None:
                roles[role] = value
                break
    return roles


def usual_roles(tokens: list[str]) -> dict[str, str]:
    """Returns the roles that tokens usually play by their names."""
    found = {role: next((name for name in names if name in tokens), None) for role, names in _USUAL.items()}
    return {role: name for role, name in found.items() if name is not None}


def added_tokens(entries: list[AddedToken], normalizes: bool) -> dict[str, list[str]]:
    """Reads `added_tokens`.

    Args:
        entries: The list of the file.
        normalizes: Whether the tokenizer changes characters before it looks for tokens.

    Returns:
        `special_tokens`, `added_tokens`, `strip_left`, `strip_right` and `single_words`, as `Tokenizer` takes them.

    Raises:
        ValueError: A token needs something that is not supported.
    """
    kinds = ("special_tokens", "added_tokens", "strip_left", "strip_right", "single_words")
    result: dict[str, list[str]] = {kind: [] for kind in kinds}
    for entry in entries:
        text = entry.content
        if not entry.special and entry.normalized and normalizes:
            raise refuse(f"added_tokens: normalized of {quote(text)}", True, "find tokens only in the text as it is")
        result["special_tokens" if entry.special else "added_tokens"].append(text)
        if entry.lstrip:
            result["strip_left"].append(text)
        if entry.rstrip:
            result["strip_right"].append(text)
        if entry.single_word:
            result["single_words"].append(text)
    return result


def vocabulary_with_added(vocabulary: Mapping[str, int], entries: list[AddedToken]) -> dict[str, int]:
    """Returns the ids of all tokens, including the added ones.

    Raises:
        ValueError: An added token has another id in the vocabulary.
    """
    ids = dict(vocabulary)
    for entry in entries:
        if ids.setdefault(entry.content, entry.id) != entry.id:
            raise ValueError(
                f"tokenizer.json: added_tokens: the id of {quote(entry.content)} must be {ids[entry.content]}, as in "
                f"model.vocab, got {entry.id}."
            )
    return ids


def tokens_put_around(post_processor: dict[str, Any] | None) -> tuple[list[str], list[str]]:
    """Returns the tokens that a post-processor puts before and after a single text.

    Raises:
        ValueError: Its type is not known.
    """
    before: list[str] = []
    after: list[str] = []
    for part in parts(post_processor, "post_processor"):
        kind = part.get("type")
        if kind in ("BertProcessing", "RobertaProcessing"):
            for side, key in ((before, "cls"), (after, "sep")):
                require_type(part.get(key), tuple[str, int], f"tokenizer.json: post_processor.{key}")
                side.append(part[key][0])
        elif kind == "TemplateProcessing":
            side = before
            require_type(part.get("single"), list[dict[str, dict[str, Any]]], "tokenizer.json: post_processor.single")
            for index, item in enumerate(part["single"]):
                if "Sequence" in item:
                    side = after
                else:
                    token = item.get("SpecialToken", {}).get("id")
                    require_type(token, str, f"tokenizer.json: post_processor.single[{index}].SpecialToken.id")
                    side.append(token)
        elif kind != "ByteLevel":  # which only moves offsets
            raise refuse(
                "post_processor", kind, "read BertProcessing, RobertaProcessing, TemplateProcessing, ByteLevel"
            )
    return before, after


def with_flags(
    post_processor: dict[str, Any] | None, roles: Mapping[str, str], config: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Returns the post-processor as `add_bos_token` and `add_eos_token` of `tokenizer_config.json` change it.

    Args:
        post_processor: That of the file.
        roles: Tokens by our names of their roles.
        config: The configuration.
    """
    around = tokens_put_around(post_processor)
    sides = []
    for side, role, flag in zip(around, ("start_token", "end_token"), added_by_flags(config), strict=True):
        wanted = [roles[role]] if flag and role in roles else []
        # a file that adds several is not changed by a flag that wants one
        sides.append(side if flag is None or bool(side) == bool(wanted) else wanted)
    if tuple(sides) == around:
        return post_processor
    before, after = ([{"SpecialToken": {"id": token, "type_id": 0}} for token in side] for side in sides)
    single = [*before, {"Sequence": {"id": "A", "type_id": 0}}, *after]
    return {"type": "TemplateProcessing", "single": single}


def added_by_flags(config: Mapping[str, Any]) -> tuple[bool | None, bool | None]:
    """Returns `add_bos_token` and `add_eos_token` of `tokenizer_config.json`, None where it does not have them."""
    flags = []
    for key in ("add_bos_token", "add_eos_token"):
        require_type(config.get(key), bool | None, f"tokenizer_config.json: {key}")
        flags.append(config.get(key))
    return flags[0], flags[1]


def settle_roles(roles: dict[str, str], post_processor: dict[str, Any] | None, known: list[str]) -> dict[str, str]:
    """Makes the roles agree with what the post-processor does.

    A start token that is not put before texts, such as `<|im_start|>` of chat models, does not begin texts, so it has
    no role; GPT-2's, which is its end token too, keeps it.
    """
    roles = dict(roles) if roles else usual_roles(known)
    before, after = tokens_put_around(post_processor)
    if before:
        roles["start_token"] = before[0]
    elif roles.get("start_token") != roles.get("end_token"):
        roles.pop("start_token", None)
    if after:
        roles["end_token"] = after[-1]
    return roles
