"""Runs an exported model in the runtime of its format. It needs only this file, NumPy and that runtime.

Every export in the formats onnx, litert and openvino has a copy of it.

    from run_model import ExportedModel, generate

    model = ExportedModel("export")
    model("forward", token_ids=token_ids, padding_mask=token_ids != 0)      # an encoder: arrays by name
    generate(model, [[1, 17, 5]], max_new_tokens=20)                       # a decoder: ids of prompts to new ids
    generate(model, sources=[[17, 5, 2]], max_new_tokens=20)               # an encoder-decoder: ids of sources

`signature.json` describes the inputs and outputs of all endpoints.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np


class ExportedModel:
    """The endpoints of an export as functions of arrays.

    Args:
        folder: The folder of the export.
        threads: Number of threads of a call. None for the default of the runtime.

    Example:

    >>> ExportedModel("export")("forward", token_ids=ids, padding_mask=mask)["probabilities"]
    """

    def __init__(self, folder: Any = Path(__file__).parent, threads: int | None = None) -> None:
        self.folder: Path = Path(folder)
        self.description: dict[str, Any] = json.loads((self.folder / "signature.json").read_text(encoding="utf-8"))
        self.endpoints: dict[str, Any] = self.description["endpoints"]
        self._open = {"onnx": _open_onnx, "litert": _open_litert, "openvino": _open_openvino}
        self._open = self._open[self.description["format"]](self.folder, threads)
        self._opened: dict[str, Callable[[dict[str, Any]], Any]] = {}

    def __call__(self, endpoint: str, **inputs: Any) -> dict[str, np.ndarray]:
        """Returns the outputs of an endpoint by name.

        Args:
            endpoint: Its name.
            **inputs: Its inputs by name: arrays, or lists of strings.

        Raises:
            ValueError: If there is no such endpoint, or inputs are missing or unknown.
        """
        if endpoint not in self.endpoints:
            raise ValueError(f"endpoint must be one of {', '.join(self.endpoints)}, got {endpoint!r}.")
        fields = self.endpoints[endpoint]["inputs"]
        if {field["name"] for field in fields} != set(inputs):
            wanted = ", ".join(field["name"] for field in fields)
            raise ValueError(f"inputs of {endpoint} must be {wanted}, got {', '.join(inputs)}.")
        if endpoint not in self._opened:
            self._opened[endpoint] = self._open(endpoint, self.endpoints[endpoint])
        types = {field["name"]: object if field["dtype"] == "string" else field["dtype"] for field in fields}
        return self._opened[endpoint]({name: np.asarray(inputs[name], kind) for name, kind in types.items()})


def generate(
    model: ExportedModel,
    prompts: Sequence[Sequence[int]] | None = None,
    *,
    sources: Sequence[Sequence[int]] | None = None,
    max_new_tokens: int | None = None,
) -> list[list[int]]:
    """Generates greedily: the most probable token at each step, until an end token.

    Args:
        model: The export of a model that writes text.
        prompts: Token ids of each row, at least one. With sources the default is the start token of outputs.
        sources: Token ids of the source of each row, for an encoder-decoder.
        max_new_tokens: Largest number of new tokens. By default the limit of the export.

    Returns:
        The new token ids of each row, without an end token.

    Raises:
        ValueError: If a row has no token, or too many.
    """
    about = model.endpoints["step"]["properties"]
    if (sources is not None) != ("encode" in model.endpoints):
        raise ValueError("sources must be given for an encoder-decoder, and only there.")
    prompts = [[about["start_id"]]] * len(sources) if prompts is None else [list(prompt) for prompt in prompts]
    lengths = np.array([len(prompt) for prompt in prompts], "int32")
    limits = _limits(about, lengths, sources, max_new_tokens)
    tokens = _padded(prompts)
    capacity = int((lengths + limits).max())
    if sources is None:
        state, index = _fed(model, tokens, lengths, capacity), lengths - 1
    else:
        state, index = _encoded(model, sources, capacity), np.zeros_like(lengths)
    rows = np.arange(len(prompts))
    written: list[list[int]] = [[] for _ in prompts]
    ended = limits < 1
    while not ended.all():
        given = np.minimum(index, lengths - 1)
        last = [texts[-1] if texts else tokens[row, given[row]] for row, texts in zip(rows, written, strict=True)]
        outputs = model("step", token_ids=np.array(last, "int32"), index=index, **state)
        state = {**state, **{name: outputs[f"next_{name}"] for name in about["state"]}}
        chosen = outputs["logits"].argmax(axis=1)
        for row in rows[~ended & (index >= lengths - 1)]:
            if chosen[row] in about["end_ids"]:
                ended[row] = True
                continue
            written[row].append(int(chosen[row]))
            ended[row] = len(written[row]) >= limits[row]
        index = index + (~ended).astype("int32")
    return written


def _limits(about: dict[str, Any], lengths: np.ndarray, sources: Any, most: int | None) -> np.ndarray:
    """How many tokens each row may write."""
    if not lengths.size or lengths.min() < 1:
        raise ValueError("prompts must have a row at least, and each row a token.")
    limits = about["max_length"] - (lengths - about["start_tokens"])
    if limits.min() < 1:
        raise ValueError(f"prompts[{int(limits.argmin())}] must have fewer than {about['max_length']} tokens.")
    for row, source in enumerate(sources or ()):
        if not 0 < len(source) <= about["max_length"]:
            raise ValueError(f"sources[{row}] must have from 1 to {about['max_length']} tokens, got {len(source)}.")
    if about["extra_length"] is not None and most is None:
        limits = np.minimum(limits, [len(source) + about["extra_length"] for source in sources])
    return np.minimum(limits, about["max_new_tokens"] if most is None else min(most, about["max_new_tokens"]))


def _padded(rows: Sequence[Sequence[int]]) -> np.ndarray:
    tokens = np.zeros((len(rows), max(map(len, rows))), "int32")
    for row, ids in enumerate(rows):
        tokens[row, : len(ids)] = ids
    return tokens


def _fed(model: ExportedModel, tokens: np.ndarray, lengths: np.ndarray, capacity: int) -> dict[str, np.ndarray]:
    """Caches that hold all tokens of the prompts but the last of each."""
    fields = {field["name"]: field for field in model.endpoints["step"]["inputs"]}
    state = {}
    for name, most in model.endpoints["step"]["properties"]["state"].items():
        sizes = {"rows": len(tokens), "slots": capacity if most is None else min(capacity, most)}
        shape = [sizes.get(size, size) for size in fields[name]["shape"]]
        state[name] = np.zeros(shape, fields[name]["dtype"])
    if tokens.shape[1] == 1:
        return state
    index = np.zeros_like(lengths)
    outputs = model("prefill", token_ids=tokens[:, :-1], lengths=lengths - 1, index=index, **state)
    return {name: outputs[f"next_{name}"] for name in state}


def _encoded(model: ExportedModel, sources: Sequence[Sequence[int]], capacity: int) -> dict[str, np.ndarray]:
    """What the decoder starts with."""
    tokens, lengths = _padded(sources), np.array([len(source) for source in sources])
    mask = np.arange(tokens.shape[1]) < lengths[:, None]
    return model("encode", encoder_token_ids=tokens, encoder_padding_mask=mask, capacity=np.int32(capacity))


def _open_onnx(folder: Path, threads: int | None) -> Callable[[str, dict[str, Any]], Callable[[dict[str, Any]], Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads

    def open_endpoint(name: str, about: dict[str, Any]) -> Callable[[dict[str, Any]], Any]:
        path = folder / f"{name}.onnx"
        if b"ai.onnx.contrib" in path.read_bytes():
            if "tensorflow" in sys.modules:
                raise RuntimeError(
                    f"{path.name} holds a tokenizer: run it in a process that has not imported TensorFlow, whose "
                    "SentencePiece and that of onnxruntime-extensions crash together."
                )
            from onnxruntime_extensions import get_library_path

            options.register_custom_ops_library(get_library_path())
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        taken = [field.name for field in session.get_inputs()]
        names = [field.name for field in session.get_outputs()]
        return lambda inputs: dict(zip(names, session.run(names, {key: inputs[key] for key in taken}), strict=True))

    return open_endpoint


def _open_litert(folder: Path, threads: int | None) -> Callable[[str, dict[str, Any]], Callable[[dict[str, Any]], Any]]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(folder / "model.tflite"), num_threads=threads)

    def open_endpoint(name: str, about: dict[str, Any]) -> Callable[[dict[str, Any]], Any]:
        runner = interpreter.get_signature_runner(name)
        taken = list(runner.get_input_details())
        return lambda inputs: runner(**{key: inputs[key] for key in taken})

    return open_endpoint


def _open_openvino(
    folder: Path, threads: int | None
) -> Callable[[str, dict[str, Any]], Callable[[dict[str, Any]], Any]]:
    import openvino

    # less than float32 where the processor is faster with it, unless it is told not to
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    if threads is not None:
        options["INFERENCE_NUM_THREADS"] = threads
    core = openvino.Core()

    def open_endpoint(name: str, about: dict[str, Any]) -> Callable[[dict[str, Any]], Any]:
        compiled = core.compile_model(str(folder / f"{name}.xml"), "CPU", options)
        # a tensor has several names, where it is an input that is returned those of both
        taken, names = (
            [(tensor.names & {field["name"] for field in about[side]}).pop() for tensor in tensors]
            for side, tensors in (("inputs", compiled.inputs), ("outputs", compiled.outputs))
        )

        def call(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            # arrays of its own: the next call writes over the tensors of this one
            results = compiled({key: inputs[key] for key in taken})
            return {name: np.array(results[place]) for place, name in enumerate(names)}

        return call

    return open_endpoint
