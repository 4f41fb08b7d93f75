"""Labels, marks, numbers and attention on the page: those of the server, and texts as texts."""

import numpy as np
import pytest
from chromium import CORNER, numbered, wait_until

httpx = pytest.importorskip("httpx", reason="the extra test is not installed")
pytestmark = pytest.mark.browser

TEXTS = [
    "Ada Lovelace lives in London",
    "<script>alert(1)</script> & <img src=x onerror=alert(1)> who?",
    "wörld 你好 👩‍🚀 Ada e\u0301 in London",
    "שלום Ada Lovelace and שלום\nsecond line, London",
]


def asked(address, model, body):
    answer = httpx.post(f"{address}/v1/models/{model}:predict", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def rows_of(page, caption):
    table = page.get_by_role("table", name=caption)
    return [row.locator("th, td").all_text_contents() for row in table.locator("tbody tr").all()]


def cells_of(page):
    """The colors of the cells of the heat map, `(rows, columns, 3)`."""
    height, width, pixels = page.locator(".heat-cells").evaluate(
        "canvas => [canvas.height, canvas.width,"
        " Array.from(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data)]"
    )
    return np.array(pixels).reshape(height, width, 4)[..., :3]


def marks_of(page):
    marks = page.locator(".marked mark")
    parts = marks.locator(".part").all_text_contents()
    return list(zip(parts, marks.locator(".label").all_text_contents(), strict=True))


def unmarked(page):
    """The text under the marks, without the names of the marks."""
    return page.locator(".marked").evaluate(
        "text => { const copy = text.cloneNode(true); copy.querySelectorAll('.label').forEach(each => each.remove());"
        " return copy.textContent; }"
    )


def test_labels_with_bars(page, address, choose, send):
    choose(page, "labels")
    page.get_by_label("Text", exact=True).fill("who are you")
    said = send(page)
    answer = asked(address, "labels", {"instances": ["who are you"]})["predictions"][0]
    pairs = zip(["bad", "<b>good</b>", "mäßig"], answer["probabilities"], strict=True)
    expected = sorted(pairs, key=lambda pair: -pair[1])
    rows = rows_of(page, "Labels")
    assert [row[0] for row in rows] == [label for label, _ in expected] and expected[0][0] == answer["label"]
    assert [row[1] for row in rows] == [f"{share:.3f}" for _, share in expected]
    assert [row[3] for row in rows] == ["✓ yes", "no", "no"] and answer["label"] in said
    shares = page.locator(".bar").evaluate_all(
        "bars => bars.map(bar => bar.firstChild.getBoundingClientRect().width / bar.getBoundingClientRect().width)"
    )
    np.testing.assert_allclose(shares, [share for _, share in expected], atol=0.02)


@pytest.mark.parametrize("text", TEXTS)
def test_entities_are_marked(page, address, choose, send, text):
    choose(page, "names", "Entities")
    scripts = page.locator("script").count()
    page.get_by_label("Text", exact=True).fill(text)
    said = send(page)
    found = asked(address, "names", {"signature_name": "entities", "inputs": [text]})["outputs"]
    places = zip(*(found[name][0] for name in ("starts", "ends", "labels")), strict=True)
    expected = [(text.encode()[start:end].decode(), label) for start, end, label in places if end > start]
    assert marks_of(page) == expected and unmarked(page) == text
    assert said == (f"{len(expected)} marked." if expected else "Nothing is marked.")
    assert page.locator("script").count() == scripts and page.locator("main img").count() == 0


def test_words_are_marked(page, address, choose, send):
    choose(page, "names", "Words")
    marked = 0
    for text in TEXTS:
        page.get_by_label("Text", exact=True).fill(text)
        send(page)
        found = asked(address, "names", {"inputs": [text]})["outputs"]
        words = [(word, tag) for word, tag in zip(found["words"][0], found["tags"][0], strict=True) if word]
        assert marks_of(page) == [pair for pair in words if pair[1] != "O"] and unmarked(page) == text
        assert [tuple(row[:2]) for row in rows_of(page, "What was found")] == words
        marked += len(marks_of(page))
    assert marked
    # text from right to left stands on the right
    assert page.locator(".marked").evaluate("text => getComputedStyle(text).direction") == "rtl"


def test_answers_are_marked(page, address, choose, send):
    choose(page, "answers", "Answer")
    for question, context in (("who?", TEXTS[2]), ("where?", TEXTS[3])):
        page.get_by_label("Question").fill(question)
        page.get_by_label("Text with the answer").fill(context)
        send(page)
        body = {"inputs": {"questions": [question], "contexts": [context]}}
        found = {name: value[0] for name, value in asked(address, "answers", body)["outputs"].items()}
        part = context.encode()[found["starts"] : found["ends"]].decode()
        assert marks_of(page) == ([(part, "answer")] if part else []) and unmarked(page) == context
        assert f"{found['no_answer']:.3f}" == rows_of(page, "Answer")[-1][1]


def test_search(page, address, choose, send):
    choose(page, "vectors", "Search")
    texts = ["Ada lives", "who are you", "<b>London</b>"]
    page.get_by_label("Search for").fill("who is Ada?")
    page.get_by_label("Texts").fill("\n".join(texts))
    said = send(page)
    body = {"model": "vectors", "query": "who is Ada?", "documents": texts}
    ranked = httpx.post(f"{address}/v1/rerank", json=body, timeout=60).json()["results"]
    expected = [[texts[each["index"]], f"{each['relevance_score']:.3f}"] for each in ranked]
    assert [row[:2] for row in rows_of(page, "Found")] == expected and expected[0][0] in said


def test_similarities(page, address, choose, send):
    choose(page, "vectors", "Compare")
    texts = ["Ada lives", "who are you", "<b>London</b>"]
    page.get_by_label("Texts").fill("\n".join(texts))
    for prompt, endpoint in (("the default one", "serving_default"), ("query", "serve_query")):
        page.get_by_label("Prompt before each text").select_option(label=prompt)
        send(page)
        vectors = np.array(asked(address, "vectors", {"signature_name": endpoint, "inputs": texts})["outputs"])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        rows = rows_of(page, "Cosine similarities")
        assert [row[0] for row in rows] == [f"{index + 1}. {text}" for index, text in enumerate(texts)]
        np.testing.assert_allclose(np.array([row[1:] for row in rows], "float"), vectors @ vectors.T, atol=6e-4)


def test_masks(page, address, choose, send):
    choose(page, "masks")
    page.get_by_label("Text", exact=True).fill("Ada <mask> in <mask>")
    send(page)
    found = asked(address, "masks", {"inputs": ["Ada <mask> in <mask>"]})["outputs"]
    for mask in range(2):
        pairs = [row[:2] for row in rows_of(page, f"Mask {mask + 1}")]
        shares = [f"{share:.3f}" for share in found["probabilities"][0][mask]]
        assert pairs == [list(pair) for pair in zip(found["tokens"][0][mask], shares, strict=True)]


def test_attention(page, address, choose, send):
    choose(page, "names", "Attention")
    page.get_by_label("Text", exact=True).fill("Ada lives")
    assert send(page) == "Weights of 2 layers, the mean over heads."
    found = asked(address, "names", {"signature_name": "attention", "inputs": ["Ada lives"]})["outputs"]
    count = found["lengths"][0]
    for layer in (2, 1):
        page.get_by_label("Layer", exact=True).select_option(str(layer))
        weights = np.array(found["attention"])[0, layer - 1, :count, :count]
        # from the tint to the accent of the page
        low, high = np.array([[0xE3, 0xED, 0xF8], [0x0B, 0x57, 0xA4]])
        expected = low + (weights / weights.max())[..., None] * (high - low)
        np.testing.assert_allclose(cells_of(page), expected, atol=1)
        rows = rows_of(page, f"Tokens to tokens, layer {layer}")
        tokens = numbered(found["tokens"][0][:count])
        assert [row[0] for row in rows] == tokens
        best = [f"{tokens[row.argmax()]}: {row.max():.3f}" for row in weights]
        assert [row[1].split(", ")[0] for row in rows] == best
    # the picture follows the system
    before = page.locator(".heat-cells").evaluate(CORNER)
    page.emulate_media(color_scheme="dark")
    wait_until(lambda: page.locator(".heat-cells").evaluate(CORNER) != before)
    low, high = np.array([[0x22, 0x34, 0x4A], [0x8C, 0xC0, 0xFF]])
    np.testing.assert_allclose(cells_of(page), low + (weights / weights.max())[..., None] * (high - low), atol=1)
    page.emulate_media(color_scheme="light")
    page.get_by_label("Text", exact=True).fill("Ada lives " * 60)
    send(page)
    assert "has more tokens" in page.locator(".view [role=alert]").text_content()


def test_attention_of_two_stacks(page, address, choose, send):
    choose(page, "translations", "Attention")
    page.get_by_label("Source", exact=True).fill("Ada lives")
    send(page)
    kinds = page.get_by_label("From and to").locator("option").all_text_contents()
    assert kinds == ["Written tokens to source", "Source to source", "Written tokens to those before"]
    text = asked(address, "translations", {"instances": ["Ada lives"]})["predictions"][0]
    body = {"signature_name": "attention", "inputs": {"sources": ["Ada lives"], "targets": [text]}}
    found = asked(address, "translations", body)["outputs"]
    rows, columns = found["written_lengths"][0], found["source_lengths"][0]
    assert cells_of(page).shape == (rows, columns, 3)
    page.get_by_label("From and to").select_option("decoder")
    assert cells_of(page).shape == (rows, rows, 3)
