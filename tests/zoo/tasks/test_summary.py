"""`summary()` of tasks and backbones shows the shapes of all layers."""

import pytest

from zoo import Backbone, CausalLM, EmbeddingConfig, RecurrentConfig, Seq2SeqLM, TransformerConfig
from zoo.tasks import MaskedLM, QuestionAnswerer, TextClassifier, TextEmbedder, TokenClassifier

SIZES = {"vocabulary_size": 27, "hidden_dim": 16, "num_layers": 1}
# architecture, kind of task, its options, output shapes of the backbone and of the head
CASES = {
    "CausalLM": ("decoder", CausalLM, {}, "(None, None, 16)", None),
    "Seq2SeqLM": ("encoder_decoder", Seq2SeqLM, {}, "((None, None, 16), (None, None, 16))", None),
    "recurrent": ("recurrent", Seq2SeqLM, {}, "((None, None, 10), (None, None, 16))", None),
    "MaskedLM": ("encoder", MaskedLM, {}, "(None, None, 16)", "(None, None, 16)"),
    "TextClassifier": ("encoder", TextClassifier, {"labels": 3}, "(None, None, 16)", "(None, 3)"),
    "TokenClassifier": ("encoder", TokenClassifier, {"labels": 3}, "(None, None, 16)", "(None, None, 3)"),
    "QuestionAnswerer": ("encoder", QuestionAnswerer, {}, "(None, None, 16)", "(None, None, 2)"),
    "TextEmbedder": ("encoder", TextEmbedder, {}, "(None, None, 16)", None),
}


def shapes(model):
    """Output shape by the name of the layer, as `summary()` prints it."""
    lines = []
    model.summary(line_length=160, print_fn=lines.append)
    cells = [line.split("\u2502")[1:3] for line in "\n".join(lines).splitlines() if line.startswith("\u2502")]
    return {name.split("(")[0].strip(): shape.strip() for name, shape in cells}


@pytest.mark.parametrize("name", CASES)
def test_summary_shows_shapes(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    architecture, task_class, options, of_backbone, of_head = CASES[name]
    if architecture == "recurrent":
        sampling = {"feeding": "scheduled_sampling", "schedule": "linear", "schedule_slope": 0.1, "dropout": 0.1}
        config = RecurrentConfig(27, hidden_dim=16, encoder_dim=5, embedding_dim=4, **sampling)
    else:
        embedding = EmbeddingConfig(num_segments=2 if architecture == "encoder" else 0, tie_output=False)
        config = TransformerConfig(architecture, **SIZES, embedding=embedding, pooler=architecture == "encoder")
    task = task_class(Backbone.from_config(config), **options)
    found = shapes(task)
    assert found[task.backbone.name] == of_backbone and found.get("head") == of_head
    parts = shapes(task.backbone)
    assert "?" not in parts.values()
    expected = {"token_embedding": "(None, None, 16)", "encoder": "(None, None, 16)", "decoder": "(None, None, 16)"}
    if architecture == "recurrent":
        expected = {"source_embedding": "(None, None, 4)", "encoder": "(None, None, 10)", "decoder": "(None, None, 16)"}
    for layer, shape in expected.items():
        assert parts.get(layer, shape) == shape
