"""Draws the pictures of architecture.md: `python docs/make_architecture_pictures.py`."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

IMAGES = Path(__file__).parent / "images"
COLOURS = {"layers": "#dbe9f6", "zoo": "#e5f2df", "recipes": "#fdebd0"}

# Rows of rooms, from top to bottom: name, what is in it, share of the width. A room imports from rows below its own.
ROOMS = (
    (("tasks", "backbone + preprocessor + head (+ generation); they name their endpoints", 1.0),),
    (
        ("serving", "a server of exports", 0.2),
        ("keras_hub", "presets of KerasHub", 0.2),
        ("gguf", "files of llama.cpp", 0.18),
        ("openvino_genai", "folders for pipelines", 0.22),
        ("planning", "what a training takes", 0.2),
    ),
    (
        ("presets", "named architectures", 0.2),
        ("huggingface", "families: configuration and table", 0.3),
        ("training", "losses, schedules, state of a run", 0.3),
        ("inspect", "pictures", 0.2),
    ),
    (("backbones", "stacks of blocks, cached decoding", 1.0),),
    (("generation", "requests, loop, samplers, processors", 0.6), ("export", "endpoints, as a SavedModel", 0.4)),
    (("preprocessing", "rows of texts to batches of tokens, and back", 1.0),),
    (("tokenizers", "text to ids and back, in the graph", 0.6), ("distribution", "several devices", 0.4)),
    (("storage", "files: checked, atomic, locked", 0.5), ("config", "choices of a model", 0.5)),
)

# the way of a string: (step, where it happens)
WAYS = {
    "fit": (
        ("check rows", "preprocessing"),
        ("tokenize", "tokenizers"),
        ("batch by length", "preprocessing"),
        ("forward", "backbones"),
        ("head, loss", "tasks"),
        ("update", "Keras"),
    ),
    "generate": (
        ("check request", "generation"),
        ("prompt to ids", "preprocessing"),
        ("batch by length", "preprocessing"),
        ("fill the cache", "backbones"),
        ("process, sample", "generation"),
        ("ids to text", "tokenizers"),
    ),
    "export": (
        ("name endpoints", "tasks"),
        ("prompt to ids", "preprocessing"),
        ("trace the loop", "generation"),
        ("ids to text", "tokenizers"),
        ("write, rename", "export, storage"),
    ),
}


def box(axes: Axes, name: str, text: str, left: float, bottom: float, width: float, height: float, colour: str) -> None:
    patch = FancyBboxPatch(
        (left, bottom), width, height, boxstyle="round,pad=0,rounding_size=0.12", facecolor=colour, edgecolor="#666666"
    )
    axes.add_patch(patch)
    axes.text(left + width / 2, bottom + height * 0.66, name, ha="center", va="center", weight="bold", fontsize=9)
    axes.text(left + width / 2, bottom + height * 0.28, text, ha="center", va="center", fontsize=8)


def rooms() -> None:
    """Which room may import from which."""
    figure = Figure(figsize=(9.6, 7.9), layout="constrained")
    axes = figure.add_subplot(xlim=(-0.1, 12.1), ylim=(-2.5, 8.5))
    axes.axis("off")
    box(axes, "recipes", "data, configuration, run folders, model cards", 0, 7.6, 12, 0.75, COLOURS["recipes"])
    axes.add_patch(FancyBboxPatch((0, -1.2), 12, 8.4, boxstyle="round,pad=0,rounding_size=0.2", fill=False, ls="--"))
    axes.text(0.2, 6.97, "zoo", style="italic", fontsize=9, va="center")
    for row, places in enumerate(ROOMS):
        left = 0.2
        for name, text, share in places:
            width = 11.6 * share - (0.2 if share < 1 else 0)
            box(axes, name, text, left, 6.0 - row, width, 0.75, COLOURS["zoo"])
            left += 11.6 * share + (0.2 / (len(places) - 1) if len(places) > 1 else 0)
    text = "attention, positions, norms, feed-forward networks, blocks, recurrent layers: Keras and NumPy only"
    box(axes, "layers", text, 0, -2.35, 12, 0.75, COLOURS["layers"])
    for top, bottom in ((7.6, 7.2), (-1.2, -1.6)):
        axes.annotate("", (6, bottom), (6, top), arrowprops={"arrowstyle": "-|>", "color": "#666666"})
    figure.savefig(IMAGES / "architecture_rooms.png", dpi=100)


def ways() -> None:
    """The way of a string through the three calls."""
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    axes = figure.add_subplot(xlim=(-1.2, 12), ylim=(0, 3.9))
    axes.axis("off")
    for row, (call, steps) in enumerate(WAYS.items()):
        bottom = 2.75 - 1.3 * row
        axes.text(-1.15, bottom + 0.45, f"{call}()", va="center", weight="bold", fontsize=10, family="monospace")
        for index, (step, where) in enumerate(steps):
            left = 0.1 + 2.0 * index
            box(axes, step, where, left, bottom, 1.7, 0.9, "#f3f3f3")
            if index:
                arrow = {"arrowstyle": "-|>", "color": "#666666"}
                axes.annotate("", (left, bottom + 0.45), (left - 0.3, bottom + 0.45), arrowprops=arrow)
    figure.savefig(IMAGES / "architecture_ways.png", dpi=100)


if __name__ == "__main__":
    rooms()
    ways()
