"""The site of the pages: its formulas, what it loads, its search and its navigation, in a browser without a network."""

import functools
import http.server
import re
import runpy
import subprocess
import sys
import threading
import xml.etree.ElementTree
from pathlib import Path

import pytest
from chromium import open_chromium

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
WITH_FORMULAS = [page for page in PAGES if re.search(r"\$[^$\n`]+\$", page.read_text("utf-8"))]


@pytest.fixture(scope="module")
def formulas():
    for name in ("latex2mathml", "fontTools"):
        pytest.importorskip(name, reason="the extra docs is not installed")
    return runpy.run_path(str(ROOT / "docs" / "formulas.py"))


@pytest.mark.parametrize("page", WITH_FORMULAS, ids=lambda page: page.relative_to(ROOT / "docs").as_posix())
def test_formulas_of_a_page_are_mathml(page, formulas):
    markdown = pytest.importorskip("markdown", reason="the extra docs is not installed")
    pytest.importorskip("pymdownx", reason="the extra docs is not installed")
    extensions = ["tables", "pymdownx.superfences", "pymdownx.arithmatex"]
    options = {"pymdownx.arithmatex": {"generic": True}}
    text = markdown.markdown(page.read_text("utf-8"), extensions=extensions, extension_configs=options)
    written = formulas["on_page_content"](text, page=None)
    found = re.findall(r"<math .*?</math>", written, re.DOTALL)
    assert len(found) == text.count('class="arithmatex"')
    for formula in found:
        shown = "".join(xml.etree.ElementTree.fromstring(formula).itertext())
        assert not re.search(r"[\\&]|[$^_]$", shown), shown


def test_what_the_converter_writes_otherwise(formulas):
    assert "<mtext>softmax</mtext>" in formulas["mathml"](r"\mathrm{softmax}(x)")
    assert "<mn>37,000</mn>" in formulas["mathml"]("37{,}000")
    aligned = formulas["mathml"](r"\begin{aligned} a &= b \\ c &= d \end{aligned}", display=True)
    assert aligned.count("<mtr>") == 2 and aligned.count("<mtd") == 4
    signs = formulas["mathml"]("(-1, -2) = -3 - 4")
    assert signs.count('<mo form="prefix">&#x02212;</mo>') == 3 and signs.count("<mo>&#x02212;</mo>") == 1


def test_a_command_that_the_converter_does_not_know(formulas):
    with pytest.raises(ValueError, match=r"does not know a command of the formula '\\\\nothing x'"):
        formulas["mathml"](r"\nothing x")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def address(site):
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    with open_chromium() as browser:
        yield browser


@pytest.fixture
def open_page(browser, address):
    """A function that opens a page; the browser may ask no other server, and say no error, until the end."""
    contexts, problems = [], []

    def route(request):
        if request.request.url.startswith(address):
            request.continue_()
        else:
            problems.append(request.request.url)
            request.abort()

    def open_page(place, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        context.route("**/*", route)
        page = context.new_page()
        page.on("console", lambda message: message.type == "error" and problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(address + place)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not problems


@pytest.mark.browser
def test_no_page_loads_anything_from_elsewhere_or_shows_raw_formulas(site):
    for path in site.rglob("*.html"):
        text = path.read_text("utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]* src=[\"']?(?:https?:)?//[^\s>]*", text)
        loaded += re.findall(r"<link[^>]* rel=[\"']?(?:stylesheet|preconnect|preload)[^>]*//[^>]*", text)
        assert not loaded, path
        assert "arithmatex" not in text and "\\(" not in re.sub(r"<(code|script).*?</\1>", "", text, flags=re.DOTALL)


@pytest.mark.browser
def test_formulas_are_drawn(open_page):
    page = open_page("concepts/scaled_dot_product/")
    assert "\\(" not in page.inner_text("body") and "\\[" not in page.inner_text("body")
    fraction = page.locator("math mfrac").first.bounding_box()
    assert fraction["height"] > 30
    assert page.evaluate("document.fonts.ready.then(() => document.fonts.check('16px \"STIX Two Math\"'))")
    bracket = page.locator("math mtable").first.locator("xpath=preceding-sibling::*[1]").bounding_box()
    assert bracket["height"] > 50  # as high as the matrix of three rows


@pytest.mark.browser
@pytest.mark.parametrize(
    ("words", "found"),
    [("RotaryEmbedding", "reference/layers/"), ("rotary", "reference/layers/"), ("save_to_preset", "reference/")],
)
def test_search(open_page, address, words, found):
    page = open_page("")
    page.keyboard.press("/")
    page.get_by_role("textbox", name="Search").press_sequentially(words)
    page.locator(".md-search-result__link").first.wait_for()
    places = page.locator(".md-search-result__link").evaluate_all("links => links.map(link => link.href)")
    assert any(place.startswith(address + found) for place in places[:10]), places


@pytest.mark.browser
@pytest.mark.parametrize("colors", ["light", "dark"])
@pytest.mark.parametrize("place", ["", "guides/training/", "concepts/positions/", "reference/layers/", "results/"])
def test_pages_fit_a_phone(open_page, place, colors):
    page = open_page(place, viewport={"width": 390, "height": 844}, color_scheme=colors)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.locator("body").get_attribute("data-md-color-scheme") == {"light": "default", "dark": "slate"}[colors]


@pytest.mark.browser
def test_a_page_leads_on(open_page):
    page = open_page("concepts/masks/")
    assert page.get_by_role("navigation", name="Tabs").get_by_role("link").all_inner_texts() == [
        "Start",
        "Tutorials",
        "Guides",
        "Concepts",
        "Reference",
        "Results",
    ]
    assert page.locator(".md-path").inner_text().split() == ["Concepts", "The", "course"]
    footer = page.locator(".md-footer__link")
    assert [link.get_attribute("href") for link in footer.all()] == ["../scaled_dot_product/", "../multi_head/"]
    page = open_page("")
    assert all(image["width"] for image in page.evaluate("[...document.images].map(i => ({width: i.naturalWidth}))"))
    picture = page.locator("meta[property='og:image']").get_attribute("content")
    assert page.request.get(page.url + picture).headers["content-type"] == "image/png"
