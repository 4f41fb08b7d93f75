"""Makes the pictures of the tutorials: runs the code of the pages and keeps the files that they show.

A page with a script `make_NAME_picture.py` of its own is left to that script.

python docs/make_tutorial_pictures.py               # all pages
python docs/make_tutorial_pictures.py classify translate
"""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

TUTORIALS = Path(__file__).resolve().parent / "tutorials"
PICTURE = re.compile(r"!\[[^]]*\]\(images/([^)]+)\)")
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def make(page: Path) -> list[str]:
    """Runs a page in an empty folder, and copies its pictures to the folder of images; returns their names."""
    text = page.read_text(encoding="utf-8")
    shown = PICTURE.findall(text)
    if not shown or page.with_name(f"make_{page.stem}_picture.py").is_file():
        return []
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            names = {"__name__": "documentation"}
            for code in CODE.findall(text):
                exec(compile(code, str(page), "exec"), names)
            for name in shown:
                shutil.copyfile(name, TUTORIALS / "images" / name)
        finally:
            os.chdir(before)
    return shown


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(path.stem for path in TUTORIALS.glob("*.md")):
        print(name, *make(TUTORIALS / f"{name}.md"))
