"""Every Python block of the README and of docs/ runs, and prints what the page states.

The blocks of a page share their names, top to bottom. `tests/helpers/page_code.py` says how a page states an output.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_code import Block, python_blocks, run_block

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "layers").rglob("*.md")])
# packages that the blocks of a page need and the project does not
NEEDS = re.compile(r"^<!-- The code of this page needs: (.*) -->", re.MULTILINE)
# pages that train as many steps as it takes to show something
TAKES_LONG = "<!-- The code of this page takes long. -->\n"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def with_code():
    """The pages with Python blocks; those that take minutes are marked `slow`."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if "```python" in text:
            yield pytest.param(page, marks=[pytest.mark.slow] if text.startswith(TAKES_LONG) else [])


@pytest.mark.pages
@pytest.mark.parametrize("page", with_code(), ids=name_of)
def test_blocks_run(page, tmp_path):
    for line in NEEDS.findall(page.read_text(encoding="utf-8")):
        for package in line.split(", "):
            # without its import, for which packages of models may need others
            if importlib.util.find_spec(package) is None:
                pytest.skip(f"{page.name} needs {package}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests/helpers")])}
    command = [sys.executable, "-m", "page_code", str(page), name_of(page)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-10_000:]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_to_files_lead_somewhere(page):
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


PRINTS = "x = 2 / 3\nprint(round(x, 3))  # {}\nfor n in range(2):\n    print(n)\n"


@pytest.mark.parametrize("comment", ["0.667", "0.667: two thirds", "0.6...", "0.66...: about two thirds"])
@pytest.mark.parametrize("output", [None, "0.667\n0\n1\n", "0.6...\n0  \n1\n", "...1\n"])
def test_stated_outputs_that_are_right(comment, output):
    run_block(Block(7, PRINTS.format(comment), output), {}, "page.md")


@pytest.mark.parametrize("comment", ["0.666", "0.66", "two thirds: 0.667", "0.667 is two thirds", "...8"])
def test_a_comment_that_states_another_output(comment):
    with pytest.raises(AssertionError, match=re.escape(f"page.md:9 prints '0.667\\n', states '{comment}'")):
        run_block(Block(7, PRINTS.format(comment), None), {}, "page.md")


@pytest.mark.parametrize("output", ["", "0.667\n", "0.667\n0\n", "0.667\n0\n2\n", "0.667\n\n0\n1\n"])
def test_an_output_block_that_states_another_output(output):
    with pytest.raises(AssertionError, match="page.md:7 prints\n0.667\n0\n1\n\nbut the page states\n"):
        run_block(Block(7, PRINTS.format("0.667"), output), {}, "page.md")


def test_a_print_that_never_runs_and_one_of_several_lines():
    block = Block(0, "if False:\n    print(1)  # 1\n", None)
    with pytest.raises(AssertionError, match="page.md:2 prints ''"):
        run_block(block, {}, "page.md")
    run_block(Block(0, "print(\n    1,\n    2,\n)  # 1 2\n", None), {}, "page.md")
    with pytest.raises(AssertionError, match="page.md:1 prints '1 2"):
        run_block(Block(0, "print(\n    1,\n    2,\n)  # 1 3\n", None), {}, "page.md")


def test_blocks_of_a_page(tmp_path):
    page = tmp_path / "page.md"
    python, bash = "```python\nx = 1\n```\n", "```bash\nls\n```\n"
    page.write_text(f"# Title\n\n{python}\n```output\n1\n```\n\n{bash}\n{python}")
    assert python_blocks(page) == [Block(3, "x = 1\n", "1\n"), Block(15, "x = 1\n", None)]
    for other in ("```output\n1\n```\n", "```python\nx = 1\n```\n\nThis prints:\n\n```output\n1\n```\n"):
        page.write_text(other)
        with pytest.raises(AssertionError, match="must stand directly below a Python block"):
            python_blocks(page)
