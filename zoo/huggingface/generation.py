"""Settings of generation of the Transformers library: `generation_config.json`, in both directions."""

import json
from pathlib import Path
from typing import Any

from zoo.generation import GenerationDefaults, get_processors, get_sampler, register_processor, register_sampler
from zoo.huggingface.generation_keys import KEYS, NEUTRAL, OF_SAMPLES, RULES, UNSUPPORTED, Rule
from zoo.storage import errors_of_file, quote, quote_key, read_json
from zoo.storage.checkpoint import CONFIG_FILE, read_config_file
from zoo.storage.user_warnings import warn_user

GENERATION_FILE = "generation_config.json"
# Draws are from so many tokens where a file does not say how many.
TOP_K = 50


def read_settings(directory: Path) -> tuple[Path, dict[str, Any]]:
    """Returns the file that says how a model generates, and what it says, without null.

    It is `generation_config.json`; where there is none, keys of `config.json` say it.

    Args:
        directory: The directory.
    """
    path = directory / GENERATION_FILE
    if path.exists():
        values = read_json(path)
    else:
        path, every = directory / CONFIG_FILE, read_config_file(directory)
        values = {key: every[key] for key in every if key in KEYS or key in UNSUPPORTED}
    return path, {key: value for key, value in values.items() if value is not None}


def read_generation(directory: Path, vocabulary_size: int, has_start: bool, tokenizer: Any = None) -> dict[str, Any]:
    """Returns the `generation` of a task: what a directory says of end tokens, samplers, processors and lengths.

    What changes texts in the library and cannot be said here is named in a warning.

    Args:
        directory: The directory.
        vocabulary_size: Number of tokens of the model.
        has_start: Whether decoding starts with a token that is no text: for an encoder-decoder.
        tokenizer: The tokenizer; its end token alone need not be named.

    Raises:
        ValueError: If a value is not one that its key may have.
    """
    path, values = read_settings(directory)
    with errors_of_file(path):
        generation, missing = read_values(values, vocabulary_size, has_start, tokenizer)
    if missing:
        warn_user(
            f"{path}: generate() does not do what these keys say: {', '.join(missing)}. Pass generation={{...}} to say "
            "what it does instead."
        )
    return generation


def read_values(
    values: dict[str, Any], vocabulary_size: int, has_start: bool, tokenizer: Any = None
) -> tuple[dict[str, Any], list[str]]:
    """Returns the `generation` of a task, and which keys it does not say.

    Args:
        values: Content of the file.
        vocabulary_size, has_start, tokenizer: As for `read_generation`.

    Raises:
        ValueError: If a value is not one that its key may have.

    Example:

    >>> read_values({"eos_token_id": [2, 7], "num_beams": 3}, vocabulary_size=48, has_start=False)[0]["end_ids"]
    [2, 7]
    """
    for key in KEYS:
        if key in values:
            KEYS[key].check(key, values[key], vocabulary_size, "the vocabulary")
    missing = _missing(values)
    generation: dict[str, Any] = {}
    ends = values.get("eos_token_id", [])
    ends = ends if isinstance(ends, list) else [ends]
    known = [index for index in ends if 0 <= index < vocabulary_size]
    if known != ends:
        missing.append(f"eos_token_id={quote(ends)} (of {vocabulary_size} tokens)")
    if known and (tokenizer is None or known != [tokenizer.end_id]):
        generation["end_ids"] = known
    sampler = _read_sampler(values)
    if sampler is not None:
        generation["sampler"] = sampler
    processors = _read_processors(values, known, has_start)
    if processors:
        generation["processors"] = processors
    if "max_new_tokens" in values:
        generation["max_new_tokens"] = values["max_new_tokens"]
    elif "max_length" in values:
        # theirs counts the token that decoding starts with
        generation["max_length"] = max(values["max_length"] - int(has_start), 1)
    stops = values.get("stop_strings", [])
    if stops:
        generation["stop"] = [stops] if isinstance(stops, str) else stops
    return generation, missing


