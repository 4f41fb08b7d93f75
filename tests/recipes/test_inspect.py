"""The recipe `inspect`, the page that runs leave, and the report of a run."""

import html
import re
import shlex

import pytest

pytest.importorskip("tensorflow_text")

from chromium import open_chromium  # noqa: E402

import zoo  # noqa: E402
from recipes import generate, inspect, plan, translate  # noqa: E402
from recipes.common.config import parse  # noqa: E402
from recipes.common.errors import ConfigError, DataError  # noqa: E402
from recipes.common.report import (  # noqa: E402
    metric_series,
    write_inspection,  # noqa: E402
    write_report,
)
from recipes.common.run_folder import RunFolder  # noqa: E402


def run(*words):
    return inspect.main(parse(inspect.InspectConfig, list(words)))


@pytest.fixture(scope="module")
def saved(tiny_llama, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    tiny_llama.save_to_preset(folder)
    return str(folder)


def test_a_page_of_a_saved_model(saved, trained, tmp_path, capsys):
    page = run(saved, "--text", "alpha beta", "--output", str(tmp_path / "page.html"))
    assert page == tmp_path / "page.html" and "alpha" in page.read_text()
    assert "<Inspection of a CausalLM: 3 tokens" in capsys.readouterr().out
    trained.save_to_preset(tmp_path / "copies")
    options = ("--gradients", "false", "--output", str(tmp_path / "copy.html"))
    run(str(tmp_path / "copies"), "--text", "alpha beta", "--target", "beta", *options)
    assert '"task":"Seq2SeqLM"' in (tmp_path / "copy.html").read_text()
    with pytest.raises(ConfigError, match="one source for a Seq2SeqLM, got 2 texts; target takes the target text"):
        run(str(tmp_path / "copies"), "--text", "alpha beta", "beta", *options)


def test_mistakes(saved, tmp_path):
    for words, error in (
        ((), "text must hold one text, or two"),
        (("--text", "a", "b", "c"), "text must hold one text, or two for a task of pairs, got 3"),
        (("--text", "alpha", "--target", "beta"), "text: target must be None for a CausalLM"),
        (("--text", "alpha", "--chat", "true"), "text: .*chat format"),
        (("--text", "alpha " * 99), "text: text must have at most 32 tokens"),
    ):
        with pytest.raises(ConfigError, match=error):
            run(saved, *words)
    with pytest.raises(DataError, match="no saved model"):
        run(str(tmp_path), "--text", "alpha")


def test_output_is_checked_before_the_model_is_loaded(tmp_path):
    (tmp_path / "a.txt").touch()
    (tmp_path / "b.html").mkdir()
    for output, error in (
        ("page.htlm", "output must end with .html, got '.*page.htlm'"),
        ("b.html", "output must be a file, got '.*b.html', which is a folder"),
        ("a.txt/page.html", "output must be in a folder that can be written to, got '.*': .*a.txt is not a folder"),
        (f"{'long' * 99}.html", "output must end with a name of at most .* bytes"),
    ):
        with pytest.raises(ConfigError, match=error):
            run("no/model", "--text", "alpha", "--output", str(tmp_path / output))
    assert not (tmp_path / "page.htlm").exists()
    with pytest.raises(DataError, match="no such directory or file"):
        run("no/model", "--text", "alpha", "--output", str(tmp_path / "new" / "page.html"))
    words = ["no/model", "--texts", "alpha", "--output", str(tmp_path)]
    with pytest.raises(ConfigError, match="output must be a file"):
        generate.main(parse(generate.GenerateConfig, words))
    with pytest.raises(ConfigError, match="output must be a file"):
        plan.main(parse(plan.PlanConfig, ["--preset", "no_preset", "--output", str(tmp_path)]))


@pytest.fixture
def folder(tmp_path):
    with RunFolder(tmp_path / "run", translate.TranslateConfig(run_folder=str(tmp_path / "run"))) as run:
        yield run


def test_a_run_has_the_page_of_the_first_example_that_fits(tiny_llama, folder, capsys):
    write_inspection(folder, tiny_llama, ["alpha " * 99])
    assert not (folder.path / "inspect.html").exists()
    assert "inspect.html is left out: no example has at most 128 tokens" in capsys.readouterr().out
    write_inspection(folder, tiny_llama, ["alpha " * 99, "beta iota"])
    assert "iota" in (folder.path / "inspect.html").read_text()


@pytest.mark.parametrize("fault", ["inspect_task", "no example"])
def test_a_page_that_cannot_be_written_costs_no_run(tiny_llama, folder, fault, monkeypatch, capsys):
    def fail(*args, **options):
        raise MemoryError("no room\nfor gradients")

    folder.write_text("model_card.md", "# A card\n")
    folder.write_text("inspect.html", "of the run before\n")
    if fault == "inspect_task":
        monkeypatch.setattr(zoo.inspect, "inspect_task", fail)
    examples = ["alpha"] if fault == "inspect_task" else []
    folder.final_steps.attempt("inspect.html", write_inspection, folder, tiny_llama, examples)
    said = capsys.readouterr().err
    assert said == ("warning: inspect.html failed: MemoryError: no room for gradients\n" if examples else "")
    # no page of an earlier run passes for one of this
    assert not (folder.path / "inspect.html").exists()
    assert "inspect.html" not in write_report(folder, "translate", tiny_llama, []).read_text()


def test_report(tiny_llama, folder):
    lines = ["epoch,loss,nll,tokens,val_nll,val_only", "0,3.5,3.0,9,2.5,1", "1,2.5,2.0,9,1.5,", "2,nan,1.0,9,0.5,3"]
    (folder.path / "metrics.csv").write_text("\n".join(lines) + "\n")
    assert metric_series(folder.path)["loss"] == [(1, 3.5), (2, 2.5)]
    for epoch in (1, 2, 10):
        folder.write_text(f"samples/epoch-{epoch:04d}.txt", f"sample of {epoch} <b>\n")
    rows = "".join(f"line {number}\t<i>\n" for number in range(99))
    folder.write_text("samples/test.tsv", f"source\toutput\n{rows}")
    folder.write_text("model_card.md", "# A card <script>alert(1)</script>\n")
    zoo.inspect.plot_curves({"a": ([1, 2], [3, 4])}, folder.plots / "loss.png", x_label="x", y_label="y", title="t")
    path = write_report(folder, "translate", tiny_llama, [("BLEU", 31.5), ("<i>", "a|b")])
    text = path.read_text()
    assert "sample of 10 &lt;b&gt;" in text and "sample of 2" not in text
    assert '<th scope="col">source</th><th scope="col">output</th>' in text
    assert text.count("line 39</td>") == text.count('<td dir="auto">line 39') == 1 and "line 40" not in text
    assert "99 rows, of which the first 40 are shown" in text
    assert text.count("<svg") == 3 and text.count("<polyline") == 4  # loss, nll with its validation, val_only
    assert 'aria-label="nll: training 3 to 1, validation 2.5 to 0.5"' in text
    loaded = text.split("<h2>Settings")[0].replace("http-equiv", "").replace("http://127.0.0.1:8501", "")
    assert "http" not in loaded and "loss.png" not in text and "<img" not in text  # the curves are drawn once


def test_a_report_says_what_is_asked_first(tiny_llama, folder):
    rows = "good one\tgut eins\tgut eins\nbad <one>\txyz\tganz anders\nhalf\tganz andere\tganz anders\n"
    folder.write_text("samples/test.tsv", f"source\toutput\treference\n{rows}")
    folder.write_text("plots/confusion.png", "a picture")
    folder.write_text("metrics.csv", "epoch,loss\n0,3.5\n1,2.5\n")
    text = write_report(folder, "translate", tiny_llama, [("BLEU", 31.5)]).read_text()
    headings = re.findall(r"<h2>([^<]*)</h2>", text)
    assert headings == ["Scores", "Pictures", "Errors", "Use", "Curves", "Settings"]
    # the outputs least like the right texts come first, and are shown once
    assert text.index("bad &lt;one&gt;") < text.index(">half<") < text.index(">good one<")
    assert '<td dir="auto">100.0</td><td dir="auto">good one</td>' in text and text.count(">half<") == 1
    for command in ("serve RUN", 'generate RUN --texts "..."', "evaluate RUN --data.test FILE"):
        line = html.escape(f"python -m recipes.{command}".replace("RUN", shlex.quote(str(folder.path))))
        assert f"<pre>{line}</pre>" in text
    assert "python -m recipes.translate --model.start_from" in text
    # both are empty, as they should be
    folder.write_text("samples/test.tsv", f"source\toutput\treference\nnothing\t\t\n{rows}")
    text = write_report(folder, "translate", tiny_llama, []).read_text()
    assert text.index("bad &lt;one&gt;") < text.index(">nothing<")
    folder.write_text("errors.tsv", "confidence\ttext\n0.9\tsure\n0.5\tless\n")
    text = write_report(folder, "classify", tiny_llama, []).read_text()
    assert text.index(">sure<") < text.index(">less<") and "bad &lt;one&gt;" not in text
    folder.write_text("errors.tsv", "confidence\ttext\n")
    assert "There is no wrong prediction." in write_report(folder, "classify", tiny_llama, []).read_text()


def test_commands_for_tasks_of_pairs(tiny_llama, folder, monkeypatch):
    monkeypatch.setattr(tiny_llama.preprocessor, "text_names", ("premises", "hypotheses"), raising=False)
    text = html.unescape(write_report(folder, "classify", tiny_llama, []).read_text())
    assert f'recipes.inspect {shlex.quote(str(folder.path))} --text "..." "..."' in text
    assert "recipes.generate" not in text


CARD = """---
library_name: keras
---

# A card <script>alert(1)</script>

## Results

| measure | value |
| --- | --- |
| BLEU | 31.5\\|&lt;i> **bold** ![x](plots/x.png) [y](javascript:alert(2)) |

## Configuration

```yaml
run_folder: here
```

## Architecture

```json
{"kind": "<b>"}
```

## Pictures

![loss](plots/loss.png)
"""


def test_report_in_a_browser(tiny_llama, folder):
    folder.write_text("model_card.md", CARD)
    (folder.path / "metrics.csv").write_text("epoch,loss\n0,3.5\n1,2.5\n")
    folder.write_text("samples/test.tsv", "a\tb\nhere\tשלום, world!\n")
    folder.write_text("samples/epoch-0001.txt", "here\n  -> ذهب الولد (2024).\n")
    zoo.inspect.plot_curves({"a": ([1, 2], [3, 4])}, folder.plots / "widths.png", x_label="x", y_label="y", title="t")
    write_inspection(folder, tiny_llama, ["alpha"])
    path = write_report(folder, "translate", tiny_llama, [("BLEU", 31.5)])
    with open_chromium() as browser:
        page, problems = browser.new_page(), []
        page.on("console", lambda said: problems.append(said.text))
        page.on("request", lambda request: request.url.startswith(("file:", "data:")) or problems.append(request.url))
        page.goto(path.as_uri())
        titles = ["Scores", "Pictures", "Use", "Curves", "Samples", "Settings", "Model card"]
        assert page.locator("h2").all_text_contents() == titles
        assert page.locator("tbody tr").first.locator("th, td").all_text_contents() == ["BLEU", "31.5"]
        assert page.locator("img").evaluate("image => image.naturalWidth") > 100
        # texts have their own direction
        direction = "part => getComputedStyle(part).direction"
        samples = [page.locator("tr", has_text="here").locator("td"), page.locator("pre > div")]
        assert [[part.evaluate(direction) for part in parts.all()] for parts in samples] == [["ltr", "rtl"]] * 2
        # what is long is folded, and shown once
        settings, card = (
            page.locator("details").filter(has=page.get_by_role("heading", name=name)) for name in titles[5:]
        )
        for part in (settings, card):
            assert not part.locator("pre").first.is_visible()
            part.locator("summary").click()
            assert part.locator("pre").first.is_visible()
        assert settings.locator("pre").text_content() == folder.config_yaml.read_text()
        assert page.locator("body").text_content().count("run_folder:") == 1
        # the card is rendered, and nothing in it is HTML
        assert card.locator("h3, h4").all_text_contents() == [
            "A card <script>alert(1)</script>",
            "Results",
            "Architecture",
        ]
        value = card.locator("tbody td").last
        assert value.text_content() == "31.5|<i> bold !x [y](javascript:alert(2))"
        assert value.locator("strong").text_content() == "bold"
        assert card.locator("pre").text_content() == '{"kind": "<b>"}\n'
        assert card.locator("script, i, b, img").count() == 0 and "library_name" not in card.text_content()
        page.get_by_role("link", name="What the model does").click()
        page.get_by_role("radio", name="Predictions").wait_for()
        assert not problems
