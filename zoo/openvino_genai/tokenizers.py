"""Tokenizers as graphs of OpenVINO, made by openvino-tokenizers from the files of the Transformers library."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.export.sample_texts import SAMPLE_TEXTS

TOKENIZER, DETOKENIZER = "openvino_tokenizer.xml", "openvino_detokenizer.xml"
SEGMENTS = "token_type_ids"
_ELSE = "The format 'openvino' takes token ids, and a SavedModel (format='tf_saved_model') takes strings."


def write_tokenizers(task: Any, folder: Path, texts: Sequence[str] = SAMPLE_TEXTS) -> None:
    """Writes `openvino_tokenizer.xml` and `openvino_detokenizer.xml`, and checks that they do what the tokenizer does.

    As in the Transformers library, special tokens within a text are read as such. Texts of a batch are padded on the
    left.

    Args:
        task: A task that writes texts.
        folder: The folder, which has the files of `save_huggingface`.
        texts: Texts for which ids must be the same, and from ids the texts.

    Raises:
        ValueError: If the tokenizer cannot be converted, or the result differs for a text. The message shows it.
    """
    import openvino

    models = _converted(task, folder, with_detokenizer=True, padding_side="left")
    for name, model in zip((TOKENIZER, DETOKENIZER), models, strict=True):
        openvino.save_model(model, folder / name)
    _require_same(task, [openvino.Core().compile_model(model, "CPU") for model in models], texts)


def write_row_tokenizer(task: Any, folder: Path, segments: bool, texts: Sequence[str] = SAMPLE_TEXTS) -> None:
    """Writes `openvino_tokenizer.xml` for rows of a text or a pair, and checks that it does what the task does.

    It is compared as the pipelines use it. Special tokens within a text are read as such, and texts of a batch are
    padded on the right.

    Args:
        task: A task that reads texts, or pairs of texts.
        folder: The folder, which has the files of `save_huggingface`.
        segments: Whether it also says to which text of a pair a token belongs.
        texts: Texts for which ids must be the same.

    Raises:
        ValueError: If the tokenizer cannot be converted, does not take pairs, or differs for a text.
    """
    import openvino
    import openvino_genai

    kind, pairs = type(task.tokenizer).__name__, len(task.preprocessor.text_names) == 2
    names = ["input_ids", *[SEGMENTS] * segments, "attention_mask"]
    model = _converted(task, folder, with_detokenizer=False, padding_side="right", model_input_names=names)
    openvino.save_model(model, folder / TOKENIZER)
    try:
        tokenizer = openvino_genai.Tokenizer(folder, add_second_input=pairs)
    except RuntimeError as error:
        raise ValueError(
            f"The format 'openvino_genai' cannot hold this {kind}, OpenVINO GenAI makes no tokenizer of pairs of it: "
            f"{_short(error)} {_ELSE}"
        ) from error
    # the second text of a pair is another one
    columns = [list(texts), list(texts[::-1])] if pairs else [list(texts)]
    encoded = tokenizer.encode(*columns)
    mask = encoded.attention_mask.data > 0
    found = [row[real].tolist() for row, real in zip(encoded.input_ids.data, mask, strict=True)]
    tokens = tuple(task.tokenizer.tokenize(column, special_tokens=True) for column in columns)
    ids, _ = task.preprocessor.replace(truncate=False).packed(tokens)
    for index, expected in enumerate(ids.to_list()):
        if found[index] != expected:
            shown = tuple(column[index] for column in columns) if pairs else columns[0][index]
            raise ValueError(_differing(kind, shown, found[index], expected))


def _converted(task: Any, folder: Path, *, with_detokenizer: bool, **options: Any) -> Any:
    """The tokenizer of a folder as a graph, and if wanted the detokenizer.

    Args:
        task: The task.
        folder: The folder.
        with_detokenizer: Whether to make a detokenizer, too.
        **options: What the files do not say of the tokenizer of the Transformers library.
    """
    # openvino-tokenizers asks whether the library is imported; it needs no PyTorch, which the library warns about
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    import transformers
    from openvino_tokenizers import convert_tokenizer

    try:
        loaded = transformers.PreTrainedTokenizerFast.from_pretrained(folder, **options)
        return convert_tokenizer(loaded, with_detokenizer=with_detokenizer)
    except Exception as error:  # noqa: BLE001 (the converter raises errors of many kinds)
        raise ValueError(
            f"The format 'openvino_genai' cannot hold this {type(task.tokenizer).__name__}, openvino-tokenizers says: "
            f"{_short(error)} {_ELSE}"
        ) from error


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:600] or type(error).__name__


def _differing(kind: str, text: Any, found: list[int], expected: list[int]) -> str:
    return (
        f"openvino-tokenizers gives other ids than the {kind} of this model for the text {text!r}: {found} and "
        f"not {expected}. {_ELSE}"
    )


def _require_same(task: Any, programs: Sequence[Any], texts: Sequence[str]) -> None:
    kind = type(task.tokenizer).__name__
    to_ids, to_text = programs
    start_id = task.preprocessor.special_tokens()["start_id"]
    start = [] if start_id is None else [start_id]
    every, plain = (task.tokenizer.tokenize(list(texts), special_tokens=special).to_list() for special in (True, False))
    for text, with_special, ids in zip(texts, every, plain, strict=True):
        expected, found = [*start, *with_special], [int(index) for index in to_ids([text])["input_ids"][0]]
        if found != expected:
            raise ValueError(_differing(kind, text, found, expected))
        # the runtime leaves out all special tokens, the unknown one, too
        if not ids or task.tokenizer.unknown_id in ids:
            continue
        written, back = (
            str(task.tokenizer.detokenize([ids]).numpy()[0], "utf-8"),
            str(to_text([ids])["string_output"][0]),
        )
        if back != written:
            raise ValueError(
                f"openvino-tokenizers writes another text than the {kind} of this model for the ids {ids}: {back!r} "
                f"and not {written!r}. The format 'openvino' gives token ids, and a SavedModel "
                "(format='tf_saved_model') strings."
            )
