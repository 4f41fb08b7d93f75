"""Notebooks made of the documentation pages are valid and have the code, outputs and links of their pages."""

import re
import runpy
from pathlib import Path

import pytest
from page_code import python_blocks

pytest.importorskip("jupytext", reason='jupytext is not installed (pip install -e ".[docs]")')
nbformat = pytest.importorskip("nbformat")

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "make_notebooks.py"))
PAGES = SCRIPT["pages"]()


def test_pages_are_found():
    assert {"install", "classify", "serve"} <= {page.stem for page in PAGES}
    assert len({page.stem for page in PAGES}) == len(PAGES), "one notebook for each name"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_notebook(page, tmp_path):
    folder = ROOT / "notebooks"  # need not exist
    notebook = SCRIPT["make_notebook"](page, folder)
    nbformat.validate(notebook)
    path = tmp_path / "page.ipynb"
    nbformat.write(notebook, path)
    notebook = nbformat.read(path, as_version=4)

    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    blocks = python_blocks(page)
    assert [cell.source.strip() for cell in cells] == [block.code.strip() for block in blocks]
    for cell, block in zip(cells, blocks, strict=True):
        assert "".join(output.text for output in cell.outputs) == (block.output or "")
    texts = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert "```output" not in texts and "```python" not in texts
    prose = re.sub(r"```.*?```|`[^`]*`", "", texts, flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", prose):
        assert (folder / target).resolve().exists(), f"{page.name} as a notebook links to {target}"
    prose_of_page = re.sub(r"```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"\w+", prose)) > 0.8 * len(re.findall(r"\w+", prose_of_page)), "prose is lost"
