"""A tokenizer whose tokens are single characters."""

from __future__ import annotations

from collections.abc import Iterable

from zoo.tokenizers.sentencepiece import SentencePieceTokenizer

SPECIAL_TOKENS = ("<pad>", "<sos>", "<eos>", "<unk>")


def character_tokenizer(texts: Iterable[str]) -> SentencePieceTokenizer:
    """Returns a tokenizer with a token for each character of the texts, white space and line ends included.

    Padding, start, end and unknown token have the ids 0 to 3. The characters follow in the order of their code points.
    A text of known characters is restored exactly.

    Args:
        texts: Texts, read once.

    Raises:
        ValueError: The texts hold no character.

    Example:

    >>> tokenizer = character_tokenizer(["to be\\n"])
    >>> tokenizer.tokenize(["be to"]).to_list()
    [[6, 7, 5, 9, 8]]
    """
    from sentencepiece import sentencepiece_model_pb2 as schema

    characters = sorted({character for text in texts for character in text})
    if not characters:
        raise ValueError("texts must hold at least one character, got none.")
    model = schema.ModelProto()
    types = model.SentencePiece
    for token in SPECIAL_TOKENS:
        model.pieces.add(piece=token, type=types.UNKNOWN if token == "<unk>" else types.CONTROL)
    for character in characters:
        model.pieces.add(piece=character, type=types.NORMAL)
    model.trainer_spec.model_type = schema.TrainerSpec.CHAR
    model.trainer_spec.vocab_size = len(model.pieces)
    for name, token in zip(("pad", "bos", "eos", "unk"), SPECIAL_TOKENS, strict=True):
        setattr(model.trainer_spec, f"{name}_id", SPECIAL_TOKENS.index(token))
        setattr(model.trainer_spec, f"{name}_piece", token)
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = False
    model.normalizer_spec.remove_extra_whitespaces = False
    model.normalizer_spec.escape_whitespaces = False
    return SentencePieceTokenizer(model.SerializeToString())
