"""Log-likelihoods under the reference model of DPO: computed once, kept in the run folder, checked on a resume."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import zoo
from recipes.common.errors import RunFolderError
from recipes.common.run_folder import RunFolder

_FILE = "reference.safetensors"
# pairs that are computed again on a resume, to see that the model is the same
_CHECKED = 8


def reference_likelihoods(
    run: RunFolder,
    model: zoo.training.ReplyLikelihoods,
    rows: Any,
    parts: Mapping[str, Any],
    *,
    source: str,
    batch_size: int,
) -> dict[str, np.ndarray]:
    """Returns the log-likelihoods of chosen and rejected replies under a model that has not been trained yet.

    Args:
        run: The run folder, which keeps them.
        model: The model.
        rows: Makes batches, see `recipes.common.data.preference_data.PreferenceRows`.
        parts: Tokens of the pairs of each part.
        source: What the model was loaded from.
        batch_size: Pairs of a batch.

    Returns:
        Float32 `(pairs, 2)` for each part.

    Raises:
        RunFolderError: If a run that goes on has those of other data or another model.
    """
    path, key = run.path / _FILE, _fingerprint(parts, source)
    stored, why = None, "are missing"
    if path.exists():
        stored, why = _read(path, key), "are of other data or of another model.start_from"
    if stored is not None:
        name = next(iter(parts))
        few = range(min(_CHECKED, len(stored[name])))
        again = likelihoods(model, rows, parts[name], batch_size, few)[..., 0]
        # the same sums, perhaps on another machine
        if np.allclose(again, stored[name][: len(again)], rtol=1e-2, atol=0.1):
            return stored
        why = f"are of another model than {source} is now"
    if zoo.training.saved_position(run.path / "checkpoints" / "state") not in (None, (0, 0)):
        raise RunFolderError(f"the reference's log-likelihoods in {path} {why}; name another run folder")
    print("computing the log-likelihoods of the reference")
    values = {name: likelihoods(model, rows, tokens, batch_size)[..., 0] for name, tokens in parts.items()}
    with zoo.storage.atomic_write(path) as temporary:
        zoo.storage.write_tensors(temporary, values, {"key": key})
    return values


def likelihoods(
    model: zoo.training.ReplyLikelihoods, rows: Any, tokens: Any, batch_size: int, chosen: Sequence[int] | None = None
) -> np.ndarray:
    """Returns log-likelihoods and numbers of tokens of pairs of replies, `(pairs, 2, 2)`.

    Args:
        model: The model.
        rows: Makes batches.
        tokens: Tokens of the pairs.
        batch_size: Pairs of a batch.
        chosen: Numbers of the pairs; None for all.
    """
    count = int(tokens["ids"].nrows())
    examples = rows.examples(tokens, np.zeros((count, 2), "float32"))
    if chosen is not None:
        examples = examples.take(list(chosen))

    def run(numbers: np.ndarray) -> np.ndarray:
        part = examples.take(numbers)
        inputs, *_ = rows.collate(part.tokens, part.targets, None)
        return model.predict_on_batch({name: np.asarray(value) for name, value in inputs.items()})

    return np.array(zoo.preprocessing.map_by_length(run, examples.lengths, batch_size), "float32")


def _fingerprint(parts: Mapping[str, Any], source: str) -> str:
    digest = hashlib.sha256(ascii((source, list(parts))).encode())
    for tokens in parts.values():
        ids = tokens["ids"].merge_dims(0, 1)
        for values in (ids.values, ids.row_splits, tokens["learned"].merge_dims(0, 1).values):
            digest.update(np.ascontiguousarray(values.numpy()).tobytes())
    return digest.hexdigest()


def _read(path: Any, key: str) -> dict[str, np.ndarray] | None:
    """What is stored, unless it is of something else."""
    with zoo.storage.open_tensors(path) as file:
        if (file.metadata() or {}).get("key") != key:
            return None
        return {name: np.array(file.get_tensor(name)) for name in file.keys()}
