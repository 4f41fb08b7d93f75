"""One text as a task reads it, and what the outputs of the task decide."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Row(NamedTuple):
    """One text on token level, without padding.

    Args:
        inputs: Token-level inputs of the task, each `(1, number)`.
        targets: Numbers of the right choices, int64 `(rows,)`, -1 where none is known; None for none at all.
        places: Positions of the tokens that the decisions are about, int64 `(rows,)`; None for all in turn.
        names: What the decisions are about, `(rows,)`; None for these tokens.
    """

    inputs: dict[str, np.ndarray]
    targets: np.ndarray | None = None
    places: np.ndarray | None = None
    names: Sequence[str] | None = None


class Decisions(NamedTuple):
    """What the outputs of a task decide: one of several choices in each row.

    Args:
        scores: Log-probabilities of the choices, or values, `(batch, rows, choices)`, float32.
        choices: Names of the choices; None for the tokens of the vocabulary.
        rows: Names of the rows; None for rows that are about tokens.
        are_values: Whether the scores are values, as in a regression.
    """

    scores: Any
    choices: Sequence[str] | None = None
    rows: Sequence[str] | None = None
    are_values: bool = False


def is_token_level(text: Any) -> bool:
    """Returns whether something is token-level inputs: a mapping with token ids.

    Args:
        text: What the user passed.
    """
    return isinstance(text, Mapping) and any(str(name).endswith("token_ids") for name in text)


def row_of_ids(inputs: Mapping[str, Any], names: Sequence[str], vocabulary_size: int, max_length: int) -> Row:
    """Returns the row of token-level inputs.

    Args:
        inputs: As for a call of the task, `(1, length)`; masks that are left out are true.
        names: Names of the inputs that a call needs.
        vocabulary_size: Number of token ids of the model.
        max_length: Number of tokens that the model takes.

    Raises:
        ValueError: If there is not exactly one row with at least one token, or the model does not take these ids.
    """
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    for name, value in arrays.items():
        if value.ndim != 2 or len(value) != 1:
            raise ValueError(f"text[{name!r}] must have the shape (1, length), got {value.shape}.")
    for name in [name for name in names if name.endswith("token_ids")]:
        if name not in arrays:
            raise ValueError(f"text must have {name}, got {', '.join(sorted(arrays))}.")
    for name in [name for name in arrays if name.endswith("token_ids")]:
        arrays.setdefault(name.replace("token_ids", "padding_mask"), np.ones(arrays[name].shape, bool))
    row = without_padding(arrays)
    for name in [name for name in arrays if name.endswith("token_ids")]:
        ids = row.inputs[name][0]
        if len(ids) > max_length:
            raise ValueError(f"text[{name!r}] must have at most {max_length} tokens, got {len(ids)}.")
        outside = ids[(ids < 0) | (ids >= vocabulary_size)]
        if len(outside):
            raise ValueError(f"text[{name!r}] must have ids from 0 to {vocabulary_size - 1}, got {outside[0]}.")
    return row


def row_of_text(preprocessor: Any, text: Any) -> Row:
    """Returns the row of one text, or of what else a row of the task is.

    Args:
        preprocessor: The preprocessor of the task.
        text: A text, a pair of texts as a tuple, or a list of words.

    Raises:
        TypeError, ValueError: If it is no row of the task, or does not fit the model.
    """
    preprocessor.require_tokenizer("inspect()")
    rows = preprocessor.rows([text], "text")
    if len(rows.lengths) > 1:
        raise ValueError(
            f"text must fit the model, which reads it in {len(rows.lengths)} windows: give a shorter one to inspect()."
        )
    return without_padding({name: np.asarray(value) for name, value in preprocessor.inputs(rows.tokens).items()})


def without_padding(inputs: Mapping[str, np.ndarray]) -> Row:
    """Returns the row of token-level inputs of one text without its padding.

    Args:
        inputs: Each `(1, number)`; what names positions to decide on is -1 where there is none.

    Raises:
        ValueError: If there is no token, or one of the inputs has another length than the mask.
    """
    end = "padding_mask"
    masks = {name.removesuffix(end): np.asarray(mask[0], bool) for name, mask in inputs.items() if name.endswith(end)}
    for side, mask in masks.items():
        if not mask.any():
            raise ValueError(f"text must have at least one token, got none in {side}token_ids.")
    cropped, places = {}, None
    for name, value in inputs.items():
        side = next((side for side in masks if side and name.startswith(side)), "")
        # `encoder_positions` are numbers of tokens in their text, one for each token
        if name.endswith("_positions") and not side:
            places = value[0][value[0] >= 0].astype("int64")
            cropped[name] = places[None].astype("int32")
        elif value.shape[1] != len(masks[side]):
            raise ValueError(
                f"text[{name!r}] must have {len(masks[side])} positions, as many as {side}padding_mask, got "
                f"{value.shape[1]}."
            )
        else:
            cropped[name] = value[:, masks[side]]
    return Row(cropped, places=places)


def next_ids(ids: Any, sequences: Any = None) -> np.ndarray:
    """Returns the id behind each token, int64 `(length,)`, -1 behind the last one of each text.

    Args:
        ids: `(length,)`.
        sequences: Numbers of the texts that share a row, `(length,)`; None for one text.
    """
    following = np.append(np.asarray(ids, "int64")[1:], -1)
    if sequences is not None:
        following[:-1][np.diff(np.asarray(sequences)) != 0] = -1
    return following


def token_names(tokenizer: Any, token_ids: Sequence[int]) -> list[str]:
    """Returns tokens by their texts, or by what the vocabulary calls those that have none of their own; eager.

    Args:
        tokenizer: The tokenizer; None for the ids as names.
        token_ids: The ids; those outside of the vocabulary have the name "".
    """
    if tokenizer is None:
        return [str(token_id) for token_id in token_ids]
    vocabulary = tokenizer.get_vocabulary()
    known = [token_id for token_id in token_ids if 0 <= token_id < len(vocabulary)]
    texts = tokenizer.detokenize([[token_id] for token_id in known]).numpy() if known else []
    names = {token_id: _shown(text) or vocabulary[token_id] for token_id, text in zip(known, texts, strict=True)}
    return [names.get(token_id, "") for token_id in token_ids]


def _shown(text: bytes) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:  # a part of a character
        return ""
