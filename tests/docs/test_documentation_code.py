"""Every Python block of the README and of docs/ runs; the blocks of a page share their names, top to bottom."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "layers").rglob("*.md")])
# packages that the blocks of a page need and the project does not
NEEDS = re.compile(r"^<!-- The code of this page needs: (.*) -->", re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def python_blocks(page: Path) -> list[tuple[int, str]]:
    text = page.read_text(encoding="utf-8")
    return [(text[: match.start(1)].count("\n"), match.group(1)) for match in BLOCK.finditer(text)]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.exists() and python_blocks(page)], ids=lambda p: p.name
)
def test_blocks_run(page, tmp_path, monkeypatch):
    for line in NEEDS.findall(page.read_text(encoding="utf-8")):
        for package in line.split(", "):
            pytest.importorskip(package, reason=f"{page.name} needs {package}")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "documentation"}
    for line, block in python_blocks(page):
        # blank lines in front make tracebacks show the line of the page
        exec(compile("\n" * line + block, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page):
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"
