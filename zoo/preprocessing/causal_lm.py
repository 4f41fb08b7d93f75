"""Texts, prompts and packed texts of a language model."""

import warnings
from typing import Any

import keras
import numpy as np

from zoo.preprocessing.conversations import (
    LOSS_ON,
    are_conversations,
    check_conversations,
    conversation_tokens,
    packed_rows,
)
from zoo.preprocessing.packing import packed_dataset
from zoo.preprocessing.preprocessor import Preprocessor
from zoo.preprocessing.rows import shorten
from zoo.preprocessing.token_rows import add_start_end, to_dense
from zoo.tokenizers.chat import chat_tokens
from zoo.tokenizers.tensors import keep_values, row_ids


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class CausalLMPreprocessor(Preprocessor):
    """Preprocessing of causal language models: texts, prompts and conversations.

    A training text is a start token, its tokens and an end token, if the tokenizer has these. A prompt has no end
    token. Conversations are lists of messages, written in the chat format of the tokenizer.

    Args:
        tokenizer: The tokenizer; None for use on token level.
        sequence_length, truncate: See `Preprocessor`. The model reads all tokens of a text but the last.
        add_start_token: Whether texts begin with the tokenizer's start token. None: if there is one that is not also
            the end token (Llama: yes, GPT-2: no). An empty prompt always has it.

    Raises:
        ValueError: If an argument is out of range, or `add_start_token` is true and there is no start token.

    Example:

    >>> preprocessor.prompt_ids(tf.constant(["a small dog"])).to_list()
    [[1, 9, 214, 31]]
    """

    added_tokens = "start token"
    packs_texts = True
    truncation_hint = "Shorten it, or pass packed=True to fit(), which cuts texts into rows."

    def __init__(
        self,
        tokenizer: Any = None,
        *,
        sequence_length: int | None = None,
        truncate: bool = False,
        add_start_token: bool | None = None,
        loss_on: str = "replies",
    ) -> None:
        super().__init__(tokenizer, sequence_length=sequence_length, truncate=truncate)
        if loss_on not in LOSS_ON:
            raise ValueError(f"loss_on must be one of {LOSS_ON}, got {loss_on!r}.")
        if add_start_token not in (None, True, False):
            raise ValueError(f"add_start_token must be True, False or None, got {add_start_token!r}.")
        start_id = None if tokenizer is None else tokenizer.start_id
        if add_start_token and tokenizer is not None and start_id is None:
            raise ValueError("add_start_token must be False or None with a tokenizer without a start token, got True.")
        self.add_start_token, self.loss_on = add_start_token, loss_on
        self.adds_start_token = bool(add_start_token)
        if add_start_token is None or tokenizer is None:
            self.adds_start_token = start_id is not None and start_id != tokenizer.end_id
            if start_id is not None and tokenizer.adds_start is not None:
                self.adds_start_token = tokenizer.adds_start

    def special_tokens(self) -> dict[str, int | None]:
        """Returns the ids of the tokens that stand around a prompt."""
        start_id = self.require_tokenizer("Text input").start_id
        return {"start_id": start_id if self.adds_start_token else None, "end_id": None}

    def text_ids(self, texts: Any, end: bool = True) -> Any:
        """Returns the token ids of whole texts, with start and end token; a graph function.

        Args:
            texts: String tensor `(batch,)`.
            end: Whether an end token is added, where the tokenizer has one.

        Returns:
            Ragged int32 `(batch, None)`.
        """
        tokenizer, start_id = self.require_tokenizer("Text input"), self.special_tokens()["start_id"]
        return add_start_end(tokenizer.tokenize(texts), start_id, tokenizer.end_id if end else None)

    def prompt_ids(self, texts: Any, keep: int | None = None) -> Any:
        """Returns the token ids of prompts, with the start token; a graph function.

        Args:
            texts: String tensor `(batch,)`.
            keep: Largest number of tokens of a prompt. Longer ones lose their beginning, but not the start token.

        Returns:
            Ragged int32 `(batch, None)`.
        """
        import tensorflow as tf

        tokenizer = self.require_tokenizer("Text input")
        ids = tokenizer.tokenize(texts)
        if keep is not None:
            ids = ids[:, -(keep - int(self.adds_start_token)) :]
        if self.adds_start_token:
            return add_start_end(ids, tokenizer.start_id, None)
        if tokenizer.start_id is None:
            return ids
        # something must be fed
        empty = tf.cast(ids.row_lengths() == 0, tf.int64)
        start = tf.RaggedTensor.from_row_lengths(tf.repeat(tokenizer.start_id, tf.reduce_sum(empty)), empty)
        return tf.concat([start, ids], axis=1)

    # for generation: whether outputs can begin with a given text, and how many tokens of a prompt are no text
    takes_beginnings = False
    takes_conversations = True
    start_tokens = 0

    def chat_ids(self, roles: Any, contents: Any, keep: int | None = None) -> Any:
        """Returns the token ids of conversations that ask for a reply; a graph function.

        Args:
            roles, contents: Ragged string tensors `(batch, None)`. A conversation that the chat format of the tokenizer
                does not allow raises an `InvalidArgumentError` that names the rows.
            keep: Largest number of tokens of a conversation. Longer ones lose their beginning, but not a control token
                there.

        Returns:
            Ragged int32 `(batch, None)`.
        """
        import tensorflow as tf

        tokenizer = self.require_tokenizer("A conversation")
        ids = chat_tokens(tokenizer, roles, contents).ids
        if keep is None:
            return ids
        first = tokenizer.are_silent(ids[:, :1].to_tensor(-1, shape=[None, 1])[:, 0])
        places = tf.ragged.range(ids.row_lengths()).values
        rows = row_ids(ids.row_splits)
        kept = tf.cast(first, tf.int64)
        is_kept = (places < tf.gather(kept, rows)) | (places >= tf.gather(ids.row_lengths() - keep + kept, rows))
        return keep_values(ids, is_kept)

    def prompts(
        self, texts: Any, beginnings: Any, truncate: bool, longest: int, max_new_tokens: int | None
    ) -> tuple[Any, None]:
        """Returns the token ids of prompts, ragged int32 `(batch, None)`, and None; a graph function.

        Args:
            texts: String tensor `(batch,)`.
            beginnings: None.
            truncate: Whether long prompts lose their beginning.
            longest: Most tokens of prompt and continuation.
            max_new_tokens: Number of tokens that must fit after a prompt that is cut.
        """
        return self.prompt_ids(texts, self.kept_tokens(longest, max_new_tokens) if truncate else None), None

    def kept_tokens(self, longest: int, max_new_tokens: int | None) -> int:
        """Returns the number of tokens that are kept of a prompt that is cut.

        Args:
            longest: Largest number of tokens of prompt and continuation.
            max_new_tokens: Number of tokens that must fit after the prompt. None for a quarter of `longest`. At least a
                quarter of `longest` is kept in any case.
        """
        quarter = max(longest // 4, 1)
        keep = longest - min(quarter if max_new_tokens is None else max_new_tokens, longest - quarter)
        return max(min(keep, longest - 1), 1 + int(self.adds_start_token))

    def check_prompts(self, texts: Any, prompts: Any, sources: Any, longest: int, truncate: bool) -> None:
        """Raises a ValueError that names the first prompt that cannot be continued."""
        for row, length in enumerate(prompts.row_lengths().numpy()):
            if not length:
                raise ValueError(
                    f"texts[{row}] must have a token, as the tokenizer has no start token to go on from, got none."
                )
            if length >= longest:
                raise ValueError(
                    f"texts[{row}] must leave room for one more token below max_length={longest}, got {length}: "
                    f"{shorten(texts[row].numpy().decode('utf-8', 'replace'))}. Shorten it, or pass truncate=True "
                    "to keep its end."
                )

    def tokens(self, x: Any) -> Any:
        """Returns `prompt_ids(x)`."""
        return self.prompt_ids(x)

    def token_counts(self, tokens: Any) -> Any:
        return tokens.row_lengths()

    def inputs(self, tokens: Any) -> dict[str, Any]:
        if self.truncate:
            # what comes next depends on the end of a text
            tokens = tokens[:, -self.sequence_length :]
        token_ids, mask = to_dense(tokens, self.pad_id, self.sequence_length)
        return {"token_ids": token_ids, "padding_mask": mask}

    def check_training_rows(self, x: Any, name: str) -> Any:
        """Returns checked texts, or conversations as "roles" and "contents"; eager."""
        if are_conversations(x):
            return check_conversations(self.require_tokenizer("A conversation"), x, name, self.loss_on)
        return self.check_rows(x, name)

    def training_tokens(self, x: Any) -> Any:
        """Returns `text_ids(x)`; of conversations the ids and which of them are learned, "ids" and "learned"."""
        if isinstance(x, dict):
            return conversation_tokens(self.tokenizer, x, self.loss_on)
        return self.text_ids(x)

    def training_counts(self, tokens: Any) -> Any:
        """Returns the number of tokens that are fed of each text: all but the last, `(batch,)`."""
        import tensorflow as tf

        ids = tokens["ids"] if isinstance(tokens, dict) else tokens
        return tf.maximum(ids.row_lengths() - 1, 0)

    def check_lengths(self, x: Any, tokens: Any, lengths: np.ndarray, name: str) -> None:
        if not isinstance(tokens, dict):
            return super().check_lengths(x, tokens, lengths, name)
        # packing cuts texts alone
        self.check_fits(x, lengths, name, hint="Shorten it, or pass truncate=True to the preprocessor to cut its end.")
        if self.truncate and self.sequence_length is not None:
            # what is learned may stand behind the cut
            seen = tokens["learned"][:, 1 : self.sequence_length + 1].to_list()
            lost = sum(not any(row) for row in seen)
            found = f"{lost} of {len(seen)} conversations in {name} are cut before what is learned"
            if lost == len(seen):
                raise ValueError(f"{found}: shorten them.")
            if lost:
                warnings.warn(f"{found}: nothing is learned from them.", stacklevel=6)
        return None

    def collate(self, tokens: Any, targets: Any, sample_weight: Any, seed: Any = None) -> tuple[Any, Any, Any]:
        """Returns all tokens but the last as inputs, all but the first as labels, `(batch, length)`, and weights."""
        import tensorflow as tf

        if self.truncate:
            tokens = tf.nest.map_structure(lambda rows: rows[:, : self.sequence_length + 1], tokens)
        if isinstance(tokens, dict):
            inputs, labels, _ = self.shifted(tokens["ids"])
            weights, _ = to_dense(tf.cast(tokens["learned"][:, 1:], tf.float32), 0, self.sequence_length)
        else:
            inputs, labels, mask = self.shifted(tokens)
            weights = tf.cast(mask, tf.float32)
        if sample_weight is not None:
            weights *= tf.cast(sample_weight, tf.float32)[:, tf.newaxis]
        return inputs, labels, weights

    def packed(self, rows: Any, members: Any, length: int) -> tuple[Any, Any, Any]:
        """Returns rows of whole conversations that do not see each other, see `packed_rows`; a graph function.

        Args:
            rows: What `examples` made of conversations.
            members: Numbers of the conversations of each row, ragged int64 `(batch, None)`.
            length: Tokens of a row.
        """
        import tensorflow as tf

        tokens = rows.tokens
        if self.truncate:
            tokens = tf.nest.map_structure(lambda ids: ids[:, : length + 1], tokens)
        return packed_rows(tokens, rows.weights, members, length, self.pad_id)

    def shifted(self, ids: Any) -> tuple[dict[str, Any], Any, Any]:
        """Returns token-level inputs, labels and the mask of the labels, of ragged ids; a graph function.

        Args:
            ids: Token ids of texts, `(batch, None)`.
        """
        token_ids, mask = to_dense(ids[:, :-1], self.pad_id, self.sequence_length)
        labels, _ = to_dense(ids[:, 1:], self.pad_id, self.sequence_length)
        return {"token_ids": token_ids, "padding_mask": mask}, labels, mask

    def score_batch(self, prompts: Any, texts: Any, with_end: bool = False) -> tuple[dict[str, Any], Any, Any]:
        """Returns token-level inputs, labels and the mask of the labels that count, padded; a graph function.

        Prompt and text are tokenized together. The labels that count begin with the first token that differs from the
        tokens of the prompt alone.

        Args:
            prompts, texts: String tensors `(batch,)`.
            with_end: Whether the end token counts too.
        """
        import tensorflow as tf

        ids = self.text_ids(tf.strings.join([prompts, texts]), end=with_end)
        inputs, labels, mask = self.shifted(ids)
        length = tf.shape(labels)[1]
        # the first token has no label; what fills the rows behind a prompt is no token
        before = self.text_ids(prompts, end=False)[:, 1 : length + 1].to_tensor(-1, shape=tf.stack([-1, length]))
        shared = tf.math.cumprod(tf.cast(before == labels, tf.int32), axis=1)
        return inputs, labels, mask & (shared == 0)

    def packed_dataset(
        self,
        texts: Any,
        batch_size: int | None = None,
        length: int | None = None,
        *,
        sample_weight: Any = None,
        shuffle: bool = True,
        names: tuple[str, str] = ("x", "sample_weight"),
    ) -> Any:
        """Returns texts end to end in rows of one length, or rows of whole conversations, see `packing.packed_dataset`.

        Args:
            texts, batch_size, length, sample_weight, shuffle, names: As there.
        """
        self.require_tokenizer("Text input")
        options = {"sample_weight": sample_weight, "shuffle": shuffle, "names": names}
        return packed_dataset(self, texts, batch_size, length, **options)
