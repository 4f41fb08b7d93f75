"""A hook of MkDocs: what the site takes from other places of the project, and what it is told when it is built.

CONTRIBUTING.md and CHANGELOG.md of the project's folder are pages of the site. Their links are written for the
repository, from its folder; here they begin in `docs`. The icon is that of the server's page.
"""

import os
import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}


def on_config(config: Any, **_: Any) -> Any:
    """Shows a list of versions where `mike` builds the site, which writes the list."""
    if "MIKE_DOCS_VERSION" in os.environ:
        config.extra["version"] = {"provider": "mike"}
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Returns the text of a page: that of the project's file where the page stands for one."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation", "toc", "path"]  # room for pictures
    name = SOURCES.get(page.file.src_uri)
    if name is None:
        return markdown
    text = (ROOT / name).read_text(encoding="utf-8")
    return text.replace("](docs/", "](")


def on_post_build(config: Any, **_: Any) -> None:
    """Writes the icon to the site."""
    shutil.copyfile(ROOT / "zoo/serving/page/icon.svg", Path(config.site_dir) / "assets/icon.svg")
