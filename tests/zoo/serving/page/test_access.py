"""The page for all: keys alone, names for screen readers, contrast, narrow windows, and no code from elsewhere."""

from pathlib import Path

import pytest

httpx = pytest.importorskip("httpx", reason="the extra test is not installed")
pytestmark = pytest.mark.browser

VIEWS = [
    ("chat", "Chat", {"Your message": "who are you"}),
    ("chat", "Complete", {"Text to continue": "hello"}),
    ("labels", None, {"Text": "who are you"}),
    ("names", "Entities", {"Text": "Ada Lovelace lives in London, wörld of 你好"}),
    ("names", "Words", {"Text": "Ada Lovelace lives in London"}),
    ("names", "Attention", {"Text": "Ada Lovelace lives in London"}),
    ("answers", "Answer", {"Question": "who", "Text with the answer": "Ada Lovelace lives in London"}),
    ("vectors", "Search", {"Search for": "Ada", "Texts": "Ada lives\nwho are you\nLondon"}),
    ("vectors", "Compare", {"Texts": "Ada lives\nwho are you\nLondon"}),
    ("masks", None, {"Text": "Ada <mask> in London"}),
    ("translations", "Write", {"Text": "Ada lives in London"}),
]
# What has to have a name, by which it is called.
NAMED_ROLES = ("textbox", "button", "combobox", "radio", "spinbutton", "table", "region", "image", "link", "list")
# What measures contrast.
CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_width(open_page, address, choose, send, scheme):
    page = open_page(address, color_scheme=scheme, viewport={"width": 320, "height": 640})
    page.get_by_label("Model", exact=True).wait_for()
    papers = set()
    for model, view, fields in VIEWS:
        choose(page, model, view)
        for label, text in fields.items():
            page.get_by_label(label, exact=True).fill(text)
        for closed in page.locator("details:not([open]) summary").all():
            closed.click()
        send(page)
        found = page.evaluate(CONTRAST)
        assert found["count"] > 9 and found["text"][0] >= 4.5 and found["edge"][0] >= 3, (model, view, found)
        papers.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        # nothing is wider than a narrow window but what scrolls by itself
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 320, (model, view)
    # an error
    choose(page, "labels")
    page.get_by_label("Text", exact=True).fill("who " * 400)
    send(page)
    assert page.get_by_role("alert").is_visible() and page.evaluate(CONTRAST)["text"][0] >= 4.5
    assert papers == {"rgb(251, 250, 248)" if scheme == "light" else "rgb(21, 23, 27)"}


def test_marks_are_readable_in_all_colors(open_page, address):
    for scheme in ("light", "dark"):
        page = open_page(address, color_scheme=scheme)
        page.get_by_label("Model", exact=True).wait_for()
        page.evaluate(
            """async () => {
              const { markedText } = await import('/page/marked.js');
              const spans = [...'abcdefgh'].map((label, start) => ({ start, end: start + 1, label }));
              document.getElementById('views').replaceChildren(markedText('abcdefgh', spans));
            }"""
        )
        assert page.locator("mark").count() == 8 and page.evaluate(CONTRAST)["text"][0] >= 4.5


def test_keys_alone(page, choose, until):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the form"
    choose(page, "chat")
    page.locator(".skip").focus()
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            """() => {
              const one = document.activeElement;
              if (one === document.body) return ['', ''];
              const shown = one.type === 'radio' ? one.nextSibling : one;
              const { outlineStyle, outlineWidth } = getComputedStyle(shown);
              const name = one.labels?.[0]?.textContent || one.textContent || one.tagName;
              return [name, `${outlineStyle} ${outlineWidth}`];
            }"""
        )
        if not name or name == "Skip to the form":
            break
        seen.append(name)
        assert outline == "solid 3px", name
        if name == "Settings":
            page.keyboard.press("Enter")
    controls = ["Model", "Chat", "Your message", "Settings", "System message", "Temperature"]
    assert seen == [*controls, "Top p", "Most tokens", "Seed", "Stop strings", "Send", "Stop", "New conversation"]
    # another view by arrows, a text, Ctrl+Enter, all without a pointer
    page.get_by_role("radio", name="Chat").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    page.keyboard.type("hello")
    page.keyboard.press("Control+Enter")
    until(lambda: "written" in page.locator(".status").text_content())
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    assert page.locator(".written").text_content()


def test_names_for_screen_readers(page, choose, send):
    client = page.context.new_cdp_session(page)
    roles = set()
    for model, view, fields in VIEWS:
        choose(page, model, view)
        for label, text in fields.items():
            page.get_by_label(label, exact=True).fill(text)
        send(page)
        tree = client.send("Accessibility.getFullAXTree")["nodes"]
        for node in tree:
            role = node.get("role", {}).get("value")
            if role in NAMED_ROLES and not node.get("ignored"):
                assert node["name"]["value"], (model, view, role)
                roles.add(role)
    assert {*NAMED_ROLES} - {"spinbutton"} == roles
    structure = "[document.documentElement.lang, document.title, document.querySelectorAll('h1').length]"
    assert page.evaluate(structure) == ["en", "Try the models", 1]
    assert page.locator("main").count() == page.locator("[role=status][aria-live=polite]").count() == 1


def test_headers_and_files(address, browser):
    for path in ("/", "/page/page.css", "/page/main.js", "/page/icon.svg"):
        answer = httpx.get(address + path)
        policy = answer.headers["Content-Security-Policy"]
        assert answer.status_code == 200 and "default-src 'none'" in policy and "unsafe" not in policy
    assert httpx.get(f"{address}/page/../app.py").status_code == httpx.get(f"{address}/page/app.py").status_code == 404
    page_text = httpx.get(address).text
    assert "http" not in page_text and "style=" not in page_text and "<style" not in page_text
    refused = "() => { try { document.body.innerHTML = '<b>x</b>'; } catch (error) { return error.name; } }"
    # a text that is put in as HTML by mistake is refused
    page = browser.new_page()
    page.goto(address)
    assert page.evaluate(refused) == "TypeError"
    page.close()
