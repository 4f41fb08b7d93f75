"""Every number of docs/concepts is computed by the code of its page, or stands in a table of measurements.

A measured table begins with a comment that names the page with the measurements and their command:
`<!-- rows from ../results.md -->`. Each of its rows is part of a row there.
"""

import re
from pathlib import Path

import pytest
from page_code import python_blocks

PAGES = sorted((Path(__file__).parents[2] / "docs" / "concepts").glob("*.md"))
ROOT = Path(__file__).parents[2]
# decimal numbers and integers from 100 on, but years
NUMBER = re.compile(r"(?<![\w.,])(?!(?:19|20)\d\d\b)(?:\d+\.\d+|\d{1,3}(?:,\d{3})+|\d{3,})(?!\w|[.,]\d)")
CITATION = re.compile(r"(?:sections?|appendix|equations?|tables?|Qwen|Gemma|Llama|Python|Keras) [\d.A-Z]+|`[^`]*`")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
MEASURED = re.compile(r"<!-- rows from (\S+) -->\n\n((?:\|.*\n)+)")


def plain(number: str) -> str:
    """A number without separators of thousands, and without zeros behind its decimals."""
    number = re.sub(r"[_,]", "", number)
    return number.rstrip("0").rstrip(".") if "." in number else number


def numbers(text: str) -> set[str]:
    """Numbers that a text states."""
    return {plain(number) for number in NUMBER.findall(text.replace("{,}", ","))}


def computed(page: Path) -> set[str]:
    """Numbers that the code of a page holds or that stand, compared, in its outputs."""
    text = "\n".join(f"{block.code}\n{block.output or ''}" for block in python_blocks(page))
    return {plain(number) for number in re.findall(r"\d[\d_]*(?:\.\d*|(?:,\d{3})+)?", text)}


def test_there_are_pages():
    assert len(PAGES) >= 12


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_numbers_are_computed(page):
    text = page.read_text(encoding="utf-8")
    prose = CITATION.sub("", MEASURED.sub("", FENCE.sub("", text)))
    missing = sorted(numbers(prose) - computed(page))
    assert not missing, f"{page.name} states numbers that no code of it computes: {', '.join(missing)}"


def cells(row: str) -> set[str]:
    return {cell.strip(" *") for cell in row.strip("|").split("|")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_measured_tables(page):
    for target, table in MEASURED.findall(page.read_text(encoding="utf-8")):
        lines = (page.parent / target).read_text(encoding="utf-8").splitlines()
        measured = [cells(line) for line in lines if line.startswith("|")]
        for row in table.splitlines()[2:]:
            assert any(cells(row) <= known for known in measured), f"{page.name}: {row} is not in {target}"


def test_each_page_is_in_the_course_and_leads_on():
    index = (PAGES[0].parent / "index.md").read_text(encoding="utf-8")
    order = re.findall(r"^\| \d+ \| \[[^\]]+\]\((\w+\.md)\)", index, re.MULTILINE)
    assert sorted(order) == [page.name for page in PAGES if page.name != "index.md"]
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.findall(r"- concepts/(\w+\.md)", navigation) == ["index.md", *order]
    for name, following in zip(["index.md", *order], order, strict=False):
        text = (PAGES[0].parent / name).read_text(encoding="utf-8")
        assert re.search(rf"^Next: \[[^\]]+\]\({following}\)\.$", text, re.MULTILINE), f"{name} leads elsewhere"
        assert name == "index.md" or "## Play with it" in text, f"{name} has no cell to play with"
