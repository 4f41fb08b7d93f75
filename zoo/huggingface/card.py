"""Model cards: `README.md` of a model on the hub, with the header that the hub reads."""

from pathlib import Path
from typing import Any

import yaml

CARD_FILE = "README.md"
# what the hub calls our tasks, and the pipeline of the Transformers library that runs them
PIPELINES = {
    "CausalLM": "text-generation",
    "MaskedLM": "fill-mask",
    "QuestionAnswerer": "question-answering",
    "Seq2SeqLM": "text2text-generation",
    "TextClassifier": "text-classification",
    "TextEmbedder": "sentence-similarity",
    "TokenClassifier": "token-classification",
}
# pipelines that version 5 of the library has no more: what is called there is the model
_WITHOUT_PIPELINE = ("Seq2SeqLM", "QuestionAnswerer")
_OURS = "keras-transformer-zoo"


def model_card(
    task: Any,
    name: str,
    *,
    architecture: str | None = None,
    license: str | None = None,
    base_model: str | None = None,
) -> str:
    """Returns the card of a task.

    Args:
        task: The task.
        name: What the model is loaded by: a directory, or its name on the hub.
        architecture: Name of its class in the Transformers library; None for a preset of this library.
        license: Identifier of the licence, such as "apache-2.0".
        base_model: Name on the hub of the model that this one was made from.

    Example:

    >>> print(model_card(model, "me/model", architecture="LlamaForCausalLM", license="mit"))
    """
    kind = type(task).__name__
    is_sentence_model = kind == "TextEmbedder" and architecture is not None
    library = "sentence-transformers" if is_sentence_model else "transformers" if architecture else "keras"
    config = task.backbone.config
    facts = [f"{kind}, {task.count_params():,} weights", f"{config.num_layers} layers of width {config.hidden_dim}"]
    facts.append(f"{config.vocabulary_size:,} tokens")
    examples = [(f"With {_OURS}", f"import zoo\n\nmodel = zoo.{kind}.from_preset({_address(name)!r})")]
    if is_sentence_model:
        code = f"from sentence_transformers import SentenceTransformer\n\nmodel = SentenceTransformer({name!r})"
        examples.append(("With Sentence Transformers", code))
    elif architecture is not None:
        examples.append(("With Transformers", _with_transformers(kind, architecture, name)))
    return _card(kind, name, library, license, base_model, facts, examples)


def adapter_card(
    task: Any, name: str, *, model_type: str | None, license: str | None = None, base_model: str | None = None
) -> str:
    """Returns the card of low-rank updates alone.

    Args:
        task: The task.
        name: What they are loaded by: a directory, or their name on the hub.
        model_type: What `save_adapter` returned.
        license: Identifier of the licence, such as "apache-2.0".
        base_model: Name on the hub of the model that they are for.

    Example:

    >>> print(adapter_card(model, "me/adapter", model_type="llama", base_model="owner/model"))
    """
    kind = type(task).__name__
    loads = f"model = zoo.{kind}.from_preset({_address(name)!r})"
    if base_model is None:
        loads = f'model = zoo.{kind}.from_preset("the model that it is for")\nmodel.load_adapter({_address(name)!r})'
    examples = [(f"With {_OURS}", f"import zoo\n\n{loads}")]
    if model_type is not None:
        examples.append(
            ("With PEFT", f"from peft import PeftModel\n\nmodel = PeftModel.from_pretrained(model, {name!r})")
        )
    library = "keras" if model_type is None else "peft"
    facts = [f"Low-rank updates of a {kind}", f"{task.backbone_parameters:,} weights in its backbone"]
    return _card(kind, name, library, license, base_model, facts, examples)


def _card(
    kind: str,
    name: str,
    library: str,
    license: str | None,
    base_model: str | None,
    facts: list[str],
    examples: list[tuple[str, str]],
) -> str:
    header = {
        "library_name": library,
        "pipeline_tag": PIPELINES.get(kind),
        "license": license,
        "base_model": base_model,
        "tags": [_OURS, "keras", kind],
    }
    header = {key: value for key, value in header.items() if value is not None}
    parts = [
        f"---\n{yaml.safe_dump(header, sort_keys=False)}---",
        f"# {name.rpartition('/')[2]}",
        ", ".join(facts) + ".",
    ]
    for title, code in examples:
        parts.append(f"## {title}\n\n```python\n{code}\n```")
    return "\n\n".join(parts) + "\n"


def _address(name: str) -> str:
    # a model of the hub has its owner before its name, and no folder of this name is there
    return f"hf://{name}" if name.count("/") == 1 and not Path(name).exists() and name[0] not in "./~" else name


def _with_transformers(kind: str, architecture: str, name: str) -> str:
    if kind in PIPELINES and kind not in _WITHOUT_PIPELINE:
        return f"from transformers import pipeline\n\npipe = pipeline({PIPELINES[kind]!r}, model={name!r})"
    loads = f"model = {architecture}.from_pretrained({name!r})\ntokenizer = AutoTokenizer.from_pretrained({name!r})"
    return f"from transformers import AutoTokenizer, {architecture}\n\n{loads}"
