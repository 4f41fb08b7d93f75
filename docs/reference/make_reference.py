"""Writes the pages of the reference: one for each room, with every name of its `__all__` for mkdocstrings to document.

    python docs/reference/make_reference.py

What the pages show comes from the docstrings, when the site is built. Nothing is imported here.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference"
# page: title, what it is about, and the modules whose names it has with a heading for each
PAGES = {
    "layers": (
        "Layers",
        "Keras layers, usable alone in any model. [Layers by paper](papers.md) has the sources; the pages on "
        "[attention](../layers/attention.md), [positions](../layers/positions.md) and the others have formulas.",
        {
            "Attention": "layers.attention",
            "Positions": "layers.positions",
            "Recurrent": "layers.recurrent",
            "Norms, feed-forward networks, embeddings, the block": "layers",
        },
    ),
    "tasks": (
        "Tasks",
        "A task is a backbone with its preprocessor and head. "
        "Each has [a page with examples](../index.md#which-model-for-which-job). "
        "`TextModel` has the methods of training, `Task` those of saving, exporting and looking into a model, "
        "`EncoderTask` what a task with a head declares, `GenerativeTask` the methods of writing texts, `Adaptation` "
        "those of low-rank updates and quantization.",
        {
            "Tasks": "zoo.tasks",
            "What tasks share": (
                "zoo.tasks.text_model.TextModel",
                "zoo.tasks.generative_task.GenerativeTask",
                "zoo.tasks.adaptation.Adaptation",
                "zoo.tasks.adaptation.QuantizationReport",
                "zoo.backbones.adapters.LoraReport",
                "zoo.backbones.freezing.freeze",
                "zoo.training.calibration.Calibration",
            ),
        },
    ),
    "models": (
        "Backbones and presets",
        "Models from token ids to hidden states, and [named configurations](../presets.md).",
        {"Backbones": "zoo.backbones", "Presets": "zoo.presets"},
    ),
    "config": (
        "Configurations",
        "Every choice of a model by name ([guide](../guides/configuration.md)).",
        {"Configurations": "zoo.config"},
    ),
    "tokenizers": (
        "Tokenizers and preprocessing",
        "Texts to ids, and rows to batches ([guide](../guides/tokenizers.md)).",
        {"Tokenizers": "zoo.tokenizers", "Preprocessing": "zoo.preprocessing"},
    ),
    "generation": (
        "Generation",
        "Samplers, processors, loops ([guide](../guides/decoding.md)).",
        {"Generation": "zoo.generation"},
    ),
    "training": (
        "Training",
        "Losses, metrics, schedules, callbacks, exact resume ([guide](../guides/training.md)); several devices "
        "([guide](../guides/scale.md)).",
        {"Training": "zoo.training", "Distribution": "zoo.distribution", "Planning": "zoo.planning"},
    ),
    "files": (
        "Files",
        "Checkpoints of this and other libraries ([guide](../guides/checkpoints.md)), and exports "
        "([guide](../guides/formats.md)).",
        {
            "Storage": "zoo.storage",
            "Transformers": "zoo.huggingface",
            "KerasHub": "zoo.keras_hub",
            "GGUF": "zoo.gguf",
            "OpenVINO GenAI": "zoo.openvino_genai",
            "Export": "zoo.export",
        },
    ),
    "serving": (
        "Serving",
        "A server of exports as an ASGI application ([guide](../guides/serving.md)).",
        {"Serving": "zoo.serving"},
    ),
    "inspect": (
        "Inspect",
        "What a model does with a text, as arrays and as a page, and pictures ([guide](../guides/inspect.md)). "
        "`Task.inspect` makes an `Inspection`.",
        {"Inspect": "zoo.inspect"},
    ),
}


def public_names(module: str) -> list[str]:
    """Returns the names in `__all__` of a module but for constants and modules: classes first, then functions."""
    path = ROOT / module.replace(".", "/") / "__init__.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (names,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "__all__"
    ]
    names = [name for name in names if not name.isupper() and not (path.parent / name).is_dir()]
    return sorted(names, key=lambda name: (name[0].islower(), name.lower()))


def page(name: str) -> str:
    """Returns the text of a page."""
    title, about, sections = PAGES[name]
    lines, shown = [f"# {title}", "", about, ""], set()
    for heading, of in sections.items():
        paths = [f"{of}.{each}" for each in public_names(of)] if isinstance(of, str) else list(of)
        if of == "layers":
            # the rooms of `layers` have the rest
            paths = [path for path in paths if path.rpartition(".")[2] not in shown]
        shown |= {path.rpartition(".")[2] for path in paths}
        lines += [f"## {heading}", ""]
        for path in paths:
            lines += [f"::: {path}", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    for name in PAGES:
        (FOLDER / f"{name}.md").write_text(page(name), encoding="utf-8")
