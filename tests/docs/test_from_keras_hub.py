"""The page for users of KerasHub: its guides run in both forms, and the page counts the lines that change."""

import difflib
import operator
import re
from pathlib import Path

import pytest
from page_code import FENCE, Block, run_block

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "from_keras_hub.md"
TEXT = PAGE.read_text(encoding="utf-8")
COUNT = re.compile(r"^Lines that change: (\d+) of (\d+), (\d+) in their place\.$", re.MULTILINE)
GUIDES = [part for part in re.split(r"^## ", TEXT, flags=re.MULTILINE) if COUNT.search(part)]


def blocks(guide, language):
    return [match[2] for match in FENCE.finditer(guide) if match[1] == language]


def lines(code):
    return [line.rstrip() for line in code.splitlines() if line.strip()]


def test_there_are_three_guides():
    assert len(GUIDES) == 3


def test_names_of_the_table_exist():
    import layers
    import zoo

    rows = [line.split(" | ") for line in TEXT.splitlines() if line.startswith("| `")]
    names = re.findall(r"\b(zoo|layers)\.([\w.]+)", " ".join(row[-1] for row in rows))
    assert len(rows) > 25 and len(names) > 15
    for package, name in names:
        assert operator.attrgetter(name)({"zoo": zoo, "layers": layers}[package])


@pytest.mark.parametrize("guide", GUIDES, ids=[guide.split("\n")[0] for guide in GUIDES])
def test_counted_lines(guide):
    (theirs,), ours = blocks(guide, "py"), blocks(guide, "python")[1]
    # "- " and "+ " begin lines of one form alone
    marks = [line[0] for line in difflib.ndiff(lines(theirs), lines(ours))]
    counted = marks.count("-"), len(lines(theirs)), marks.count("+")
    assert tuple(map(int, COUNT.search(guide).groups())) == counted


@pytest.mark.slow
@pytest.mark.pages
@pytest.mark.parametrize("guide", GUIDES, ids=[guide.split("\n")[0] for guide in GUIDES])
def test_the_forms_of_keras_hub_print_the_same(guide, tmp_path, monkeypatch):
    pytest.importorskip("keras_hub")
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in (blocks(GUIDES[0], "python")[0], blocks(guide, "python")[0]):
        run_block(Block(0, code, None), names, PAGE.name)
    run_block(Block(0, blocks(guide, "py")[0], blocks(guide, "output")[0]), names, PAGE.name)