def _missing(values: dict[str, Any]) -> list[str]:
    """Keys that change texts and that nothing here stands for, with their values."""
    keys = [key for key in sorted(values) if key in UNSUPPORTED and values[key] not in UNSUPPORTED[key]]
    sampled = values.get("do_sample", False)
    keys = [key for key in keys if sampled or key not in OF_SAMPLES]
    if sampled and values.get("num_beams", 1) > 1:
        keys.append("num_beams")
    keys += sorted(set(values) - set(KEYS) - set(UNSUPPORTED) - NEUTRAL)
    return [f"{quote_key(key, most=80)}={quote(values[key], most=80)}" for key in keys]


def _read_sampler(values: dict[str, Any]) -> dict[str, Any] | None:
    top_k, alpha = values.get("top_k", TOP_K), values.get("penalty_alpha", 0)
    if values.get("do_sample", False):
        sampler = {"name": "sample", "top_k": top_k or None}
        # 1 and 0 change nothing
        for key, nothing in (("temperature", 1), ("top_p", 1), ("min_p", 0), ("typical_p", 1)):
            if values.get(key, nothing) != nothing:
                # a share of 0 leaves one token
                sampler[key] = max(values[key], 1e-6) if key == "top_p" else values[key]
        get_sampler(sampler)
        return sampler
    if values.get("num_beams", 1) > 1:
        return {
            "name": "beam",
            "num_beams": values["num_beams"],
            "length_penalty": values.get("length_penalty", 1.0),
            "length_offset": 0,
            "early_stopping": values.get("early_stopping", False),
        }
    if alpha > 0 and top_k > 1:
        return {"name": "contrastive", "top_k": top_k, "alpha": alpha}
    return None


def _read_processors(values: dict[str, Any], ends: list[int], has_start: bool) -> list[dict[str, Any]]:
    values = dict(values)
    if "min_new_tokens" in values:
        values.pop("min_length", None)
    if "bad_words_ids" in values:
        # the library lets these end a text nevertheless
        values["bad_words_ids"] = [ids for ids in values["bad_words_ids"] if ids not in [[end] for end in ends]]
    processors = []
    for rule in RULES:
        value = values.get(rule.key)
        if value is None or value == rule.nothing:
            continue
        if rule.key == "forced_eos_token_id" and not isinstance(value, list):
            value = [value]
        processor = {"name": rule.name, **({} if rule.argument is None else {rule.argument: value})}
        processor |= rule.arguments(has_start)
        if rule.key == "begin_suppress_tokens" and "forced_bos_token_id" in values:
            processor["behind_forced"] = True
        processors.append(processor)
    return processors


def write_generation(task: Any) -> dict[str, Any]:
    """Returns the content of `generation_config.json` for a task: its special tokens and its `generation`.

    What ends a turn of a chat model is among the end tokens, unless `generation` names these.

    Args:
        task: A task that writes texts.

    Raises:
        ValueError: If the library has no settings for it.
    """
    defaults, tokenizer, config = task.generation_defaults, task.tokenizer, task.backbone.config
    has_start = config.architecture == "encoder_decoder"
    values: dict[str, Any] = {}
    if tokenizer is not None:
        start = getattr(task.preprocessor, "decoder_start_id", None)
        values |= {"bos_token_id": tokenizer.start_id, "eos_token_id": tokenizer.end_id}
        values |= {"pad_token_id": tokenizer.pad_id, "decoder_start_token_id": start}
    if defaults.end_ids:
        ends = list(defaults.end_ids) if isinstance(defaults.end_ids, list) else [defaults.end_ids]
        values["eos_token_id"] = ends if len(ends) > 1 else ends[0]
    try:
        values |= _write_sampler(get_sampler(defaults.sampler or "greedy"))
        values |= _write_processors(get_processors(defaults.processors), has_start)
    except ValueError as error:
        raise ValueError(f"generation: the Transformers library cannot express it: {error}") from error
    if defaults.max_new_tokens is not None:
        values["max_new_tokens"] = defaults.max_new_tokens
    if defaults.max_length is not None:
        values["max_length"] = defaults.max_length + int(has_start)
    if defaults.stop:
        values["stop_strings"] = defaults.stop
    values = {key: value for key, value in values.items() if value is not None}
    read = GenerationDefaults.of(
        read_values(values, config.vocabulary_size, has_start, tokenizer)[0], config.vocabulary_size
    )
    ours, theirs = _meaning(defaults, tokenizer), _meaning(read, tokenizer)
    differing = [name for name in ours if ours[name] != theirs[name]]
    if differing:
        shown = ", ".join(f"{name}={quote(str(ours[name]), most=200, plain=True)}" for name in differing)
        raise ValueError(
            f"generation: the Transformers library cannot express {shown}; what it has is "
            + ", ".join(f"{name}={quote(str(theirs[name]), most=200, plain=True)}" for name in differing)
            + "."
        )
    if defaults.end_ids is None and task.preprocessor.takes_conversations:
        values |= _end_of_turn(tokenizer)
    return values


