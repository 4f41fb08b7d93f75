"""Makes Jupyter notebooks of documentation pages, with jupytext (`pip install -e ".[docs]"`).

    python docs/make_notebooks.py                                   # all tutorials and first steps, into notebooks/
    python docs/make_notebooks.py --output /tmp/n docs/tasks/causal_lm.md

Python blocks become code cells, and an output that the page states becomes the output of its cell. Commands for a
terminal stay text: a notebook would wait for a server that never ends. Links and pictures lead to the project's files.
"""

import argparse
import os
import re
from pathlib import Path

import jupytext
import nbformat

DOCS = Path(__file__).resolve().parent
FOLDERS = ("start", "tutorials", "concepts")
OUTPUT = re.compile(r"\A```output\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)#:\s]+)(#[^)]*)?\)")
# of the kernel that Jupyter has for the Python it runs in
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def pages() -> list[Path]:
    """Returns the pages that notebooks are made of."""
    return [page for folder in FOLDERS for page in sorted((DOCS / folder).glob("*.md"))]


def make_notebook(page: Path, folder: Path) -> nbformat.NotebookNode:
    """Returns a page as a notebook.

    Args:
        page: A Markdown file.
        folder: Where the notebook is going to be, for its links.
    """
    text = page.read_text(encoding="utf-8")
    # jupytext makes cells of commands too
    text = re.sub(r"^```bash$", "```console", text, flags=re.MULTILINE)
    notebook = jupytext.reads(text, fmt="md")
    notebook.metadata = nbformat.from_dict(KERNEL)
    cells = []
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type == "markdown":
            stated = OUTPUT.match(cell.source)
            if stated:
                cells[-1].outputs = [nbformat.v4.new_output("stream", name="stdout", text=stated[1])]
                cell.source = cell.source[stated.end() :].lstrip("\n")
            cell.source = LINK.sub(
                lambda link: f"{link[1]}{_moved(link[2], page, folder)}{link[3] or ''})", cell.source
            )
        if cell.source:
            cells.append(cell)
    notebook.cells = cells
    return notebook


def _moved(target: str, page: Path, folder: Path) -> str:
    """The target of a link of a page, from another folder."""
    return Path(os.path.relpath(page.resolve().parent / target, folder.resolve())).as_posix()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path, help="Markdown files; default: first steps, tutorials, concepts")
    parser.add_argument("--output", type=Path, default=DOCS.parent / "notebooks", help="folder of the notebooks")
    words = parser.parse_args()
    words.output.mkdir(parents=True, exist_ok=True)
    for page in words.pages or pages():
        path = words.output / f"{page.stem}.ipynb"
        nbformat.write(make_notebook(page, words.output), path)
        print(path)


if __name__ == "__main__":
    main()
