"""What the keys of `generation_config.json` of the Transformers library hold and what they are here, as data."""

import dataclasses
from collections.abc import Callable
from typing import Any

from zoo.huggingface.config_keys import FLAG, Key, is_integer, is_number

# more beams are no search any more, and would fill the memory
MOST_BEAMS = 1024


def _is_id(value: Any, vocabulary: float) -> bool:
    return is_integer(value) and 0 <= value < vocabulary


def _list_of(holds: Callable[[Any, float], bool]) -> Callable[[Any, float], bool]:
    return lambda value, most: isinstance(value, list) and all(holds(entry, most) for entry in value)


def _either(*choices: Callable[[Any, float], bool]) -> Callable[[Any, float], bool]:
    return lambda value, most: any(holds(value, most) for holds in choices)


def _number(allowed: str, least: float, most: float = float("inf")) -> Key:
    return Key(f"a number {allowed}", lambda value, _: is_number(value) and least <= value <= most)


_IDS = _list_of(_is_id)
_COUNT = Key("an integer of at least 0", lambda value, _: is_integer(value) and value >= 0)
_TEXT = lambda value, _: isinstance(value, str) and value != ""  # noqa: E731

# what each may hold besides null; the greatest count is the size of the vocabulary
KEYS = {
    "eos_token_id": Key(
        "an integer or a list of integers",
        _either(lambda value, _: is_integer(value), _list_of(lambda value, _: is_integer(value))),
    ),
    "forced_bos_token_id": Key("an id of the vocabulary", _is_id),
    "forced_eos_token_id": Key("an id of the vocabulary or a list of these", _either(_is_id, _IDS)),
    "decoder_start_token_id": Key("an integer", lambda value, _: is_integer(value)),
    "bos_token_id": Key("an integer", lambda value, _: is_integer(value)),
    "pad_token_id": Key("an integer", lambda value, _: is_integer(value)),
    "suppress_tokens": Key("a list of ids of the vocabulary", _IDS),
    "begin_suppress_tokens": Key("a list of ids of the vocabulary", _IDS),
    "bad_words_ids": Key(
        "a list of lists of ids of the vocabulary",
        _list_of(lambda value, most: _IDS(value, most) and len(value) > 0),
    ),
    "min_length": _COUNT,
    "min_new_tokens": _COUNT,
    "max_length": Key("an integer of at least 1", lambda value, _: is_integer(value) and value >= 1),
    "max_new_tokens": Key("an integer of at least 1", lambda value, _: is_integer(value) and value >= 1),
    "no_repeat_ngram_size": _COUNT,
    "repetition_penalty": _number("from 1e-30 to 1e30", 1e-30, 1e30),
    "renormalize_logits": FLAG,
    "stop_strings": Key("a text or a list of texts, none of them empty", _either(_TEXT, _list_of(_TEXT))),
    "do_sample": FLAG,
    "temperature": _number("of at least 0", 0),
    "top_k": _COUNT,
    "top_p": _number("from 0 to 1", 0, 1),
    "min_p": _number("from 0 to 1", 0, 1),
    "typical_p": _number("from 0 to 1", 0, 1),
    "penalty_alpha": _number("from 0 to 1", 0, 1),
    "num_beams": Key(
        f"an integer from 1 to {MOST_BEAMS}", lambda value, _: is_integer(value) and 1 <= value <= MOST_BEAMS
    ),
    "length_penalty": _number("from -1000 to 1000", -1000, 1000),
    "early_stopping": Key("true, false or 'never'", lambda value, _: isinstance(value, bool) or value == "never"),
}

# These change texts, and there is nothing for them here: the values, besides null, with which they do not.
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "assistant_early_exit": (),
    "constraints": (),
    "diversity_penalty": (0,),
    "dola_layers": (),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": (),
    "guidance_scale": (1,),
    "max_time": (),
    "num_beam_groups": (1,),
    "num_return_sequences": (1,),
    "prompt_lookup_num_tokens": (),
    "sequence_bias": (),
    "token_healing": (False,),
    "top_h": (),
    "watermarking_config": (),
}
# these change samples only
OF_SAMPLES = frozenset(("epsilon_cutoff", "eta_cutoff", "top_h"))

# ways to compute the same texts, what else is returned, and bookkeeping
NEUTRAL = frozenset(
    """
    _commit_hash _from_model_config assistant_confidence_threshold assistant_ensemble_weight assistant_lookbehind
    cache_config cache_implementation compile_config continuous_batching_config disable_compile is_assistant low_memory
    max_cache_len max_matching_ngram_size num_assistant_tokens num_assistant_tokens_schedule output_attentions
    output_hidden_states output_logits output_scores prefill_chunk_size remove_invalid_values return_dict_in_generate
    speculation_type target_lookbehind transformers_version use_cache use_mtp
    """.split()
)


@dataclasses.dataclass(frozen=True)
class Rule:
    """A key that is one logit processor here.

    Args:
        key: The key.
        name: The processor.
        argument: Its argument that the key holds; None where the key is a flag.
        nothing: The value with which the key changes nothing.
        others: Its other arguments.
        of_start: Whether it counts the token that decoding starts with.
    """

    key: str
    name: str
    argument: str | None
    nothing: Any = None
    others: dict[str, Any] = dataclasses.field(default_factory=dict)
    of_start: bool = False

    def arguments(self, has_start: bool) -> dict[str, Any]:
        """Returns the other arguments; for an encoder-decoder, which has such a token, with `include_start`."""
        return {**self.others, **({"include_start": True} if self.of_start and has_start else {})}


# in the order in which the library applies them
RULES = (
    Rule("repetition_penalty", "repetition_penalty", "penalty", 1, of_start=True),
    Rule("no_repeat_ngram_size", "no_repeat_ngram", "size", 0, of_start=True),
    Rule("bad_words_ids", "banned_tokens", "token_ids", [], of_start=True),
    Rule("min_length", "minimum_length", "length", 0, {"include_prompt": True}, of_start=True),
    Rule("min_new_tokens", "minimum_length", "length", 0),
    Rule("forced_bos_token_id", "forced_first_token", "token_id"),
    Rule("forced_eos_token_id", "forced_last_token", "token_ids", []),
    Rule("suppress_tokens", "banned_tokens", "token_ids", []),
    Rule("begin_suppress_tokens", "banned_first_tokens", "token_ids", []),
    Rule("renormalize_logits", "normalized", None, False),
)
