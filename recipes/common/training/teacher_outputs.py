"""What a teacher writes for the sources of a training: made once, line by line, and kept in the run folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import keras

import zoo
from recipes.common.errors import RunFolderError
from recipes.common.run_folder import RunFolder

_FILE = "teacher_outputs.jsonl"
# sources between two writes to the disk
_AT_ONCE = 256


def teacher_outputs(
    run: RunFolder, teacher: Any, sources: Sequence[str], *, options: dict[str, Any], batch_size: int
) -> list[str]:
    """Returns an output of the teacher for each source; a run that was killed goes on where it was.

    Args:
        run: The run folder, which keeps them in `teacher_outputs.jsonl`.
        teacher: A `Seq2SeqLM`.
        sources: The sources.
        options: Arguments of `generate`, as JSON values.
        batch_size: Sources of a batch.

    Raises:
        RunFolderError: If a run that goes on has those of other sources, of other weights, or made in another way.

    Reference:
        Kim and Rush 2016, "Sequence-Level Knowledge Distillation", section 3.2.
    """
    path = run.path / _FILE
    header = {
        "teacher": digest_of(teacher),
        "options": options,
        "sources": len(sources),
        "sha256": _digest(["\0".join(sources).encode()]),
    }
    outputs = _read(path, header)
    if outputs is None:
        if path.exists() and zoo.training.saved_position(run.path / "checkpoints" / "state") not in (None, (0, 0)):
            raise RunFolderError(
                f"{path} holds outputs of a teacher with other weights or for other sources; name another run folder"
            )
        path.write_text(json.dumps(header) + "\n", encoding="utf-8")
        outputs = []
    if len(outputs) < len(sources):
        print(f"the teacher writes {len(sources) - len(outputs)} of {len(sources)} outputs")
    with open(path, "a", encoding="utf-8") as file:
        for start in range(len(outputs), len(sources), _AT_ONCE):
            some = list(sources[start : start + _AT_ONCE])
            written = teacher.generate(some, batch_size=batch_size, truncate=True, **options)
            file.writelines(
                json.dumps({"source": source, "output": output}, ensure_ascii=False) + "\n"
                for source, output in zip(some, written, strict=True)
            )
            file.flush()
            outputs += written
    return outputs


def digest_of(task: Any) -> str:
    """Returns the SHA-256 of the weights of a model.

    Args:
        task: The model.
    """
    return _digest(keras.ops.convert_to_numpy(weight).tobytes() for weight in task.weights)


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _read(path: Path, header: dict[str, Any]) -> list[str] | None:
    """The outputs that are there, None where they are of something else; a line that was not finished is cut off."""
    if not path.exists():
        return None
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        path.write_bytes(whole)
    first, *lines = whole.decode("utf-8").split("\n")[:-1] or [""]
    if first != json.dumps(header):
        return None
    return [json.loads(line)["output"] for line in lines]
