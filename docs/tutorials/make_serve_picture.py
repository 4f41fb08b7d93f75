"""Takes the picture of serve.md in Chromium, of the server's page with the classifier that the code of serve.md makes.

python docs/tutorials/make_serve_picture.py
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).resolve().parent
PROJECT = FOLDER.parents[1]


def export_models() -> None:
    """Runs the code of the page up to the first export, in the current folder."""
    page = (FOLDER / "serve.md").read_text(encoding="utf-8")
    names = {"__name__": "documentation"}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        exec(compile(block, "serve.md", "exec"), names)
        if "new_version" in block:
            return


def take_picture(address: str) -> None:
    """Asks the classifier in a browser and keeps what the page shows."""
    with sync_playwright() as play:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 900, "height": 1000}, color_scheme="light")
        page.goto(address)
        page.get_by_label("Text").fill("the courier is late")
        page.locator("#work button.send:visible").click()
        page.locator("#work table").wait_for()
        end = page.locator("main").bounding_box()
        clip = {"x": 0, "y": 0, "width": 900, "height": end["y"] + end["height"]}
        page.screenshot(path=FOLDER / "images" / "serve_browser.png", clip=clip)
        browser.close()


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        export_models()
        environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
        command = [sys.executable, "-m", "recipes.serve", "models", "--port", str(port)]
        server = subprocess.Popen(command, env=environment)
        try:
            wait = ["curl", "-sf", "-o", os.devnull, "--retry", "60", "--retry-connrefused", f"{address}/ready"]
            subprocess.run(wait, check=True)
            take_picture(address)
        finally:
            server.terminate()
            server.wait(60)
            os.chdir(FOLDER)


if __name__ == "__main__":
    main()
