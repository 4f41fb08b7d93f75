"""The page of an inspection in Chromium: what it shows equals the arrays, by pointer and by keys, in a notebook too."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from chromium import CORNER, numbered, open_chromium, wait_until

from zoo.inspect import Inspection
from zoo.inspect.html_page import bundle
from zoo.inspect.packing import packed_weights

# What measures contrast.
CONTRAST = (Path(__file__).parents[1] / "serving" / "page" / "contrast.js").read_text(encoding="utf-8")
TOKENS = ("Ada", " lives", "</script><b>x", "\n", "שלום", "你好", "")
SOURCE = ("who", " are", "<img src=x onerror=alert(1)>", "you", "?")
TINT, ACCENT = np.array([0xE3, 0xED, 0xF8]), np.array([0x0B, 0x57, 0xA4])


def weights(generator, *shape, causal=False, spread=2):
    scores = np.exp(generator.normal(0, spread, shape))
    if causal:
        scores *= np.tri(*shape[-2:])
    return (scores / scores.sum(axis=-1, keepdims=True)).astype("float32")


def seen(token):
    return token.replace(" ", "␣").replace("\n", "⏎") or "∅"


def make_inspection(layers=3, heads=4, tokens=TOKENS, source=SOURCE, seed=0, spread=2):
    generator = np.random.default_rng(seed)
    length, rows = len(tokens), len(tokens)
    shares = np.sort(generator.dirichlet(np.ones(5), (layers + 1, rows)).astype("float32"), axis=-1)[..., ::-1]
    options = {}
    if source:
        options = {
            "cross_attention": weights(generator, layers, heads, length, len(source), spread=spread),
            "source_tokens": source,
            "source_token_ids": np.arange(len(source)),
            "source_attention": weights(generator, layers, heads, len(source), len(source), spread=spread),
            "source_norms": generator.uniform(1, 9, (layers + 1, len(source))),
            "source_gradients": generator.normal(0, 1, (rows, len(source))).astype("float32"),
        }
    return Inspection(
        task="Seq2SeqLM" if source else "CausalLM",
        last_stack="decoder",
        tokens=tokens,
        token_ids=np.arange(length),
        attention=weights(generator, layers, heads, length, length, causal=True, spread=spread),
        norms=generator.uniform(1, 9, (layers + 1, length)),
        rows=tokens,
        places=np.arange(length),
        targets=(*tokens[1:], "end" if source else None),
        target_probabilities=np.where(
            np.arange(rows) == (-1 if source else rows - 1), np.nan, generator.uniform(0, 1, (layers + 1, rows))
        ),
        choices=generator.choice(np.array([*tokens, "x"], object), (layers + 1, rows, 5)),
        choice_probabilities=shares,
        gradient_of=(*tokens[1:], "end"),
        gradients=generator.normal(0, 1, (rows, length)).astype("float32"),
        **options,
    )


@pytest.fixture(scope="module")
def browser():
    with open_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def both():
    return make_inspection()


@pytest.fixture
def open_page(browser, tmp_path):
    """A function that opens the page of an inspection; no error may be said, and nothing loaded, until the end."""
    contexts, problems = [], []

    def open_page(inspection, place="", **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(dialog.message) or dialog.dismiss())
        path = inspection.save_html(tmp_path / "page.html")
        page.on("request", lambda request: request.url.startswith(path.as_uri()) or problems.append(request.url))
        page.goto(path.as_uri() + place)
        page.locator(".result > *").first.wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not problems


def move(page, label, value):
    slider = page.get_by_role("slider", name=label)
    slider.evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", str(value)
    )


def address_of(page):
    # page.url is that of the last event that the driver has seen
    return page.evaluate("location.hash")


def rows_of(page, number=0):
    return [
        row.locator("th, td").all_text_contents() for row in page.locator("table").nth(number).locator("tbody tr").all()
    ]


def cells_of(page):
    height, width, pixels = page.locator(".heat-cells").evaluate(
        "canvas => [canvas.height, canvas.width,"
        " Array.from(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data)]"
    )
    return np.array(pixels).reshape(height, width, 4)[..., :3]


def best_of(row, keys):
    order = np.argsort(-row, kind="stable")[:5]
    names = numbered(map(seen, keys))
    return [(names[place], row[place]) for place in order if row[place] >= 0.0005]


def check_table(page, matrix, queries, keys):
    rows = rows_of(page)
    assert [row[0] for row in rows] == numbered(map(seen, queries))
    for row, own in zip(rows, matrix, strict=True):
        found = re.findall(r"(.+?): (\d\.\d{3})(?:, |$)", row[1])
        expected = best_of(own, keys)
        assert [name for name, _ in found] == [name for name, _ in expected]
        np.testing.assert_allclose([float(share) for _, share in found], [share for _, share in expected], atol=6e-4)


def test_matrix_and_table(open_page, both):
    page = open_page(both, "#view=matrix")
    written = both.targets
    kinds = {
        "attention": (both.attention, TOKENS, TOKENS),
        "cross": (both.cross_attention, written, SOURCE),
        "source": (both.source_attention, SOURCE, SOURCE),
    }
    for kind, (arrays, queries, keys) in kinds.items():
        page.get_by_role("combobox", name="Attention").select_option(kind)
        for layer, head in ((1, 1), (3, 4), (2, 0)):
            move(page, "Layer", layer)
            move(page, "Head", head)
            matrix = arrays[layer - 1].mean(axis=0) if head == 0 else arrays[layer - 1, head - 1]
            expected = TINT + (matrix / matrix.max())[..., None] * (ACCENT - TINT)
            np.testing.assert_allclose(cells_of(page), expected, atol=1.01)
            check_table(page, matrix, queries, keys)
    page.get_by_role("combobox", name="Attention").select_option("alignment")
    move(page, "Layer", 3)
    assert page.get_by_role("slider", name="Head").is_disabled()
    check_table(page, both.alignment, written, SOURCE)
    assert page.locator("caption").text_content() == "Alignment, layer 3, mean over heads"
    # the cell under the pointer
    cells = page.locator(".heat-cells")
    box = cells.bounding_box()
    cells.hover(position={"x": box["width"] * 2.5 / len(SOURCE), "y": box["height"] * 1.5 / len(TOKENS)})
    assert page.locator(".said").text_content() == (
        f"{seen(written[1])} → {seen(SOURCE[2])}: {both.alignment[1, 2]:.3f}"
    )


def test_tables_tell_tokens_apart_that_are_there_several_times(open_page):
    tokens = ("the", " cat", "the", " ", "the", "␣")
    each = make_inspection(tokens=tokens, source=None)
    names = ["the #1", "␣cat", "the #2", "␣ #1", "the #3", "␣ #2"]
    page = open_page(each, "#view=matrix&layer=2&head=1")
    check_table(page, each.attention[1, 0], tokens, tokens)
    box = page.locator(".heat-cells").bounding_box()
    page.locator(".heat-cells").hover(position={"x": box["width"] * 2.5 / 6, "y": box["height"] * 4.5 / 6})
    assert page.locator(".said").text_content() == f"the #3 → the #2: {each.attention[1, 0, 4, 2]:.3f}"
    for view in ("predictions", "layers&reading=choice", "layers&reading=norms-attention", "gradients"):
        page = open_page(each, f"#view={view}")
        assert [row[0] for row in rows_of(page)] == names
    # of decisions on some of the tokens, too
    last = dataclasses.replace(each, rows=tokens[2:], places=np.arange(2, 6), targets=(None,) * 4, gradients=None)
    parts = {name: getattr(each, name)[:, 2:] for name in ("choices", "choice_probabilities", "target_probabilities")}
    page = open_page(dataclasses.replace(last, **parts), "#view=predictions")
    assert [row[0] for row in rows_of(page)] == names[2:]


def test_lines_by_pointer_and_by_keys(open_page, both):
    page = open_page(both, "#view=lines&kind=attention&layer=2&head=3")
    matrix = both.attention[1, 2]
    check_table(page, matrix, TOKENS, TOKENS)
    inked = "canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(part => part)"
    assert page.locator(".lines canvas").evaluate(inked)
    options = page.locator(".from li")
    assert options.all_text_contents() == [seen(token) for token in TOKENS]

    def check_row(number):
        shown = page.locator(".to .weight").all_text_contents()
        np.testing.assert_allclose(np.array(shown, "float"), matrix[number], atol=6e-4)

    assert set(page.locator(".lines .weight").all_text_contents()) == {""}
    options.nth(3).hover()
    check_row(3)
    # a token that is attended to: who attends to it
    page.locator(".to li").nth(2).hover()
    shown = page.locator(".from .weight").all_text_contents()
    np.testing.assert_allclose(np.array(shown, "float"), matrix[:, 2], atol=6e-4)
    assert set(page.locator(".to .weight").all_text_contents()) == {""}
    options.nth(3).click()
    page.get_by_role("heading", level=1).hover()
    check_row(3)
    assert options.nth(3).get_attribute("aria-selected") == "true"
    page.locator(".from").focus()
    page.keyboard.press("ArrowDown")
    check_row(4)
    page.keyboard.press("End")
    check_row(6)
    wait_until(lambda: "token=6" in address_of(page))
    page.keyboard.press("Escape")
    assert set(page.locator(".lines .weight").all_text_contents()) == {""}
    assert page.evaluate("document.activeElement.getAttribute('role')") == "listbox"


def test_lines_of_a_long_text(open_page):
    """A canvas as high as the text would be larger than browsers draw."""
    length = 1500
    tokens = tuple(f"token{number}" for number in range(length))
    # each token attends to the one before it, most of all the last one, which starts a second line
    own = np.eye(length, k=-1, dtype="float32") + np.eye(1, length, dtype="float32") * np.eye(length, 1)
    own[-1] = 0
    own[-1, [0, -1]] = 0.5
    norms = np.ones((2, length))
    page = open_page(Inspection("CausalLM", "decoder", tokens, np.arange(length), norms, own[None, None]))
    ink = """(canvas, [share, down]) => {
      const top = canvas.getBoundingClientRect().top - canvas.parentElement.getBoundingClientRect().top;
      const [x, y] = [Math.round(share * canvas.width), Math.round((down - top) * 2)];
      if (y < 0 || y >= canvas.height) return null;
      const part = new OffscreenCanvas(1, 3).getContext('2d');
      part.drawImage(canvas, -x, 1 - y);
      return part.getImageData(0, 0, 1, 3).data.some(value => value);
    }"""
    scroll = "down => scrollTo(0, scrollY + document.querySelector('.space').getBoundingClientRect().top + down)"
    canvas = page.locator(".lines canvas")
    height = 26

    def is_inked(share, down):
        return canvas.evaluate(ink, [share, down])

    def is_line_seen(number):
        # half way from a token to the one before it, and above that, between two lines
        return is_inked(0.5, number * height), is_inked(0.5, (number - 0.5) * height)

    assert is_line_seen(3) == (True, False) and is_line_seen(1400) == (None, None)
    for number in (1400, 700, 2, 1498):
        page.evaluate(scroll, number * height - 300)
        wait_until(lambda number=number: is_line_seen(number) == (True, False))
    # that of the last token to itself
    assert is_inked(0.5, (length - 0.5) * height)
    # by keys, what is selected is seen, with its lines alone
    page.locator(".from").focus()
    page.keyboard.press("End")
    wait_until(lambda: is_inked(0.5, (length - 0.5) * height) and is_line_seen(1490) == (False, False))
    assert page.locator(".to .weight").last.text_content() == "0.500"
    page.keyboard.press("Home")
    wait_until(lambda: page.evaluate("scrollY") < 1000 and is_inked(0.5, 0.5 * height))


def test_of_many_lines_each_token_has_some(open_page):
    length = 40  # 1,600 lines
    tokens = tuple(f"token{number}" for number in range(length))
    even = np.full((1, 1, length, length), 1 / length)
    even[..., 0, :2] = [0, 2 / length]
    page = open_page(Inspection("MaskedLM", "encoder", tokens, np.arange(length), np.ones((2, length)), even))
    ink = """(canvas, row) => {
      const part = new OffscreenCanvas(1, 20).getContext('2d');
      part.drawImage(canvas, -2, -(2 * 26 * row + 16));
      return part.getImageData(0, 0, 1, 20).data.some(value => value);
    }"""
    canvas = page.locator(".lines canvas")
    assert all(canvas.evaluate(ink, row) for row in range(length))


def test_colors(open_page, both):
    page = open_page(both, "#view=heads&kind=attention&layer=1&head=1", color_scheme="light")
    paper = "getComputedStyle(document.body).backgroundColor"
    matrix = both.attention[0, 0]

    pixels = "canvas => Array.from(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data)"

    def check(is_dark):
        tint, accent = (TINT, ACCENT) if not is_dark else np.array([[0x22, 0x34, 0x4A], [0x8C, 0xC0, 0xFF]])
        assert page.evaluate(paper) == ("rgb(21, 23, 27)" if is_dark else "rgb(251, 250, 248)")
        expected = tint + (matrix / matrix.max())[..., None] * (accent - tint)
        np.testing.assert_allclose(cells_of(page), expected, atol=1.01)
        small = np.array(page.locator(".head canvas").first.evaluate(pixels)).reshape(7, 7, 4)[..., :3]
        np.testing.assert_allclose(small, expected, atol=1.01)

    check(is_dark=False)
    choice = page.get_by_role("combobox", name="Colors")
    choice.select_option("dark")
    check(is_dark=True)
    wait_until(lambda: address_of(page) == "#view=heads&kind=attention&layer=1&head=1&colors=dark")
    page.reload()
    page.locator(".heat-cells").wait_for()
    assert choice.input_value() == "dark"
    check(is_dark=True)
    # the system says otherwise, and the page stays
    page.emulate_media(color_scheme="dark")
    choice.select_option("light")
    check(is_dark=False)
    choice.select_option("auto")
    check(is_dark=True)
    before = page.locator(".heat-cells").evaluate(CORNER)
    page.emulate_media(color_scheme="light")
    wait_until(lambda: page.locator(".heat-cells").evaluate(CORNER) != before)
    check(is_dark=False)
    wait_until(lambda: "colors" not in address_of(page))


def test_legends(open_page, both):
    page = open_page(both)
    legend = page.locator(".legend")
    for view, part in (
        ("Lines", "select it: it is bold and framed"),
        ("All heads", "One small picture for each head"),
        ("Matrix", "Point at a cell"),
        ("Predictions", "A choice in bold is the target"),
        ("Layers", "as if it were the last one. It shows the top choice"),
        ("Gradients", "A double stroke in red"),
    ):
        page.get_by_role("radio", name=view).check()
        assert part in legend.text_content(), view
    page.get_by_role("radio", name="Layers").check()
    page.get_by_role("combobox", name="Show").select_option("norms-source")
    assert legend.text_content().startswith("The Euclidean norm")
    page.get_by_role("radio", name="Matrix").check()
    # a page opens with the attention between the texts
    assert "the step at which the decoder has to write it" in legend.text_content()
    page.get_by_role("combobox", name="Attention").select_option("attention")
    assert "the step at which" not in legend.text_content()
    assert "␣ is a space, ⏎ a line break, ∅ a token without text." in page.locator("main > .hint").first.text_content()


def test_all_heads(open_page, both):
    page = open_page(both, "#view=heads&kind=attention&layer=1&head=1")
    buttons = page.locator(".head")
    assert buttons.count() == 12
    pixels = "canvas => Array.from(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data)"
    for layer, head in ((0, 2), (2, 3)):
        found = np.array(buttons.nth(4 * layer + head).locator("canvas").evaluate(pixels)).reshape(7, 7, 4)[..., :3]
        matrix = both.attention[layer, head]
        np.testing.assert_allclose(found, TINT + (matrix / matrix.max())[..., None] * (ACCENT - TINT), atol=1.01)
    page.get_by_role("button", name="Layer 2, head 3").click()
    check_table(page, both.attention[1, 2], TOKENS, TOKENS)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    check_table(page, both.attention[2, 3], TOKENS, TOKENS)
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Layer 3, head 4"
    assert page.locator("[aria-pressed=true]").get_attribute("aria-label") == "Layer 3, head 4"
    wait_until(lambda: address_of(page) == "#view=heads&kind=attention&layer=3&head=4")


def test_predictions_layers_and_gradients(open_page, both):
    page = open_page(both)
    page.get_by_role("radio", name="Predictions").check()
    for layer in (3, 0, 2):
        move(page, "Read from", layer)
        for number, row in enumerate(rows_of(page)):
            target = both.targets[number]
            share = both.target_probabilities[layer, number]
            expected = zip(both.choices[layer, number], both.choice_probabilities[layer, number], strict=True)
            named = [f"{seen(name)}: {share:.3f}" for name, share in ((target, share), *expected)]
            assert row == [seen(TOKENS[number]), *named]
        hits = both.choices[layer] == np.array(both.targets, object)[:, None]
        assert page.locator("td .hit").count() == hits.sum() > 0
    wait_until(lambda: address_of(page) == "#view=predictions&depth=2")
    page.get_by_role("radio", name="Layers").check()
    assert [row[1:] for row in rows_of(page)] == [
        [seen(both.choices[layer, number, 0]) for layer in range(4)] for number in range(7)
    ]
    page.get_by_role("combobox", name="Show").select_option("target")
    shares = np.array([row[1:] for row in rows_of(page)], "float")
    np.testing.assert_allclose(shares, both.target_probabilities.T, atol=6e-4)
    for name, norms in (("norms-attention", both.norms), ("norms-source", both.source_norms)):
        page.get_by_role("combobox", name="Show").select_option(name)
        np.testing.assert_allclose(np.array([row[1:] for row in rows_of(page)], "float"), norms.T, atol=6e-3)
    page.get_by_role("radio", name="Gradients").check()
    for number in (0, 5):
        move(page, "Prediction", number)
        for place, array in enumerate((both.gradients, both.source_gradients)):
            values = np.array([row[1] for row in rows_of(page, place)], "float")
            np.testing.assert_allclose(values, array[number], rtol=6e-3)
        strokes = page.locator(".strokes").first.locator(".stroke")
        most = max(np.abs(both.gradients[number]).max(), np.abs(both.source_gradients[number]).max())
        drawn = strokes.evaluate_all("all => all.map(one => one.style.getPropertyValue('--share'))")
        np.testing.assert_allclose(np.array(drawn, "float"), np.abs(both.gradients[number]) / most, rtol=1e-4)
        against = strokes.evaluate_all("all => all.map(one => one.classList.contains('against'))")
        assert against == (both.gradients[number] < 0).tolist()


def test_address(open_page, both):
    page = open_page(both, "#view=matrix&kind=cross&layer=2&head=4")
    check_table(page, both.cross_attention[1, 3], both.targets, SOURCE)
    slider = page.get_by_role("slider", name="Layer")
    slider.focus()
    page.keyboard.press("ArrowRight")
    wait_until(lambda: address_of(page) == "#view=matrix&kind=cross&layer=3&head=4")
    assert slider.get_attribute("aria-valuetext") == "3" and page.evaluate("document.activeElement.type") == "range"
    page.reload()
    page.locator("table").wait_for()
    check_table(page, both.cross_attention[2, 3], both.targets, SOURCE)
    page.evaluate("location.hash = 'view=gradients&row=3'")
    wait_until(lambda: page.get_by_role("slider", name="Prediction").is_visible())
    assert page.locator("output").last.text_content().startswith("4: ")
    # what there is not becomes what there is
    page.evaluate("location.hash = 'view=nothing&kind=none&layer=99&head=-5&token=77'")
    wait_until(lambda: page.get_by_role("radio", name="Lines").is_checked())
    check_table(page, both.cross_attention[2].mean(axis=0), both.targets, SOURCE)


def test_texts_stay_texts(open_page, both):
    page = open_page(both)
    for view in ("Lines", "All heads", "Matrix", "Predictions", "Layers", "Gradients"):
        page.get_by_role("radio", name=view).check()
        assert page.locator("b, img, script:not(head *)").count() == 2  # the data and the code
    assert page.title().startswith("Seq2SeqLM: who are <img")


def test_characters_that_are_not_seen(open_page):
    """A mark that turns the direction of text would turn that of its neighbours; a tab is no empty token."""
    tokens = ("a\u202eb", "\t", "\u200f", "می\u200cخواهم", "👩\u200d🔬")
    page = open_page(make_inspection(tokens=tokens, source=None))
    expected = [r"a\u202eb", r"\u0009", r"\u200f", "می\u200cخواهم", "👩\u200d🔬"]
    assert page.locator(".from li").all_text_contents() == expected
    assert [row[0] for row in rows_of(page)] == expected


def test_numbers_that_are_none(open_page, both, recwarn):
    """A model that has diverged: its page says so."""
    broken = {
        name: np.full_like(getattr(both, name), np.nan)
        for name in ("attention", "norms", "target_probabilities", "choice_probabilities", "gradients")
    }
    page = open_page(dataclasses.replace(both, **broken))
    for view in ("Lines", "All heads", "Matrix", "Predictions", "Layers", "Gradients"):
        page.get_by_role("radio", name=view).check()
    page.get_by_role("radio", name="Predictions").check()
    assert all(part.endswith(" NaN") for row in rows_of(page) for part in row[1:])
    assert not recwarn.list


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_names_and_width(open_page, both, scheme):
    page = open_page(both, color_scheme=scheme, viewport={"width": 320, "height": 640})
    client = page.context.new_cdp_session(page)
    named = ("slider", "combobox", "radio", "table", "region", "button", "listbox", "image", "group")
    for view in ("Lines", "All heads", "Matrix", "Predictions", "Layers", "Gradients"):
        page.get_by_role("radio", name=view).check()
        found = page.evaluate(CONTRAST)
        assert found["text"][0] >= 4.5, (view, found)
        # predictions have no fields
        assert view == "Predictions" or found["edge"][0] >= 3, (view, found)
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 320, view
        for node in client.send("Accessibility.getFullAXTree")["nodes"]:
            if node.get("role", {}).get("value") in named and not node.get("ignored"):
                assert node["name"]["value"], (view, node["role"]["value"])
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(251, 250, 248)" if scheme == "light" else "rgb(21, 23, 27)")


def test_large_inspections_are_small(open_page):
    tokens = tuple(f"token{number}" for number in range(128))
    inspection = make_inspection(12, 12, tokens, source=None)
    assert len(inspection.to_html().encode()) < 5_000_000
    page = open_page(inspection, "#view=matrix&layer=1&head=1")
    move(page, "Layer", 5)
    move(page, "Head", 7)
    matrix = inspection.attention[4, 6]
    found = [row[1] for row in rows_of(page)]
    for number in (0, 50, 127):
        share = float(found[number].split(", ")[0].split(" ")[1])
        np.testing.assert_allclose(share, matrix[number].max(), atol=6e-4)


def test_in_a_notebook(browser, both):
    page = browser.new_page()
    try:
        page.set_content(f"<p>before</p>{both._repr_html_()}<p>behind</p>")
        frame = page.frame_locator("iframe")
        frame.get_by_role("radio", name="Predictions").check()
        assert frame.locator("tbody tr").count() == len(TOKENS)
        frame.get_by_role("radio", name="Matrix").check()
        frame.locator(".heat-cells").wait_for()
    finally:
        page.close()


def test_alignment_of_a_recurrent_model(open_page):
    whole = make_inspection()
    aligned = dataclasses.replace(
        whole, attention=None, source_attention=None, cross_attention=whole.cross_attention[:1, :1]
    )
    page = open_page(aligned)
    assert page.get_by_role("combobox", name="Attention").locator("option").all_text_contents() == ["Alignment"]
    for name in ("Layer", "Head"):
        assert page.get_by_role("slider", name=name).is_disabled()
    check_table(page, whole.cross_attention[0, 0], whole.targets, SOURCE)
    page.get_by_role("radio", name="All heads").check()
    assert page.locator(".head").count() == 1


def test_without_attention_and_decisions(open_page):
    whole = make_inspection(source=None)
    bare = Inspection("TextEmbedder", "encoder", whole.tokens, whole.token_ids, whole.norms)
    page = open_page(bare)
    assert page.get_by_role("radio").count() == 1
    np.testing.assert_allclose(np.array([row[1:] for row in rows_of(page)], "float"), whole.norms.T, atol=6e-3)


def test_weights_in_few_bits():
    import base64
    import zlib

    def read(text, kind):
        return np.frombuffer(zlib.decompress(base64.b64decode(text)), kind)

    generator = np.random.default_rng(0)
    signed = generator.normal(0, 1, (1, 1, 3, 5)).astype("float32")
    cases = [(weights(generator, 2, 3, 8, 8), "uint16", 65535), (signed, "int16", 32767)]
    sharp, even = weights(generator, 6, 12, 96, 96), np.full((6, 12, 96, 96), 1 / 96, "float32")
    even *= generator.uniform(0.9, 1.1, even.shape).astype("float32")
    cases += [(sharp, "uint8", 255), (even, "uint8", 255)]
    for array, kind, most in cases:
        packed = packed_weights(array)
        assert (packed["type"], packed["most"], packed["shape"]) == (kind, most, list(array.shape))
        largest = read(packed["largest"], "<f4").reshape(array.shape[:-1])
        count = np.full(largest.shape, most)
        if kind == "uint8":
            count = np.maximum(31, np.ceil(255 * largest.astype("float64")))
        found = read(packed["data"], np.dtype(kind)).reshape(array.shape) * (largest / count)[..., None]
        bound = np.abs(array).max(axis=-1, keepdims=True) / count[..., None] / 2
        assert (np.abs(found - array) <= bound * 1.01 + 1e-7).all()
        if kind == "uint8":
            assert np.abs(found - array).max() <= 1.01 / 510
    # a NaN in one row leaves the signs of the others
    signed[0, 0, 0, 0] = np.nan
    assert packed_weights(signed)["type"] == "int16"


@pytest.mark.parametrize("spread", [0.3, 2])
def test_large_inspections_of_two_stacks_are_small(open_page, spread):
    """Also those of a model that has learned nothing, whose weights are all about the same."""
    tokens, source = (tuple(f"{kind}{number}" for number in range(128)) for kind in ("token", "source"))
    inspection = make_inspection(12, 12, tokens, source, spread=spread)
    assert len(inspection.to_html().encode()) < 5_000_000
    page = open_page(inspection, "#view=matrix&kind=cross&layer=9&head=5")
    matrix = inspection.cross_attention[8, 4]
    for number in (0, 64, 127):
        named = re.findall(r"source(\d+): (\d\.\d{3})", rows_of(page)[number][1])
        for key, share in named:
            assert abs(matrix[number, int(key)] - float(share)) < 1 / 510 + 6e-4
        assert abs(float(named[0][1]) - matrix[number].max()) < 6e-4
    expected = TINT + (matrix / matrix.max())[..., None] * (ACCENT - TINT)
    np.testing.assert_allclose(cells_of(page), expected, atol=np.abs(ACCENT - TINT).max() / 62 + 1)


@pytest.mark.parametrize("tokens", [("two", "six", "."), ("two", " six", " .", "\n")], ids=["words", "with_spaces"])
def test_the_title_names_the_text(tokens):
    assert "<title>CausalLM: two six .</title>" in make_inspection(tokens=tokens, source=()).to_html()


def test_modules_are_put_in_order():
    code = bundle("main.js")
    assert "import " not in re.sub(r"//.*", "", code) and "export " not in code
    assert code.index("function make(") < code.index("function heatMap(") < code.index("function start(")
    names = re.findall(r"^(?:async )?(?:function|const|let) (\w+)", code, re.MULTILINE)
    assert len(names) == len(set(names))


# Where parts of a page stand: the left edge of each text in an element, in the order of the text.
EDGES = """element => {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT), edges = [];
  while (walker.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    edges.push(range.getBoundingClientRect().left);
  }
  return edges;
}"""


def test_texts_from_right_to_left(open_page):
    """Names read from right to left, and each stays beside its own number."""
    arabic = ("ذهب", " الولد", " إلى", " المدرسة", "!")
    page = open_page(make_inspection(tokens=arabic, source=None), "#view=matrix")
    row = page.locator("tbody tr").nth(3)
    assert row.locator("th").evaluate("cell => getComputedStyle(cell).direction") == "rtl"
    edges = row.locator("td").evaluate(EDGES)
    assert len(edges) >= 4 and edges == sorted(edges)
    page.get_by_role("radio", name="Gradients").check()
    strokes = [part.bounding_box()["x"] for part in page.locator(".stroke").all()]
    assert len(strokes) == 5 and strokes == sorted(strokes, reverse=True)
