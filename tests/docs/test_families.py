"""docs/families.md says what is found when it is tried again: one cell of each column; all of them with `-m slow`."""

import runpy
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("sentencepiece")

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "make_family_table.py"))
COLUMNS, FAMILIES = list(SCRIPT["COLUMNS"]), list(SCRIPT["trials"].families())
# the others take minutes
QUICK = {
    ("import", "gemma3_text"),
    ("heads", "nomic_bert"),
    ("tokenizer", "bart"),
    ("chat", "qwen3"),
    ("generate", "mt5"),
    ("LoRA", "llama"),
    ("int8", "gpt_oss"),
    ("export back", "phi3"),
}


@pytest.fixture(scope="module")
def cells():
    """What the page says, by family and column."""
    lines = (ROOT / "docs" / "families.md").read_text(encoding="utf-8").splitlines()
    first = lines.index("| " + " | ".join(["`model_type`", *COLUMNS]) + " |")
    rows = [line.strip("| ").split(" | ") for line in lines[first + 2 : lines.index("", first)]]
    return {row[0].strip("`"): dict(zip(COLUMNS, row[1:], strict=True)) for row in rows}


def test_page_has_all_families_and_heads(cells):
    from zoo.huggingface.family import get_family

    assert list(cells) == FAMILIES, "run docs/make_family_table.py"
    for name, found in cells.items():
        assert found["heads"] == ", ".join(f"`{kind}`" for kind in get_family(name).heads), name


def test_page_has_well_known_models():
    page = (ROOT / "docs" / "families.md").read_text(encoding="utf-8")
    for name in FAMILIES:
        row = f"| `{name}` | {SCRIPT['models_of'](name)} |"
        assert "/" in row and row in page, f"run docs/make_family_table.py: {row}"


def test_families_of_transformers_that_are_missing(cells):
    script = runpy.run_path(str(ROOT / "docs" / "missing_families.py"))
    known = script["read_families"]((ROOT / "docs" / "families.md").read_text(encoding="utf-8"))
    assert known == set(cells)
    uses = {"much": 7, "little": 1, "none": 0}
    assert script["missing"](known, [*uses, "bert"], uses.get) == [("much", 7), ("little", 1), ("none", 0)]


@pytest.mark.parametrize(
    ("column", "name"),
    [
        pytest.param(column, name, marks=() if (column, name) in QUICK else pytest.mark.slow)
        for column in COLUMNS
        for name in FAMILIES
    ],
)
def test_page_says_what_is_found(column, name, cells):
    assert SCRIPT["cell"](column, name) == cells[name][column]


def test_lines_are_counted():
    counted = runpy.run_path(str(ROOT / "docs" / "count_family_lines.py"))["counted"]()
    page = (ROOT / "docs" / "families.md").read_text(encoding="utf-8")
    for row in counted["lines"].splitlines():
        # the numbers change with each change of a file
        names, file = row.split(" | ")[:2]
        assert f"{names} | {file} | " in page, f"run docs/make_family_table.py: {row}"
