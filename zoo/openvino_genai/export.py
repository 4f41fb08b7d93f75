"""The folder of an export for the pipelines of OpenVINO GenAI: one graph, tokenizers, settings, and a card."""

import json
import os
from pathlib import Path
from typing import Any

from zoo.export.folder import export_folder, write_description
from zoo.export.formats import OPENVINO_GENAI, refuse, require_plain_weights
from zoo.openvino_genai.compression import WEIGHTS, compressed
from zoo.openvino_genai.encoders import Embedder, Reranker
from zoo.openvino_genai.language_models import LanguageModel
from zoo.openvino_genai.part import MODEL_FILE, Part

CARD_FILE = "model_card.md"
_PARTS: dict[str, type[Part]] = {"CausalLM": LanguageModel, "TextEmbedder": Embedder, "TextClassifier": Reranker}

_CARD = """# {name}

{kind} of {parameters:,} weights, {weights}, for
[OpenVINO GenAI](https://github.com/openvinotoolkit/openvino.genai) on processors of Intel, AMD and ARM, and on GPUs of
Intel. Neither Keras nor TensorFlow is needed.

```python
import openvino_genai

pipeline = openvino_genai.{pipeline}("{folder}", "CPU"{options})
{use}
```

Processors with bfloat16 compute in it by default; `INFERENCE_PRECISION_HINT="f32"` computes in float32.

{notes}
"""


def write_openvino_genai(directory: str | os.PathLike[str], task: Any, weights: str) -> None:
    """Writes a task for the pipelines of OpenVINO GenAI, whole or not at all.

    The folder holds `openvino_model.xml`, the tokenizer as a graph and in the files of the Transformers library,
    `config.json`, and `model_card.md` with the call that opens it. The graph of a language model has the keys and
    values as its state; its folder also has the detokenizer, the chat template and `generation_config.json`. The graph
    is run after it is written: in float32, its outputs must be those of Python; `signature.json` records the difference
    under "agreement", and the pipeline and its arguments under "pipeline".

    Args:
        directory: The directory to write. An export that it holds is replaced.
        task: A `CausalLM`; a `TextEmbedder`; or a `TextClassifier` of pairs with one label or value.
        weights: "float32"; "int8" for matrices in 8 bits with a scale per output; or "int4" for matrices in 4 bits with
            a scale per output and group of inputs, and embeddings and output in 8 bits.

    Raises:
        ValueError: If the pipelines cannot hold the model, its tokenizer or its `generation`. The message says why.
        FileExistsError: If the directory exists and does not hold an export.

    Example:

    >>> write_openvino_genai("exported", model, "int4")
    """
    import openvino

    part = _part_of(task)
    part.require()
    require_plain_weights(task, OPENVINO_GENAI, weights, WEIGHTS, most_bytes=None)
    about = {"format": OPENVINO_GENAI, "weights": weights, "pipeline": {part.pipeline: part.options()}}
    with export_folder(directory, {}, **about) as folder:
        part.write_files(folder)
        try:
            model = part.graph()
        except Exception as error:  # noqa: BLE001 (the converter raises errors of many kinds)
            raise refuse(OPENVINO_GENAI, part.output, error) from error
        if weights != "float32":
            model = compressed(model, weights)
        openvino.save_model(model, folder / MODEL_FILE, compress_to_fp16=False)
        agreement = part.agreement(folder / MODEL_FILE, exact=weights == "float32")
        (folder / CARD_FILE).write_text(_card(directory, part, weights), "utf-8")
        write_description(folder, {**about, "default": None, "endpoints": {}, "agreement": {part.output: agreement}})


def _part_of(task: Any) -> Part:
    part = next((_PARTS[kind.__name__] for kind in type(task).__mro__ if kind.__name__ in _PARTS), None)
    if part is None:
        raise ValueError(
            f"The format 'openvino_genai' cannot hold a {type(task).__name__}: its pipelines take a CausalLM, a "
            "TextEmbedder, and a TextClassifier of pairs with one label or value. The format 'openvino' takes token "
            "ids, and a SavedModel (format='tf_saved_model') holds every model."
        )
    return part(task)


def _card(directory: str | os.PathLike[str], part: Part, weights: str) -> str:
    *_, above, name = Path(os.path.abspath(directory)).parts
    return _CARD.format(
        name=above if name.isdigit() else name,
        kind=part.kind,
        pipeline=part.pipeline,
        folder=os.fspath(directory),
        parameters=part.task.backbone.parameter_count(),
        weights={"float32": "as float32", "int8": "in 8 bits", "int4": "in 4 bits"}[weights],
        options="".join(f", {key}={_literal(value)}" for key, value in part.options().items()),
        use=part.use(),
        notes=part.notes(),
    )


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
