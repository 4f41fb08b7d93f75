"""One HTML page of an inspection: its data, scripts and styles in one file."""

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from zoo.inspect.packing import packed, packed_weights

# Scripts and styles; some are those of the page of a server, too.
FOLDER = Path(__file__).with_name("page")
_IMPORT = re.compile(r'^import [^;]*? from "\./([\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


def page_of(inspection: Any) -> str:
    """Returns the page of an inspection.

    Args:
        inspection: An `Inspection`.
    """
    words = " ".join(inspection.source_tokens or inspection.tokens).split()  # some tokenizers keep spaces, some do not
    title = f"{inspection.task}: {' '.join(words)[:60]}"
    style = read_part("look.css") + read_part("inspect.css")
    return self_contained(title, json_script(_data(inspection)), style=style, code=bundle("main.js"))


def read_part(name: str) -> str:
    """Returns a script or style of pages; "look.css" is how all pages look.

    Args:
        name: Name of the file.
    """
    return (FOLDER / name).read_text(encoding="utf-8")


def self_contained(title: str, body: str, *, style: str, code: str = "") -> str:
    """Returns a page that loads nothing, and runs no code but its own.

    Args:
        title: Its title, a text.
        body: Its body, HTML.
        style: Its style sheet.
        code: The module that runs.
    """
    policy = f"default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src '{_digest(style)}'"
    if code:
        policy += f"; script-src '{_digest(code)}'"
    scripts = f'<script type="module">{code}</script>\n' if code else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body>
{body}
{scripts}</body>
</html>
"""


def bundle(name: str) -> str:
    """Returns a module and all that it imports as one script, in the order in which they need each other.

    The modules share their names, so no name at the top of one may be that of another.

    Args:
        name: Name of a file in the folder of pages, which imports others there by `"./name.js"`.

    Raises:
        ValueError: If modules import each other in a circle.
    """
    parts: dict[str, str] = {}

    def add(name: str, trail: tuple[str, ...]) -> None:
        if name in trail:
            raise ValueError(f"Modules must not import each other, got {' -> '.join((*trail, name))}.")
        if name in parts:
            return
        text = read_part(name)
        for other in _IMPORT.findall(text):
            add(other, (*trail, name))
        parts[name] = _EXPORT.sub("", _IMPORT.sub("", text))

    add(name, ())
    return "\n".join(parts.values())


def json_script(data: dict[str, Any]) -> str:
    """Returns data as an element of HTML that scripts read; no text in it ends the element.

    Args:
        data: JSON values.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="data">{text}</script>'


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _data(inspection: Any) -> dict[str, Any]:
    """What the page shows, by the names that its scripts know."""
    weights = {
        "attention": inspection.attention,
        "source": inspection.source_attention,
        "cross": inspection.cross_attention,
    }
    stacks = {"attention": (inspection.tokens, inspection.norms, inspection.gradients)}
    if inspection.source_tokens is not None:
        stacks["source"] = (inspection.source_tokens, inspection.source_norms, inspection.source_gradients)
    data: dict[str, Any] = {
        "task": inspection.task,
        "weights": {name: packed_weights(value) for name, value in weights.items() if value is not None},
        "stacks": {
            name: {
                "tokens": list(tokens),
                "norms": packed(norms),
                "gradients": None if gradients is None else packed(gradients),
            }
            for name, (tokens, norms, gradients) in stacks.items()
        },
    }
    if inspection.choices is not None:
        data["decisions"] = {
            "rows": list(inspection.rows),
            "places": inspection.places.tolist(),
            "targets": list(inspection.targets),
            "areValues": inspection.are_values,
            # a text without its number would repeat in most rows
            **_numbered(inspection.choices),
            "choiceProbabilities": packed(inspection.choice_probabilities),
            "targetProbabilities": packed(inspection.target_probabilities),
            "gradientOf": None if inspection.gradient_of is None else list(inspection.gradient_of),
        }
    return data


def _numbered(choices: np.ndarray) -> dict[str, Any]:
    """Texts once, and their numbers in the order of the array."""
    names = {name: number for number, name in enumerate(dict.fromkeys(choices.reshape(-1)))}
    numbers = [names[name] for name in choices.reshape(-1)]
    return {"names": list(names), "choices": {"shape": list(choices.shape), "numbers": numbers}}
