"""Takes the picture of inspect.md in Chromium, of the page that the code of inspect.md makes.

python docs/guides/make_inspect_pictures.py
"""

import os
import re
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent
VIEW = "#view=lines&kind=alignment&layer=2"


def main():
    blocks = re.findall(r"^```python\n(.*?)^```", (FOLDER / "inspect.md").read_text(encoding="utf-8"), re.M | re.S)
    end = next(number for number, block in enumerate(blocks) if "save_html" in block)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        names = {}
        for block in blocks[: end + 1]:
            exec(block, names)
        with sync_playwright() as play:
            chromium = shutil.which("chromium") or shutil.which("google-chrome")
            browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 900, "height": 1000})
            page.goto(Path("page.html").resolve().as_uri() + VIEW)
            page.locator("table").wait_for()
            end = page.locator("main").bounding_box()
            clip = {"x": 0, "y": 0, "width": 900, "height": end["y"] + end["height"]}
            page.screenshot(path=FOLDER / "images" / "inspect_lines.png", clip=clip)
            browser.close()
        os.chdir(FOLDER)


if __name__ == "__main__":
    main()
