"""Tokenizers as graphs of OpenVINO, made by openvino-tokenizers from the files of the Transformers library."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.export.sample_texts import SAMPLE_TEXTS

FILES = ("openvino_tokenizer", "openvino_detokenizer")


def write_tokenizers(task: Any, folder: Path, texts: Sequence[str] = SAMPLE_TEXTS) -> None:
    """Writes `openvino_tokenizer.xml` and `openvino_detokenizer.xml`, and checks that they do what the tokenizer does.

    As in the Transformers library, special tokens within a text are read as such. Texts of a batch are padded on the
    left.

    Args:
        task: The task.
        folder: The folder, which has the files of `save_huggingface`.
        texts: Texts for which ids must be the same, and from ids the texts.

    Raises:
        ValueError: If the tokenizer cannot be converted, or the result differs for a text. The message shows it.
    """
    # openvino-tokenizers asks whether the library is imported; it needs no PyTorch, which the library warns about
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    import openvino
    import transformers
    from openvino_tokenizers import convert_tokenizer

    kind = type(task.tokenizer).__name__
    try:
        loaded = transformers.PreTrainedTokenizerFast.from_pretrained(folder, padding_side="left")
        models = convert_tokenizer(loaded, with_detokenizer=True)
    except Exception as error:  # noqa: BLE001 (the converter raises errors of many kinds)
        reason = " ".join(str(error).split())[:600] or type(error).__name__
        raise ValueError(
            f"The format 'openvino_genai' cannot hold this {kind}, openvino-tokenizers says: {reason} The format "
            "'openvino' takes token ids, and a SavedModel (format='tf_saved_model') takes strings."
        ) from error
    for name, model in zip(FILES, models, strict=True):
        openvino.save_model(model, folder / f"{name}.xml")
    _require_same(task, [openvino.Core().compile_model(model, "CPU") for model in models], texts)


def _require_same(task: Any, programs: Sequence[Any], texts: Sequence[str]) -> None:
    kind = type(task.tokenizer).__name__
    to_ids, to_text = programs
    start_id = task.preprocessor.special_tokens()["start_id"]
    start = [] if start_id is None else [start_id]
    every, plain = (task.tokenizer.tokenize(list(texts), special_tokens=special).to_list() for special in (True, False))
    for text, with_special, ids in zip(texts, every, plain, strict=True):
        expected, found = [*start, *with_special], [int(index) for index in to_ids([text])["input_ids"][0]]
        if found != expected:
            raise ValueError(
                f"openvino-tokenizers gives other ids than the {kind} of this model for the text {text!r}: {found} and "
                f"not {expected}. The format 'openvino' takes token ids, and a SavedModel (format='tf_saved_model') "
                "takes strings."
            )
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
