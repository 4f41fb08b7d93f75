"""Writes docs/reference/papers.md, the layers by paper, from the tables of layers/README.md.

python docs/reference/make_papers.py
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "papers.md"
# 'Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2': authors and year, title, section
SOURCE = re.compile(r'(?P<paper>[^,"]+? (?:19|20)\d\d)(?:, "(?P<title>[^"]+)")?(?:, (?P<section>.+))?')
HEAD = """# Layers by paper

This table lists the paper and section that each layer implements. `layers/README.md` has the same layers by topic, and
`python docs/reference/make_papers.py` generates this table from it. The options of attention have
[another table](../layers/attention.md#variations).

| paper | layer | section |
| --- | --- | --- |
"""


def rows() -> list[tuple[str, str, str]]:
    """Returns layer, paper and section, in the order of the file; "the same" stands for the row above."""
    found, titles, last = [], {}, ""
    for line in (ROOT / "layers" / "README.md").read_text(encoding="utf-8").splitlines():
        cells = line.strip("| ").split(" | ")
        if not line.startswith("| ") or len(cells) < 3 or not re.search(r"\d{4}|^the same$", cells[2].rstrip("| ")):
            continue
        layer, source = re.sub(r"\[(.*)\]\(.*\)", r"\1", cells[0]).rstrip(" *"), cells[2].rstrip("| ")
        source = last = last if source == "the same" else source
        for part in source.split("; "):
            match = SOURCE.fullmatch(re.sub(r" \([^()]*\)$", "", part))
            if match is None:
                raise ValueError(f"not a source: {part!r}")
            paper = match["paper"]
            if match["title"]:
                titles[paper] = match["title"]
            found.append((layer, paper, match["section"] or ""))
    return [(layer, f'{paper}, "{titles[paper]}"', section) for layer, paper, section in found]


def page() -> str:
    """Returns the text of the page: papers by year, then by name."""
    papers: dict[str, list[tuple[str, str]]] = {}
    for layer, paper, section in rows():
        papers.setdefault(paper, []).append((layer, section))
    by_year = sorted(papers, key=lambda paper: (re.search(r"\d{4}", paper)[0], paper))
    lines = [f"| {paper} | {layer} | {section} |" for paper in by_year for layer, section in papers[paper]]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
