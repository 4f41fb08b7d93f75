"""What is changed in texts before a SentencePiece model sees them, as in the Transformers library; graph functions."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.storage import quote
from zoo.tokenizers.bert_normalization import CharacterTable, compressed_table, normalize_characters
from zoo.tokenizers.distinct import CodePointSet, code_points_of, following, previous
from zoo.tokenizers.offsets import to_characters
from zoo.tokenizers.sentencepiece_operations import SentencePieceOperations
from zoo.tokenizers.tensors import import_tensorflow, join_rows, repeat, row_ids
from zoo.tokenizers.unicode_ranges import WHITE_SPACE

if TYPE_CHECKING:
    import tensorflow as tf

_MOST_STEPS = 16
_SPACE = ord(" ")


class Characters(NamedTuple):
    """Characters of a batch of texts, and where they come from.

    Attributes:
        points: Ragged int32 code points `(batch, None)`.
        starts, ends: For each of the values of `points` the first character of the original text that it stands for,
            and the one after the last: int32.
    """

    points: Any
    starts: Any
    ends: Any

    def origins(self, parts: Any, starts: Any, ends: Any) -> tuple[Any, Any]:
        """Returns what parts of these characters stand for, as `starts` and `ends`.

        Args:
            parts: Ragged tensor of anything with the same rows.
            starts, ends: For each of its values the first of these characters in the row, and the one after the last.
        """
        tf = import_tensorflow()
        counts = parts.row_lengths()
        first = tf.cast(repeat(self.points.row_starts(), counts), tf.int32)
        last = tf.cast(repeat(self.points.row_lengths(), counts), tf.int32) - 1
        begins = tf.gather(self.starts, first + tf.minimum(starts, last))
        return begins, tf.gather(self.ends, first + tf.minimum(tf.maximum(ends - 1, starts), last))


class TextSteps:
    """Changes texts in several steps.

    Args:
        names: Keys of `STEPS`, or "charsmap".
        charsmap: The compiled normalization that the step "charsmap" applies.

    Attributes:
        resources: What a SavedModel must track.

    Raises:
        ValueError: A name is not known, or there is no normalization for "charsmap".

    Example:

    >>> TextSteps(["quotes", "lowercase"]).texts(tf.constant(["``A''"]))
    <tf.Tensor: shape=(1,), dtype=string, numpy=array([b'"a"'], dtype=object)>
    """

    def __init__(self, names: Sequence[str], charsmap: bytes = b"") -> None:
        if len(names) > _MOST_STEPS:
            raise ValueError(f"steps must be at most {_MOST_STEPS}, got {len(names)}.")
        self.resources: list[Any] = []
        self._steps: list[Callable[[Characters], Characters]] = []
        for name in names:
            if name not in STEPS and name != "charsmap":
                raise ValueError(f"steps must be among {sorted([*STEPS, 'charsmap'])}, got {quote(name)}.")
            if name == "charsmap":
                if not charsmap:
                    raise ValueError("steps must not hold 'charsmap' with a model that has no normalization.")
                step = _Charsmap(charsmap)
                self.resources.append(step.resource)
                self._steps.append(step)
            else:
                self._steps.append(STEPS[name])

    def texts(self, texts: tf.Tensor) -> tf.Tensor:
        """`tf.string` `(batch,)` to the changed texts."""
        return _encoded(self.characters(texts).points)

    def characters(self, texts: tf.Tensor) -> Characters:
        """`tf.string` `(batch,)` to the changed texts as characters."""
        tf = import_tensorflow()
        points = code_points_of(texts)
        starts = tf.cast(tf.ragged.range(points.row_lengths()).values, tf.int32)
        characters = Characters(points, starts, starts + 1)
        for step in self._steps:
            characters = step(characters)
        return characters


def _encoded(points: Any) -> Any:
    return import_tensorflow().strings.unicode_encode(points, "UTF-8")


def _mapped(change: Callable[[str], str]) -> Callable[[Characters], Characters]:
    """A step that changes each character without regard to its neighbours."""

    @functools.cache
    def table() -> CharacterTable:
        points = (point for point in range(0x110000) if not 0xD800 <= point < 0xE000)
        changed = {point: tuple(map(ord, change(chr(point)))) for point in points}
        return compressed_table({point: new for point, new in changed.items() if new != (point,)})

    def step(characters: Characters) -> Characters:
        tf = import_tensorflow()
        points = characters.points
        changed = normalize_characters(points, table())
        new = tf.RaggedTensor.from_row_splits(changed.points, changed.row_splits, validate=False)
        taken = changed.sources + tf.cast(repeat(points.row_starts(), new.row_lengths()), tf.int32)
        return Characters(new, tf.gather(characters.starts, taken), tf.gather(characters.ends, taken))

    return step


def _without_accents(character: str) -> str:
    decomposed = unicodedata.normalize("NFKD", character)
    return "".join(part for part in decomposed if not unicodedata.category(part).startswith("M"))


def _normalized(form: str) -> Callable[[Characters], Characters]:
    def step(characters: Characters) -> Characters:
        tf = import_tensorflow()
        import tensorflow_text

        # no row may be empty; a line feed composes with nothing
        texts = tf.strings.join(["\n", _encoded(characters.points)])
        changed, mapping = tensorflow_text.normalize_utf8_with_offsets_map(texts, form)
        points, starts = tf.strings.unicode_decode_with_offsets(changed, "UTF-8", errors="replace")
        lengths = tf.cast(tf.strings.length(changed), tf.int64)
        ends = tf.concat([starts, lengths[:, tf.newaxis]], axis=1)[:, 1:]
        found = (tensorflow_text.find_source_offsets(mapping, part).values for part in (starts, ends))
        places = (points.with_values(part - 1)[:, 1:].values for part in to_characters(texts, points, *found))
        return _derived(characters, points[:, 1:], *places)

    return step


def _derived(characters: Characters, points: Any, starts: Any, ends: Any) -> Characters:
    """Characters that stand for those from `starts` to `ends` of their rows."""
    return Characters(points, *characters.origins(points, starts, ends))


class _Charsmap:
    """The compiled normalization of SentencePiece, by a model that has no tokens but bytes."""

    def __init__(self, charsmap: bytes) -> None:
        from sentencepiece import sentencepiece_model_pb2

        model = sentencepiece_model_pb2.ModelProto()
        piece = model.SentencePiece
        model.pieces.add(piece="<unk>", type=piece.UNKNOWN)
        for byte in range(256):
            model.pieces.add(piece=f"<0x{byte:02X}>", type=piece.BYTE)
        model.pieces.add(piece="\U0010ffff", type=piece.NORMAL)
        trainer, normalizer = model.trainer_spec, model.normalizer_spec
        trainer.model_type, trainer.byte_fallback = trainer.CHAR, True
        trainer.unk_id, trainer.bos_id, trainer.eos_id, trainer.pad_id = 0, -1, -1, -1
        normalizer.precompiled_charsmap = charsmap
        normalizer.add_dummy_prefix = normalizer.remove_extra_whitespaces = normalizer.escape_whitespaces = False
        self._model = SentencePieceOperations(model.SerializeToString(deterministic=True))
        self.resource = self._model.resource
        self._bytes = [b"", *(bytes([byte]) for byte in range(256)), "\U0010ffff".encode()]
        tf = import_tensorflow()
        with tf.init_scope(), tf.device("CPU:0"):
            self._replaces_returns = self._model.tokenize(tf.constant(["\r"])).numpy().tolist() != [[1 + ord("\r")]]

    def __call__(self, characters: Characters) -> Characters:
        tf = import_tensorflow()
        if self._replaces_returns:  # the library replaces a line break of two characters as one
            characters = _JOIN_BREAKS(characters)
        texts = _encoded(characters.points)
        ids, starts, ends = self._model.tokenize_with_offsets(texts)
        changed = join_rows(ids.with_values(tf.gather(tf.constant(self._bytes), ids.values)))
        # the last byte of a character has its place in the text
        points, offsets = tf.strings.unicode_decode_with_offsets(changed, "UTF-8", errors="replace")
        lengths = tf.cast(tf.strings.length(changed), tf.int64)
        last = tf.concat([offsets, lengths[:, tf.newaxis]], axis=1)[:, 1:] - 1
        places = last.values + repeat(ids.row_starts(), points.row_lengths())
        found = (tf.gather(part, places) for part in (starts, ends))
        return _derived(characters, points, *to_characters(texts, points, *found))


def _replaced(
    change: Callable[[Any, Any, Any], tuple[Any, Any]], in_pairs: bool = False
) -> Callable[[Characters], Characters]:
    """A step that replaces or drops characters.

    Args:
        change: Called with all code points `(characters,)`, and whether each begins and ends its row. Returns the new
            code points and which of them are kept.
        in_pairs: Whether what is dropped belongs to the character before it.
    """

    def step(characters: Characters) -> Characters:
        tf = import_tensorflow()
        points, row_splits = characters.points.values, characters.points.row_splits
        rows = row_ids(characters.points.row_splits)
        begins = rows != previous(rows, -1)
        ends = rows != following(rows, -1)
        new, is_kept = change(points, begins, ends)
        before = tf.concat([[0], tf.cumsum(tf.cast(is_kept, tf.int64))], axis=0)
        kept = tf.RaggedTensor.from_row_splits(
            tf.boolean_mask(new, is_kept), tf.gather(before, row_splits), validate=False
        )
        stops = characters.ends
        if in_pairs:
            stops = tf.where(following(is_kept, True), stops, following(stops, 0))
        return Characters(kept, *(tf.boolean_mask(part, is_kept) for part in (characters.starts, stops)))

    return step


def _place_in_run(continues: Any) -> Any:
    """Numbers from 0 in each run; `continues` is whether a character is in the same run as the one before."""
    place = import_tensorflow().range(import_tensorflow().size(continues))
    return place - _last_true(~continues, place)


def _last_true(flags: Any, place: Any) -> Any:
    """Place of the last true flag up to each place; the first one is true."""
    tf = import_tensorflow()
    found = tf.boolean_mask(place, flags)
    return tf.gather(found, tf.maximum(tf.cumsum(tf.cast(flags, tf.int32)) - 1, 0))


def _join_breaks(points: Any, begins: Any, ends: Any) -> tuple[Any, Any]:
    return points, (points != ord("\n")) | (previous(points, -1) != ord("\r")) | begins


_JOIN_BREAKS = _replaced(_join_breaks)


def _quotes(points: Any, begins: Any, ends: Any) -> tuple[Any, Any]:
    """Two backticks or two apostrophes are a quotation mark."""
    tf = import_tensorflow()
    is_quote = (points == ord("`")) | (points == ord("'"))
    continues = is_quote & (points == previous(points, -1)) & ~begins
    is_second = continues & (_place_in_run(continues) % 2 == 1)
    return tf.where(following(is_second, False), ord('"'), points), ~is_second


def _is_space(points: Any) -> Any:
    return CodePointSet(WHITE_SPACE).holds(points)


def _words(points: Any, begins: Any, ends: Any) -> tuple[Any, Any]:
    """Words with one space between them, but none before one that begins with U+2581, which stands for a space."""
    tf = import_tensorflow()
    is_space = _is_space(points)
    is_last = is_space & ~following(is_space, False)
    is_between = _outside(is_space, begins) & tf.reverse(
        _outside(tf.reverse(is_space, [0]), tf.reverse(ends, [0])), [0]
    )
    before_mark = following(points, -1) == ord("\u2581")
    return tf.where(is_space, _SPACE, points), is_between & (~is_space | is_last & ~before_mark)


def _line_feeds(points: Any, begins: Any, ends: Any) -> tuple[Any, Any]:
    tf = import_tensorflow()
    return tf.where(points == ord("\n"), _SPACE, points), tf.ones_like(points, tf.bool)


def _collapsed(points: Any, begins: Any, ends: Any) -> tuple[Any, Any]:
    """Several characters of white space, or one line break or tab, are a space."""
    tf = import_tensorflow()
    is_space = _is_space(points)
    continues = is_space & previous(is_space, False) & ~begins
    is_changed = is_space & following(continues, False) | (points == 9) | (points == 10) | (points == 13)
    return tf.where(is_changed, _SPACE, points), ~continues


def _several_spaces(points: Any, begins: Any, ends: Any) -> tuple[Any, Any]:
    is_space = points == _SPACE
    return points, ~(is_space & previous(is_space, False) & ~begins)


def _outer_spaces(points: Any, begins: Any, ends: Any) -> tuple[Any, Any]:
    """Drops spaces at both ends of a text."""
    tf = import_tensorflow()
    kept = _outside(points == _SPACE, begins)
    return points, kept & tf.reverse(_outside(tf.reverse(points == _SPACE, [0]), tf.reverse(ends, [0])), [0])


def _strip_right(points: Any, begins: Any, ends: Any) -> tuple[Any, Any]:
    """Drops white space at the end of a text."""
    tf = import_tensorflow()
    return points, tf.reverse(_outside(tf.reverse(_is_space(points), [0]), tf.reverse(ends, [0])), [0])


def _strip_left(points: Any, begins: Any, ends: Any) -> tuple[Any, Any]:
    """Drops white space at the beginning of a text."""
    return points, _outside(_is_space(points), begins)


def _outside(is_space: Any, begins: Any) -> Any:
    """Which characters are not among the spaces with which their row begins."""
    tf = import_tensorflow()
    is_word = tf.cast(~is_space, tf.int32)
    words = tf.cumsum(is_word)
    return words > tf.gather(words - is_word, _last_true(begins, tf.range(tf.size(is_space))))


STEPS: dict[str, Callable[[Characters], Characters]] = {
    "collapse_white_space": _replaced(_collapsed),
    "line_feeds": _replaced(_line_feeds),
    "lowercase": _mapped(lambda character: character.lower()),
    "nfc": _normalized("NFC"),
    "nfkc": _normalized("NFKC"),
    "outer_spaces": _replaced(_outer_spaces),
    "quotes": _replaced(_quotes, in_pairs=True),
    "several_spaces": _replaced(_several_spaces),
    "strip_accents": _mapped(_without_accents),
    "strip_left": _replaced(_strip_left),
    "strip_right": _replaced(_strip_right),
    "words": _replaced(_words),
}
