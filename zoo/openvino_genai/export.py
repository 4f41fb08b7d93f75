"""The folder of an export for the pipelines of OpenVINO GenAI: one graph, tokenizers, settings, and a card."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from zoo.export.agreement import TOLERANCE
from zoo.export.folder import export_folder, write_description
from zoo.export.formats import OPENVINO_GENAI, refuse, require_plain_weights
from zoo.huggingface import write_text_files
from zoo.openvino_genai.positions import TABLE
from zoo.openvino_genai.stateful import INPUTS, LOGITS, is_plain, require_stateful, stateful_model
from zoo.openvino_genai.tokenizers import write_tokenizers

WEIGHTS = ("float32", "int8", "int4")
MODEL_FILE, CARD_FILE = "openvino_model.xml", "model_card.md"
# Inputs of a layer that share a scale in 4 bits; it must divide the widths of matrices.
_GROUPS = (128, 64, 32)
# What the pipelines read of generation_config.json, besides ids of special tokens that texts do not depend on.
_SETTINGS = {
    *("eos_token_id", "bos_token_id", "pad_token_id", "max_new_tokens", "max_length", "min_new_tokens", "stop_strings"),
    *("do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "no_repeat_ngram_size"),
    *("num_beams", "length_penalty", "early_stopping", "num_return_sequences"),
}

_CARD = """# {name}

