"""Chromium without a window, for the tests of pages."""

import contextlib
import shutil
import time

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# The color of the first pixel of a canvas, read from a copy: the browser warns of canvases that are read twice.
CORNER = """canvas => {
  const copy = new OffscreenCanvas(1, 1).getContext('2d');
  copy.drawImage(canvas, 0, 0);
  return Array.from(copy.getImageData(0, 0, 1, 1).data);
}"""


@contextlib.contextmanager
def open_chromium():
    """A browser; the test is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the extra test is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def wait_until(is_so, seconds=30):
    """Waits until something is so.

    That of the browser's driver makes code out of text, which the pages forbid.
    """
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "It has taken too long."
        time.sleep(0.03)


def numbered(names):
    """Names of tokens as tables show them: those that are there several times have numbers."""
    names = list(names)
    return [
        f"{name} #{names[: place + 1].count(name)}" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    ]
