"""The reference has every public name; its generated pages are those that their scripts write."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference"
REFERENCE = runpy.run_path(str(FOLDER / "make_reference.py"))
PAPERS = runpy.run_path(str(FOLDER / "make_papers.py"))


@pytest.mark.parametrize("name", REFERENCE["PAGES"])
def test_page_is_what_the_script_writes(name):
    written = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert written == REFERENCE["page"](name), "run docs/reference/make_reference.py"


def test_layers_by_paper_is_what_the_script_writes():
    assert PAPERS["PAGE"].read_text(encoding="utf-8") == PAPERS["page"](), "run docs/reference/make_papers.py"


def test_every_room_has_a_page():
    rooms = {of for _, _, sections in REFERENCE["PAGES"].values() for of in sections.values() if isinstance(of, str)}
    packages = {f"zoo.{path.parent.name}" for path in (ROOT / "zoo").glob("*/__init__.py")}
    assert packages <= rooms


def test_every_name_of_layers_and_zoo_is_there():
    shown = set(
        re.findall(r"^::: [\w.]*\.(\w+)$", "".join(path.read_text() for path in FOLDER.glob("*.md")), re.MULTILINE)
    )
    for package in ("layers", "zoo"):
        missing = set(REFERENCE["public_names"](package)) - shown
        assert not missing, f"no page of docs/reference has {sorted(missing)} of {package}"


def test_papers_have_title_and_year():
    rows = PAPERS["rows"]()
    assert len(rows) > 80
    for layer, paper, _ in rows:
        assert re.fullmatch(r'[^"]+ (19|20)\d\d, "[^"]+"', paper), (layer, paper)


def test_sections_of_docstrings():
    pytest.importorskip("griffe", reason="the extra docs is not installed")
    rewritten = runpy.run_path(str(FOLDER / "docstring_sections.py"))["rewritten"]
    text = (
        "One line.\n\nCall arguments:\n    one, two,\n        three: Numbers.\n\n"
        "Example:\n\n>>> f(1)\n2\n\nReference:\n    A 2000,\n    B.\n"
    )
    expected = (
        "One line.\n\nOther Parameters: Call arguments\n    one, two, three: Numbers.\n\n"
        "**Example**\n\n```pycon\n>>> f(1)\n2\n```\n\n**Reference:** A 2000, B.\n"
    )
    assert rewritten(text) == expected
    assert rewritten("One.\n\nExample:\n\n```python\nf(1)\n```\n") == "One.\n\n**Example**\n\n```python\nf(1)\n```\n"