A causal language model of {parameters:,} weights, {weights}, for
[OpenVINO GenAI](https://github.com/openvinotoolkit/openvino.genai) on processors of Intel, AMD and ARM, and on GPUs of
Intel. Neither Keras nor TensorFlow is needed.

```python
import openvino_genai

pipeline = openvino_genai.LLMPipeline("{folder}", "CPU"{options})
print(pipeline.generate("{prompt}", max_new_tokens=64))
```

A text has at most {max_length:,} tokens, its prompt included. Processors with bfloat16 compute in it by default;
`INFERENCE_PRECISION_HINT="f32"` computes in float32.

{batching}
"""
_PAGED = """`openvino_genai.ContinuousBatchingPipeline` and OpenVINO Model Server serve many texts at once from this
folder."""
_NOT_PAGED = """The attention of this model has biases or windows, which continuous batching does not compute.
`LLMPipeline` keeps whole caches: give it one text at a time."""


def write_openvino_genai(directory: str | os.PathLike[str], task: Any, weights: str) -> None:
    """Writes a causal language model for the pipelines of OpenVINO GenAI, whole or not at all.

    The folder holds `openvino_model.xml` with the keys and values as its state, `openvino_tokenizer.xml` and
    `openvino_detokenizer.xml`, the files of the tokenizer and the chat template, `generation_config.json`,
    `config.json` and `model_card.md`. The graph is run after it is written: in float32, its logits must be those of
    Python; `signature.json` records the difference under "agreement".

    Args:
        directory: The directory to write. An export that it holds is replaced.
        task: A `CausalLM`.
        weights: "float32"; "int8" for matrices in 8 bits with a scale per output; or "int4" for matrices in 4 bits with
            a scale per output and group of inputs, and embeddings and output in 8 bits.

    Raises:
        ValueError: If the pipelines cannot hold the model, its tokenizer or its `generation`. The message says why.
        FileExistsError: If the directory exists and does not hold an export.

    Example:

    >>> write_openvino_genai("exported", model, "int4")
    """
    import openvino

    backbone = task.backbone
    require_stateful(backbone)
    require_plain_weights(task, OPENVINO_GENAI, weights, WEIGHTS, most_bytes=None)
    about = {"format": OPENVINO_GENAI, "weights": weights}
    with export_folder(directory, {}, **about) as folder:
        settings = write_text_files(task, folder)
        unknown = sorted(set(settings) - _SETTINGS)
        if unknown:
            named = ", ".join(f"{key}={settings[key]!r}" for key in unknown)
            raise ValueError(
                f"generation: OpenVINO GenAI has nothing for {named}: "
                "load the model with from_preset(..., generation=None), or with a generation without it."
            )
        write_tokenizers(task, folder)
        try:
            model = stateful_model(backbone)
        except Exception as error:  # noqa: BLE001 (the converter raises errors of many kinds)
            raise refuse(OPENVINO_GENAI, LOGITS, error) from error
        if weights != "float32":
            model = _compressed(model, weights)
        openvino.save_model(model, folder / MODEL_FILE, compress_to_fp16=False)
        agreement = _agreement(folder / MODEL_FILE, backbone, exact=weights == "float32")
        (folder / CARD_FILE).write_text(_card(directory, task, weights), "utf-8")
        write_description(folder, {**about, "default": None, "endpoints": {}, "agreement": {LOGITS: agreement}})


def _compressed(model: Any, weights: str) -> Any:
    import nncf

    others = nncf.IgnoredScope(patterns=[f".*{TABLE}.*"], validate=False)
    if weights == "int8":
        return nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM, ignored_scope=others)
    widths = {
        node.input_value(1).get_shape()[1]
        for node in model.get_ops()
        if node.get_type_name() == "MatMul" and node.input_value(1).get_node().get_type_name() == "Constant"
    }
    groups = [size for size in _GROUPS if all(width % size == 0 for width in widths)]
    # -1: one scale for all inputs of an output
    size = groups[0] if groups else -1
    return nncf.compress_weights(
        model, mode=nncf.CompressWeightsMode.INT4_ASYM, group_size=size, ratio=1.0, ignored_scope=others
    )


def _agreement(path: Path, backbone: Any, exact: bool) -> dict[str, float]:
    """The largest difference of logits of texts of two lengths, fed in two parts, and the share of equal choices."""
    import openvino

    # by default some processors compute in bfloat16, and keep keys and values in 8 bits
    options = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    request = openvino.Core().compile_model(path, "CPU", options).create_infer_request()
    length = min(8, backbone.config.max_length)
    padding = [0, length // 3]
    ids = np.random.default_rng(0).integers(0, backbone.config.vocabulary_size, (2, length))
    mask = np.array([[0] * pad + [1] * (length - pad) for pad in padding])
    positions = np.maximum(mask.cumsum(axis=1) - mask, 0)
    found = []
    for start, end in ((0, length - 1), (length - 1, length)):
        inputs = dict(zip(INPUTS, (ids[:, start:end], mask[:, :end], positions[:, start:end]), strict=True))
        found.append(request.infer({**inputs, "beam_idx": np.arange(2, dtype="int32")})[LOGITS].copy())
    pairs = []
    for row, pad in enumerate(padding):
        inputs = {"token_ids": ids[row : row + 1, pad:].astype("int32"), "padding_mask": mask[row : row + 1, pad:] > 0}
        expected = np.asarray(backbone.logits(backbone(inputs, training=False)))[0]
        pairs.append((np.concatenate(found, axis=1)[row, pad:], expected))
    given, expected = (np.concatenate(each) for each in zip(*pairs, strict=True))
    difference = float(f"{np.abs(given - expected).max():.3g}")
    if exact and not np.allclose(given, expected, rtol=TOLERANCE, atol=TOLERANCE):
        raise ValueError(
            f"The logits of {MODEL_FILE} differ from Python's by {difference}: OpenVINO does not compute what this "
            "model computes. A SavedModel (format='tf_saved_model') holds every model."
        )
    return {
        "largest_difference": difference,
        "largest_value": float(f"{np.abs(expected).max():.3g}"),
        "same_choice": float(np.mean(given.argmax(axis=-1) == expected.argmax(axis=-1))),
    }


def _card(directory: str | os.PathLike[str], task: Any, weights: str) -> str:
    *_, above, name = Path(os.path.abspath(directory)).parts
    is_paged = is_plain(task.backbone)
    return _CARD.format(
        name=above if name.isdigit() else name,
        folder=os.fspath(directory),
        parameters=task.backbone.parameter_count(),
        weights={"float32": "as float32", "int8": "in 8 bits", "int4": "in 4 bits"}[weights],
        max_length=task.backbone.config.max_length,
        options="" if is_paged else ', ATTENTION_BACKEND="SDPA"',
        prompt="Hello!" if task.tokenizer.chat_format is not None else "Once upon a time",
        batching=_PAGED if is_paged else _NOT_PAGED,
    )
