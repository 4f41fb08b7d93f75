"""What a task does with one text: runs it once with its points captured, and computes what follows from that."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from layers.capture import Capture
from zoo.inspect.gradients import gradients_of
from zoo.inspect.inspection import Inspection
from zoo.inspect.row import Row, token_names

# Numbers of a batch for gradients at most: rows times tokens times choices.
_MOST_NUMBERS = 1 << 25
# rows of such a batch at most: more are not faster
_MOST_ROWS = 16


def inspect_task(task: Any, row: Row, *, top_k: int, lens: bool, gradients: bool) -> Inspection:
    """Returns what a task does with one text; arguments as for `Task.inspect`.

    Args:
        task: The task.
        row: The text, see `Task.row_of`.
        top_k: Number of choices to name.
        lens: Whether to read the hidden states of all layers.
        gradients: Whether to compute gradients.
    """
    with Capture() as found:
        outputs = task(row.inputs, training=False)
    last = task.backbone.last_stack
    stacks = [stack for stack in ("encoder", "decoder") if f"{stack}.hidden" in found]
    fed = task.backbone_inputs(row.inputs)
    ids = {stack: _array(fed.get(f"{stack}_token_ids", fed.get("token_ids")))[0].astype("int64") for stack in stacks}
    tokenizer = task.tokenizer
    tokenizers = {"encoder": tokenizer, "decoder": getattr(tokenizer, "of_targets", tokenizer)}
    tokens = {stack: tuple(token_names(tokenizers[stack], ids[stack].tolist())) for stack in stacks}
    values: dict[str, Any] = {"task": type(task).__name__, "last_stack": last}
    for stack in stacks:
        part = "" if stack == last else "source_"
        values |= {
            f"{part}tokens": tokens[stack],
            f"{part}token_ids": ids[stack],
            f"{part}attention": _stacked(found, f"{stack}.attention"),
            f"{part}norms": np.stack([_norms(hidden) for hidden in found[f"{stack}.hidden"]]),
        }
    values["cross_attention"] = _stacked(found, "decoder.cross_attention")
    decisions = task.decisions(outputs, tokens[last])
    if decisions is not None:
        scores = _float32(decisions.scores[0])  # (rows, choices)
        targets = np.full(len(scores), -1) if row.targets is None else row.targets
        layers = _lens(task, row.inputs, found[f"{last}.hidden"], tokens[last]) if lens else ()
        # of the last layer these are the outputs
        values |= _decided(decisions, itertools.chain(layers, [scores]), targets, top_k, tokenizers[last])
        values |= _about(decisions, row, tokens[last])
        if gradients:
            best = _array(ops.argmax(scores, axis=-1)).astype("int64")
            chosen = np.where(targets < 0, best, targets)
            values |= _gradients(task, row.inputs, tokens[last], found, stacks, chosen, scores.shape[-1])
            values["gradient_of"] = _names(decisions, chosen, tokenizers[last])
    return Inspection(**values)


def _array(x: Any) -> np.ndarray:
    return np.asarray(x) if isinstance(x, (list, np.ndarray)) else ops.convert_to_numpy(x)


def _float32(x: Any) -> Any:
    return ops.cast(x, "float32")


def _norms(hidden: Any) -> np.ndarray:
    """Euclidean norms of the hidden states of the first row, `(length,)`."""
    return _array(ops.sqrt(ops.sum(ops.square(_float32(hidden[0])), axis=-1)))


def _stacked(found: Capture, name: str) -> np.ndarray | None:
    """Attention weights of the first row, `(layers, heads, queries, keys)`; None without any."""
    return np.stack([_array(_float32(weights[0])) for weights in found[name]]) if name in found else None


def _lens(task: Any, inputs: dict[str, Any], hidden: list[Any], tokens: Sequence[str]) -> Iterator[Any]:
    """The scores that the task would have if each layer but the last were the last, the embeddings first.

    One layer after the other: those of a large vocabulary fill the memory.
    """
    if task.backbone.has_one_width:
        for states in hidden[:-1]:
            yield _float32(task.decisions(task.outputs_of(task.finish(states), inputs), tokens).scores[0])


def _decided(decisions: Any, layers: Iterable[Any], targets: np.ndarray, top_k: int, tokenizer: Any) -> dict[str, Any]:
    """The choices with the highest scores and the scores of the targets, layer by layer."""
    to_number = np.asarray if decisions.are_values else np.exp
    columns = np.maximum(targets, 0)[:, None]
    best, of_targets = [], []
    for scores in layers:  # (rows, choices)
        best.append([_array(part) for part in ops.top_k(scores, min(top_k, int(scores.shape[-1])))])
        of_targets.append(_array(ops.take_along_axis(scores, columns, axis=1))[:, 0])
    ids = np.stack([numbers for _, numbers in best]).astype("int64")  # (layers, rows, top_k)
    probabilities = np.where(targets < 0, np.nan, to_number(np.stack(of_targets)))
    return {
        "choices": np.array(_names(decisions, ids.reshape(-1), tokenizer), object).reshape(ids.shape),
        "choice_probabilities": to_number(np.stack([top for top, _ in best])).astype("float32"),
        "targets": tuple(
            name if target >= 0 else None
            for name, target in zip(_names(decisions, targets, tokenizer), targets, strict=True)
        ),
        "target_probabilities": probabilities.astype("float32"),
        "are_values": decisions.are_values,
    }


def _names(decisions: Any, numbers: np.ndarray, tokenizer: Any) -> tuple[str, ...]:
    if decisions.choices is None:
        return tuple(token_names(tokenizer, [int(number) for number in numbers]))
    return tuple(decisions.choices[int(number)] for number in numbers)


def _about(decisions: Any, row: Row, tokens: Sequence[str]) -> dict[str, Any]:
    """What the decisions are about: names, and the positions of tokens, -1 for the whole text."""
    if decisions.rows is not None:
        return {"rows": tuple(decisions.rows), "places": np.full(len(decisions.rows), -1)}
    places = np.arange(len(tokens)) if row.places is None else row.places
    names = [tokens[place] for place in places] if row.names is None else row.names
    return {"rows": tuple(names), "places": places}


def _gradients(
    task: Any,
    inputs: dict[str, np.ndarray],
    tokens: Sequence[str],
    found: Capture,
    stacks: list[str],
    chosen: np.ndarray,
    choices: int,
) -> dict[str, Any]:
    """Gradient times input: `sum_i x_i * d score / d x_i` of each token's embedding x, for the choice of each row."""
    embedded = {stack: _array(_float32(found[f"{stack}.embeddings"][0])) for stack in stacks}  # (1, length, width)
    numbers = np.arange(len(chosen))
    size = max(1, min(_MOST_ROWS, _MOST_NUMBERS // (len(chosen) * choices)))
    parts: dict[str, list[np.ndarray]] = {stack: [] for stack in stacks}
    for start in range(0, len(chosen), size):
        rows = numbers[start : start + size]
        batch = {name: np.repeat(value, len(rows), axis=0) for name, value in inputs.items()}

        def total(steps: list[Any], batch: dict[str, Any] = batch, rows: np.ndarray = rows) -> Any:
            changes = {
                f"{stack}.embeddings": lambda x, step=step: x + ops.cast(step, x.dtype)
                for stack, step in zip(stacks, steps, strict=True)
            }
            with Capture((), changes):
                outputs = task(batch, training=False)
            scores = _float32(task.decisions(outputs, tokens).scores)  # (rows of the batch, rows, choices)
            flat = ops.reshape(scores, (-1,))
            places = (np.arange(len(rows)) * len(chosen) + rows) * choices + chosen[rows]
            return ops.sum(ops.take(flat, places.astype("int32")))

        steps = [np.zeros((len(rows), *embedded[stack].shape[1:]), "float32") for stack in stacks]
        for stack, gradient in zip(stacks, gradients_of(total, steps), strict=True):
            parts[stack].append(np.sum(gradient * embedded[stack], axis=-1))
    last = task.backbone.last_stack
    return {
        ("" if stack == last else "source_") + "gradients": np.concatenate(parts[stack]).astype("float32")
        for stack in stacks
    }
