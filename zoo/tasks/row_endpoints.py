"""Endpoints of continuous batching: a server generates many texts at once, each with its own beginning and end."""

import dataclasses
from typing import Any

from zoo.export import Endpoint, Field
from zoo.generation.alternatives import MOST_ALTERNATIVES
from zoo.generation.chat import AnswerEdges, given_messages, with_end_of_turn
from zoo.generation.request import split_stops
from zoo.generation.rows import RowDecoder
from zoo.generation.texts import continuations
from zoo.generation.token_masks import spellings_of
from zoo.tasks.score_tokens_endpoint import score_tokens_endpoint
from zoo.tasks.token_fields import LENGTHS, TOKENS, padded, ragged

_ROWS = ("rows",)
_BEGUN = (
    Field("token_ids", ("rows", "length"), "int32", "tokens of prompts, all but the last of each, padded behind"),
    Field("lengths", _ROWS, "int32", "number of these tokens; rows with 0 stay as they are"),
    Field("index", _ROWS, "int32", "number of tokens that each row has been fed"),
)
_ADVANCED = (
    Field("token_ids", _ROWS, "int32", "the token of each row that is not fed yet"),
    Field("index", _ROWS, "int32", "number of tokens that each row has been fed"),
    Field("places", _ROWS, "int32", "number of tokens that each row has written"),
    Field("limits", _ROWS, "int32", "most tokens that each row may write; a row that has no more left rests"),
    Field("end_ids", ("rows", "ends"), "int32", "ids that end each row, filled up with -1"),
    Field("seeds", _ROWS, "int64", "seed of each row, from 0 to 2**32 - 1"),
    Field("streams", _ROWS, "int32", "stream of random numbers of each row, 0 for a text alone"),
    Field("temperature", _ROWS, "float32", "0 for the most probable token"),
    Field("top_k", _ROWS, "int32", "0 keeps all tokens"),
    Field("top_p", _ROWS, "float32", "1 keeps all tokens"),
    Field("min_p", _ROWS, "float32", "0 keeps all tokens"),
    Field("written", ("rows", "written"), "int32", "tokens that rows with a penalty have written, filled up with -1"),
    Field("presence_penalty", _ROWS, "float32", "0 changes nothing"),
    Field("frequency_penalty", _ROWS, "float32", "0 changes nothing"),
    Field("bias_ids", ("rows", "biases"), "int32", "tokens with a bias, filled up with -1"),
    Field("biases", ("rows", "biases"), "float32", "what is added to their logits"),
    Field("min_tokens", _ROWS, "int32", "tokens before one that ends the row"),
    Field("allowed", ("rows", "words"), "int32", "bits of the tokens that each row may go on with; no words: all"),
    Field("alternatives", (), "int32", f"most probable tokens that are told, at most {MOST_ALTERNATIVES}"),
    Field("steps", (), "int32", "most tokens that are written now"),
)
_WRITTEN = (
    Field("token_ids", ("rows", "steps"), "int32", "new tokens, -1 behind an end"),
    Field("log_probabilities", ("rows", "steps"), "float32", "of the new tokens, 0 behind an end"),
    Field("lengths", _ROWS, "int32", "number of new tokens, an end token included"),
    Field("ended", _ROWS, "bool", "whether the last of them is an end token"),
    Field("alternative_ids", ("rows", "steps", "alternatives"), "int32", "the most probable tokens of each place"),
    Field("alternative_log_probabilities", ("rows", "steps", "alternatives"), "float32", "of these tokens"),
)
_CONTINUED = (
    Field("prompts", ("batch", "prompt_length"), "int32", "tokens before, -1 behind those of a row"),
    Field("token_ids", ("batch", "length"), "int32", "generated tokens without an end, -1 behind those of a row"),
)
_IDS = Field("token_ids", ("batch",), "int32", "ids of tokens")
_SPELLINGS = Field(
    "spellings", ("batch",), "string", "what each token adds to a text; empty for those that no text has"
)
_TEXTS = Field("texts", ("batch",), "string", "what the generated tokens add to the text; may end within a character")


