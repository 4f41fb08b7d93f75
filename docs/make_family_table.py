"""Writes docs/families.md: what works for each family of models, tried on tiny ones, and how many lines a family takes.

    python docs/make_family_table.py

A cell is what a function of `family_trials.py` returned; its ValueError is the reason of a "no", and anything else that
goes wrong ends this script. `tests/docs/test_families.py` compares the page with what it finds.
"""

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import count_family_lines  # noqa: E402
import family_trials as trials  # noqa: E402

PAGE = ROOT / "docs" / "families.md"
KNOWN = ROOT / "docs" / "known_checkpoints.toml"
COLUMNS: dict[str, Callable[[str], str]] = {
    "import": trials.imports,
    "heads": trials.heads,
    "tokenizer": trials.tokenizer,
    "chat": trials.chat,
    "generate": trials.generate,
    "LoRA": trials.lora,
    "int8": trials.int8,
    "export back": trials.export_back,
    "SavedModel": trials.saved_model,
}


def cell(column: str, name: str) -> str:
    """What was found out; a ValueError is the reason of a "no"."""
    try:
        return COLUMNS[column](name)
    except ValueError as error:
        return f"no: {str(error).splitlines()[0]}"


def page(cells: dict[str, dict[str, str]]) -> str:
    """The text of the page."""
    rows = [[f"`{name}`", *found.values()] for name, found in cells.items()]
    tried = "\n".join(f"* **{name}**: {' '.join(column.__doc__.split())}" for name, column in COLUMNS.items())
    as_table = count_family_lines.as_table
    table = as_table(["`model_type`", *COLUMNS], rows)
    known = as_table(["`model_type`", "models"], [[f"`{name}`", models_of(name)] for name in cells])
    return TEMPLATE.format(table=table, tried=tried, known=known, **count_family_lines.counted())


def models_of(name: str) -> str:
    """Well-known models of a family, with the numbers of their weights."""
    models = tomllib.loads(KNOWN.read_text(encoding="utf-8"))[name]
    return ", ".join(f"`{model}` ({weights})" for model, weights in models.items())


TEMPLATE = """# Families

This table shows what works for each family of the Transformers library. `python docs/make_family_table.py` generates
it: it tries each cell on models of two to seven layers with random weights that Transformers wrote
(`tests/reference/huggingface`). `tests/docs/test_families.py` checks the page.

{table}

The columns:

{tried}

Where the tokenizer is not read, "SavedModel" was tried with a tokenizer that was given: exports hold one.

## Well-known models

Models of the Hugging Face Hub, with the numbers of weights that their pages state (`docs/known_checkpoints.toml`).
`python docs/missing_families.py` lists the families of the Transformers library that are not read, the most downloaded
first.

{known}

## Not read, and why

| families | what they need that is not here |
| --- | --- |
| `mamba`, `jamba` | state spaces with a rate for each of their numbers (Mamba 1) |
| `falcon_h1`, `nemotron_h` | attention and state spaces side by side in a layer; layers without either |
| `led` | an encoder and a decoder of other lengths; its windows with global tokens are those of `longformer` |
| `big_bird` | windows with random blocks |
| `xlnet` | two streams of attention |
| the head of `esm` for contacts | scores of pairs of tokens, from the attention weights of all layers |
| `blenderbot-small` | a decoder that normalises before it adds positions, beside an encoder that does after |
| `mobilebert`, `squeezebert`, `convbert`, `fnet` | blocks with bottlenecks, grouped convolutions, Fourier transforms |
| `gemma3n`, `t5gemma` | layers that take parts of other layers' results |

## Lines of code per family

A family is a file of data: the meaning of its configuration, and the names of its weights. The table also has the
lines of the folders of the same models in KerasHub {version} (`keras_hub/src/models/<folder>/*.py`), which hold
layers, backbone, tokenizer, preprocessors, tasks and the list of presets of each model.
`python docs/count_family_lines.py` counts both, including empty lines and comments. The {total} lines here rest on
{shared} more that all families share: `zoo/huggingface` without the files of the table, and `layers`.

{lines}
"""


def main() -> None:
    cells = {name: {column: cell(column, name) for column in COLUMNS} for name in trials.families()}
    PAGE.write_text(page(cells), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
