"""Preferences: a prompt with a chosen and a rejected reply, from files or generated, and their token-level batches."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import zoo
from recipes.common.data import dates
from recipes.common.data.chat_data import DATE_QUESTIONS
from recipes.common.data.data_sets import Loaders, Splits
from recipes.common.data.english_questions import Question, english_questions
from recipes.common.data.text_files import read_objects
from recipes.common.errors import BadLines, ConfigError, DataError, shown

BAD_PREFERENCE = "not a preference"
# pairs that are tokenized at once
_AT_ONCE = 512


class Preference(NamedTuple):
    """A prompt, a text or messages, with the reply that is preferred and one that is not, and where they stand."""

    prompt: str | list[dict[str, str]]
    chosen: str
    rejected: str
    origin: str


def read_preferences(
    files: Sequence[str], bad: BadLines, *, chat_format: zoo.tokenizers.ChatFormat | None, keys: Sequence[str]
) -> list[Preference]:
    """Returns the preferences of JSON files: JSON lines, or one array in a `.json` file, plain or gzip-compressed.

    Prompt, chosen and rejected are texts or lists of messages `{"role", "content"}`. Lists of replies end with a
    message of the assistant; the messages before it, equal in both, follow the prompt, or are the prompt where there is
    none or where they begin with it. With a chat format a prompt that is a text is a message of the user.

    Args:
        files: Paths.
        bad: Where bad rows are noted.
        chat_format: How the model writes conversations; None for plain texts alone.
        keys: Keys of prompt, chosen and rejected reply.

    Raises:
        DataError: A missing or bad file, or a row that is no preference.
        ConfigError: If there are not three keys.
    """
    if len(keys) != 3:
        raise ConfigError(f"data.keys must be three, of prompt, chosen and rejected, got {list(keys)}")
    preferences = []
    for file in files:
        for record, origin in read_objects(file, bad):
            try:
                preferences.append(_preference(record, keys, chat_format, origin))
            except ValueError as error:
                bad.add(BAD_PREFERENCE, origin, str(error))
    return preferences


def check_preference(preference: Preference, chat_format: zoo.tokenizers.ChatFormat | None) -> None:
    """Raises a ValueError for replies that are empty or equal, or a conversation that the format does not allow.

    Args:
        preference: The preference.
        chat_format: How the model writes conversations; None for plain texts alone.
    """
    if not preference.chosen.strip() or not preference.rejected.strip():
        raise ValueError("a reply is empty")
    if preference.chosen == preference.rejected:
        raise ValueError(f"the two replies are equal: {shown(preference.chosen)}")
    if isinstance(preference.prompt, str):
        return
    if chat_format is None:
        raise ValueError("messages need a model with a chat format; data.chat_format names one")
    reply = {"role": "assistant", "content": preference.chosen}
    chat_format.check([*preference.prompt, reply], "the conversation", add_reply=False)


def is_preference(preference: Preference, bad: BadLines, chat_format: zoo.tokenizers.ChatFormat | None) -> bool:
    """Returns whether `check_preference` finds nothing wrong, and notes the row otherwise.

    Args:
        preference: The preference.
        bad: Where bad rows are noted.
        chat_format: How the model writes conversations.
    """
    try:
        check_preference(preference, chat_format)
    except ValueError as error:
        bad.add(BAD_PREFERENCE, preference.origin, str(error))
        return False
    return True


def _preference(
    record: Mapping[str, Any], keys: Sequence[str], chat_format: zoo.tokenizers.ChatFormat | None, origin: str
) -> Preference:
    missing = [key for key in keys[1:] if key not in record]
    if missing:
        raise ValueError(f"key missing: {missing[0]!r}; the row has the keys {shown(sorted(record), 300)}")
    prompt, chosen, rejected = (record.get(key) for key in keys)
    begun, replies = [], []
    for key, reply in zip(keys[1:], (chosen, rejected), strict=True):
        before, last = ([], reply) if isinstance(reply, str) else _split(reply, key)
        begun.append(before)
        replies.append(last)
    if begun[0] != begun[1]:
        raise ValueError(f"{keys[1]!r} and {keys[2]!r} must have the same messages before the last one")
    messages = _joined(prompt, begun[0], keys[0], chat_format is not None)
    preference = Preference(messages, *replies, origin)
    check_preference(preference, chat_format)
    return preference


def _split(reply: Any, key: str) -> tuple[list[dict[str, str]], str]:
    """The messages before a reply, and its words."""
    if not isinstance(reply, list) or not reply or not all(_is_message(message) for message in reply):
        raise ValueError(f"{key!r} must be a text or a list of {{'role': text, 'content': text}}, got {shown(reply)}")
    if reply[-1]["role"] != "assistant":
        raise ValueError(f"{key!r} must end with a message of the assistant, got {shown(reply[-1])}")
    return reply[:-1], reply[-1]["content"]


def _joined(prompt: Any, begun: list[dict[str, str]], key: str, is_chat: bool) -> str | list[dict[str, str]]:
    if isinstance(prompt, str):
        if not begun and not is_chat:
            return prompt
        asked = [{"role": "user", "content": prompt}]
        if begun and asked[0] not in begun:
            raise ValueError(f"the messages before the reply must hold the {key!r} {shown(prompt)}")
        return begun or asked
    if prompt is None:
        if not begun:
            raise ValueError(f"key missing: {key!r}, and no message precedes the replies")
        return begun
    if not isinstance(prompt, list) or not prompt or not all(_is_message(message) for message in prompt):
        raise ValueError(f"{key!r} must be a text or a list of {{'role': text, 'content': text}}, got {shown(prompt)}")
    return begun if begun[: len(prompt)] == prompt else [*prompt, *begun]


def _is_message(message: Any) -> bool:
    return (
        isinstance(message, dict)
        and message.keys() == {"role", "content"}
        and all(isinstance(value, str) for value in message.values())
    )


def _date_preferences() -> Splits:
    generator = np.random.default_rng(0)

    def preference(pair: Any) -> Preference:
        question, answer, sentence = DATE_QUESTIONS[int(generator.integers(len(DATE_QUESTIONS)))]
        short = answer(datetime.date.fromisoformat(pair.target))
        prompt = [{"role": "user", "content": question.format(pair.source)}]
        return Preference(prompt, short, sentence.format(short), pair.origin)

    splits = dates.generate(train=2000, validation=200, test=100, seed=1)
    return Splits(*([preference(pair) for pair in pairs] for pairs in splits))


def _english_preferences() -> Splits:
    generator = np.random.default_rng(0)

    def preference(question: Question) -> Preference:
        prompt = [{"role": "user", "content": question.text}]
        wrong = question.wrong[int(generator.integers(len(question.wrong)))]
        return Preference(prompt, question.answer, wrong, question.origin)

    return Splits(*([preference(question) for question in part] for part in english_questions()))


# * `date_preferences`: generated questions about dates; a short answer is preferred to one in a sentence.
# * `english_preferences`: questions about film reviews and news; the right answer is preferred to a wrong one.
PREFERENCES: Loaders = {"date_preferences": _date_preferences, "english_preferences": _english_preferences}


class PreferenceRows:
    """Stands in the place of a preprocessor in `ExampleBatches`: makes the inputs of `zoo.training.ReplyLikelihoods`.

    Args:
        preprocessor: The preprocessor of the `CausalLM`.
        max_length: Most tokens of prompt and reply that are fed; pairs with a longer one are dropped.

    Attributes:
        dropped: The pairs left out by `tokenized`, see `recipes.common.errors.BadLines`.
    """

    def __init__(self, preprocessor: Any, max_length: int) -> None:
        self._preprocessor, self._max_length = preprocessor, max_length
        self.dropped = BadLines("skip")

    def tokenized(self, preferences: Sequence[Preference]) -> tuple[list[Preference], dict[str, tf.RaggedTensor]]:
        """Returns the pairs that the model takes, and their tokens, "ids" and "learned", `(pairs, 2, None)`.

        Args:
            preferences: The preferences.

        Raises:
            DataError: If none is left.
        """
        kept: list[Preference] = []
        parts: dict[str, list[tf.RaggedTensor]] = {"ids": [], "learned": []}
        for start in range(0, len(preferences), _AT_ONCE):
            some = preferences[start : start + _AT_ONCE]
            prompts = [preference.prompt for preference in some for _ in range(2)]
            tokens = zoo.preprocessing.conversations.reply_tokens(
                self._preprocessor,
                prompts,
                [reply for preference in some for reply in (preference.chosen, preference.rejected)],
            )
            lengths = tokens["ids"].row_lengths().numpy().reshape(-1, 2).max(axis=1)
            is_kept = lengths <= self._max_length + 1
            for preference, length, fits in zip(some, lengths, is_kept, strict=True):
                if fits:
                    kept.append(preference)
                else:
                    self.dropped.add(f"longer than {self._max_length} tokens", preference.origin, f"it has {length}")
            for name, rows in tokens.items():
                parts[name].append(tf.ragged.boolean_mask(rows, np.repeat(is_kept, 2)))
        if not kept:
            raise DataError(
                f"none of the {len(preferences)} preferences of a part is left; of all parts {self.dropped.report()}"
            )
        columns = {name: tf.concat(rows, axis=0) for name, rows in parts.items()}
        pairs = {name: tf.RaggedTensor.from_uniform_row_length(rows, 2) for name, rows in columns.items()}
        return kept, pairs

    def examples(self, x: dict[str, tf.RaggedTensor], y: np.ndarray) -> zoo.preprocessing.Examples:
        """Returns tokens with the log-likelihoods of the reference.

        Args:
            x: Tokens, see `tokenized`.
            y: `(pairs, 2)`.
        """
        lengths = tf.reduce_max(x["ids"].row_lengths(axis=2), axis=1).numpy() - 1
        return zoo.preprocessing.Examples(x, tf.constant(y, tf.float32), None, lengths)

    def collate(
        self, tokens: dict[str, tf.RaggedTensor], targets: tf.Tensor, sample_weight: Any, seed: Any = None
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor, None]:
        """Returns the inputs of `ReplyLikelihoods`, `(pairs, 2, length)`, and the targets; a graph function.

        Args:
            tokens, targets: What `examples` returned.
            sample_weight, seed: Not used.
        """
        ids, learned = (tokens[name].merge_dims(0, 1) for name in ("ids", "learned"))
        inputs, labels, _ = self._preprocessor.replace(sequence_length=self._max_length).shifted(ids)
        weights, _ = zoo.preprocessing.token_rows.to_dense(tf.cast(learned[:, 1:], tf.float32), 0, self._max_length)
        columns = {**inputs, "labels": labels, "weights": weights}
        length = tf.shape(labels)[1]
        return {name: tf.reshape(column, [-1, 2, length]) for name, column in columns.items()}, targets, None