def row_endpoints(
    generator: Any, chosen: Any, truncate: bool | None, texts: Field, messages: tuple[Field, ...]
) -> dict[str, Any]:
    """Returns the endpoints of continuous batching of a model that continues texts.

    * `tokens(texts)`, `chat_tokens(roles, contents)`: the token ids of prompts;
    * `begin(token_ids, lengths, index, state)`: feeds prompts, whole or in pieces; returns the state;
    * `advance(token_ids, ..., steps, state)`: writes some tokens in each row; returns them, and the state;
    * `continuation(prompts, token_ids)`, `chat_continuation`: the texts of generated tokens;
    * `spellings(token_ids)`: what each token adds to a text, in bytes, for texts that follow grammars;
    * `score_tokens(token_ids, alternatives)`: the log-probability of each token of given texts.

    The state has one tensor per cache, with rows on the first axis. Each tensor is an input and an output. The
    properties of `advance` hold what a server needs to know of the model: ends, lengths, the sampler of the export.

    Args:
        generator: The `TextGenerator` of the task.
        chosen: Its `GenerationDefaults`, with the arguments of the export.
        truncate: Whether prompts that are too long lose their beginning; None for the choice of the preprocessor.
        texts, messages: The inputs of `tokens` and `chat_tokens`.

    Returns:
        The endpoints. There are none if generation depends on more than the settings of a row: logit processors,
        sequences of tokens that end a text, samplers other than `Greedy` and `Sample` (without `typical_p`), and
        backbones whose rows depend on each other.
    """
    options = generator.options(**chosen.options(), stop_sequences=split_stops(chosen.stop)[1], jit_compile=False)
    settings = options.sampler.row_settings
    is_plain = settings is not None and not options.processors and not options.stop_sequences
    if not (generator.backbone.decodes_rows and is_plain):
        return {}
    decoder, preprocessor = RowDecoder(generator.backbone), generator.preprocessor
    tokenizer = preprocessor.tokenizer
    truncate = preprocessor.truncate if truncate is None else truncate
    longest, most = chosen.max_length or generator.longest, chosen.max_new_tokens
    state = tuple(
        Field(tensor.name, tensor.shape, tensor.dtype, "state: part of the caches") for tensor in decoder.tensors
    )
    names = [field.name for field in state]

    def tokens(texts: Any) -> Any:
        return padded(preprocessor.prompts(texts, None, truncate, longest, most)[0])

    def begin(token_ids: Any, lengths: Any, index: Any, *state: Any) -> Any:
        return dict(zip(names, decoder.begin(token_ids, lengths, index, state), strict=True))

    def advance(*inputs: Any) -> Any:
        row_inputs, state = inputs[: len(_ADVANCED)], inputs[len(_ADVANCED) :]
        written = decoder.advance(state, *row_inputs)
        return dict(zip(names, written.pop("state"), strict=True)) | written

    def continuation(prompts: Any, token_ids: Any) -> Any:
        return continuations(tokenizer, ragged(prompts[:, preprocessor.start_tokens :]), ragged(token_ids))

    vocabulary_size = generator.backbone.config.vocabulary_size
    known_spellings = spellings_of(tokenizer, vocabulary_size)

    def spellings(token_ids: Any) -> Any:
        import tensorflow as tf

        return tf.gather(tf.constant(known_spellings), token_ids)

    properties = {
        "vocabulary_size": vocabulary_size,
        "max_length": longest,
        "max_new_tokens": options.max_new_tokens,
        "unstable_tokens": tokenizer.unstable_tokens,
        "settings": settings,
        "state": [dataclasses.asdict(tensor) for tensor in decoder.tensors],
        "texts": _ends(options.end_ids, chosen, AnswerEdges()),
    }
    endpoints = {
        "tokens": Endpoint(tokens, (texts,), (TOKENS, LENGTHS), "Tokens of prompts."),
        "begin": Endpoint(begin, (*_BEGUN, *state), state, "Feeds prompts."),
        "advance": Endpoint(advance, (*_ADVANCED, *state), (*_WRITTEN, *state), "Writes some tokens.", properties),
        "continuation": Endpoint(continuation, _CONTINUED, (_TEXTS,), "Texts of generated tokens."),
        "spellings": Endpoint(spellings, (_IDS,), (_SPELLINGS,), "What tokens add to a text."),
        "score_tokens": score_tokens_endpoint(generator.backbone),
    }
    if getattr(tokenizer, "chat_format", None) is None or not preprocessor.takes_conversations:
        return endpoints
    answering = with_end_of_turn(chosen, tokenizer)
    ends = generator.options(**answering.options()).end_ids
    chat_format = tokenizer.chat_format
    properties["chat"] = {**_ends(ends, answering, AnswerEdges.of(chat_format)), "format": chat_format.to_dict()}
    keep = preprocessor.kept_tokens(longest, most) if truncate else None

    def chat_tokens(roles: Any, contents: Any) -> Any:
        return padded(preprocessor.chat_ids(*given_messages(roles, contents), keep))

    def chat_continuation(prompts: Any, token_ids: Any) -> Any:
        return continuations(tokenizer, ragged(prompts), ragged(token_ids), anew=True)

    return endpoints | {
        "chat_tokens": Endpoint(chat_tokens, messages, (TOKENS, LENGTHS), "Tokens of conversations."),
        "chat_continuation": Endpoint(chat_continuation, _CONTINUED, (_TEXTS,), "Words of generated answers."),
    }


def _ends(end_ids: tuple[int, ...], chosen: Any, edges: AnswerEdges) -> dict[str, Any]:
    """What ends a text, and what is cut off at its edges."""
    return {"end_ids": list(end_ids), "stop": split_stops(chosen.stop)[0], **dataclasses.asdict(edges)}
