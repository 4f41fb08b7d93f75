"""A hook of MkDocs: shows CONTRIBUTING.md and CHANGELOG.md of the project's folder as pages of the site.

Their links are written for the repository, from its folder; here they begin in `docs`.
"""

from pathlib import Path
from typing import Any

SOURCES = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Returns the text of a page: that of the project's file where the page stands for one."""
    name = SOURCES.get(page.file.src_uri)
    if name is None:
        return markdown
    text = (Path(__file__).resolve().parents[1] / name).read_text(encoding="utf-8")
    return text.replace("](docs/", "](")