def _end_of_turn(tokenizer: Any) -> dict[str, Any]:
    """The end token and the one that ends an answer: the library has one list for texts and conversations."""
    chat_format = getattr(tokenizer, "chat_format", None)
    token = None if chat_format is None else chat_format.end_of_turn[0]
    if token is None:
        return {}
    end = tokenizer.token_to_id(token)
    ends = [index for index in (tokenizer.end_id, end) if index is not None]
    return {} if end == tokenizer.end_id else {"eos_token_id": ends if len(ends) > 1 else end}


def _write_sampler(sampler: Any) -> dict[str, Any]:
    values, name = sampler.get_config(), register_sampler.name_of(sampler)
    if name == "greedy":
        return {}
    if name == "sample":
        values = {"do_sample": True, **values, "top_k": values["top_k"] or 0}
        return {key: value for key, value in values.items() if key != "min_p" or value}
    if name == "beam":
        return {key: values[key] for key in ("num_beams", "length_penalty", "early_stopping")}
    if name == "contrastive":
        return {"top_k": values["top_k"], "penalty_alpha": values["alpha"]}
    raise ValueError(f"sampler must be greedy, sample, beam or contrastive, got {sampler!r}.")


def _write_processors(processors: tuple[Any, ...], has_start: bool) -> dict[str, Any]:
    values: dict[str, Any] = {}
    rules = list(RULES)
    for processor in processors:
        rule = next((rule for rule in rules if _is_said_by(rule, processor, has_start)), None)
        if rule is None:
            raise ValueError(
                f"it has no {processor!r}, or not here: its order is {[rule.name for rule in RULES]}"
                + (", the first four with include_start=True." if has_start else ".")
            )
        rules = rules[rules.index(rule) + 1 :]
        value = True if rule.argument is None else getattr(processor, rule.argument)
        if rule.key == "suppress_tokens":
            value = [ids[0] for ids in value]
        if rule.key == "forced_eos_token_id" and len(value) == 1:
            value = value[0]
        values[rule.key] = json.loads(json.dumps(value))
    return values


def _is_said_by(rule: Rule, processor: Any, has_start: bool) -> bool:
    """Whether a key can hold a processor; what it holds is read back later."""
    if register_processor.name_of(processor) != rule.name:
        return False
    argument = {} if rule.argument is None else {rule.argument: getattr(processor, rule.argument)}
    if rule.key == "suppress_tokens" and any(len(ids) > 1 for ids in processor.token_ids):
        return False
    others = rule.arguments(has_start)
    if rule.key == "begin_suppress_tokens":
        others = {"behind_forced": processor.behind_forced}
    return get_processors([{"name": rule.name, **argument, **others}]) == (processor,)


def _meaning(defaults: GenerationDefaults, tokenizer: Any) -> dict[str, Any]:
    """What defaults say, however they say it."""
    ends = defaults.end_ids
    if ends is None and tokenizer is not None:
        ends = tokenizer.end_id
    return {
        "sampler": get_sampler(defaults.sampler or "greedy"),
        "processors": get_processors(defaults.processors),
        "stop": [defaults.stop] if isinstance(defaults.stop, str) else list(defaults.stop or ()),
        "max_length": defaults.max_length,
        "max_new_tokens": defaults.max_new_tokens,
        "end_ids": [] if ends is None else list(ends) if isinstance(ends, list) else [ends],
    }
