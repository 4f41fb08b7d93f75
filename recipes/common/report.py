"""Pages of a run: its report (how good, where wrong, how to use it, how it was made), and what it does with a text."""

from __future__ import annotations

import base64
import html
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import huggingface_hub
import sacrebleu

import zoo
from recipes.common.evaluation.error_lists import ERRORS_FILE
from recipes.common.run_folder import RunFolder, read_metrics, validation_unit

REPORT = "report.html"
PAGE = "inspect.html"
# Longer examples make pages that are large, and gradients that take minutes.
_MOST_TOKENS, _MOST_WITH_GRADIENTS = 128, 32
# of a chart; numbers stand left of it
_WIDTH, _HEIGHT, _EDGE, _LEFT = 420, 200, 24, 72
_MOST_SAMPLES, _MOST_ERRORS = 40, 15
# metrics that are no measure of the training
_NO_CURVES = ("tokens", "val_tokens")
# pictures of what is drawn as a chart
_CURVES = "loss.png"
# sections of the model card that the report has itself
_OWN_SECTIONS = ("Configuration", "Pictures")
# outputs of the test data beside what is right
_OUTPUTS = "test.tsv"
_REFERENCES = {"output", "reference"}
_ADDRESS = "http://127.0.0.1:8501"
_STYLE = """
header, main { max-inline-size: 72rem; }
h2 { margin: 0 0 0.75rem; font-size: 1.25rem; }
summary { cursor: pointer; }
summary h2 { display: inline; }
details[open] summary { margin-block-end: 0.75rem; }
a { color: var(--accent); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1rem; }
figure { margin: 0; min-inline-size: 0; }
.pictures { display: grid; gap: 1rem; justify-items: start; }
dl { margin: 0; display: grid; gap: 0.5rem; }
dd { margin: 0.25rem 0 0; }
figcaption { font-weight: 600; }
svg, img { display: block; inline-size: 100%; block-size: auto; }
img { background: #ffffff; inline-size: auto; max-inline-size: 100%; }
svg text { fill: var(--faint); font-size: 12px; }
.axis { fill: none; stroke: var(--edge); }
.curve { fill: none; stroke: var(--accent); stroke-width: 2; }
.validation { stroke: var(--problem); stroke-dasharray: 6 4; }
.scroll th { overflow-wrap: normal; }
.scroll td { overflow-wrap: anywhere; min-inline-size: 6rem; }
.model-card :is(p, li, td) { unicode-bidi: plaintext; text-align: start; }
pre { overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; font-size: 0.875rem; }
.model-card { overflow-wrap: anywhere; }
.model-card pre, .model-card table { margin-block-end: 0.75rem; }
"""


def write_report(run: RunFolder, recipe: str, task: zoo.Task, scores: Sequence[tuple[str, Any]]) -> Path:
    """Writes `report.html`, which needs no other file and no network.

    Args:
        run: The run folder, with all that the report shows.
        recipe: Name of the recipe.
        task: The trained task.
        scores: Names and values.

    Returns:
        The path.
    """
    title = f"{type(task).__name__} trained with recipes.{recipe}"
    # what a reader asks first comes first: how good, where wrong, how to use it, how it came about
    sections = {
        "Scores": _table(scores),
        "Pictures": _pictures(run.plots),
        "Errors": _errors(run.path),
        "Use": _use(run, recipe, task),
        "Curves": _curves(run.path, validation_unit(run.config.training)),
        "Samples": _samples(run.path / "samples"),
    }
    # long, and read when there is a question
    folded = {"Settings": f"<pre>{html.escape(run.config_yaml.read_text(encoding='utf-8'))}</pre>"}
    card = run.path / "model_card.md"
    if card.exists():
        folded["Model card"] = _model_card(card.read_text(encoding="utf-8"))
    cards = [
        *(f'<section class="card"><h2>{name}</h2>\n{body}</section>' for name, body in sections.items() if body),
        *(
            f'<details class="card"><summary><h2>{name}</h2></summary>\n{body}</details>'
            for name, body in folded.items()
        ),
    ]
    body = f"<header><h1>{html.escape(title)}</h1></header>\n<main>\n" + "\n".join(cards) + "\n</main>"
    style = zoo.inspect.html_page.read_part("look.css") + _STYLE
    return run.write_text(REPORT, zoo.inspect.html_page.self_contained(title, body, style=style))


def _table(rows: Sequence[tuple[str, Any]]) -> str:
    lines = (
        f'<tr><th scope="row" dir="auto">{html.escape(name)}</th><td dir="auto">{html.escape(str(value))}</td></tr>'
        for name, value in rows
    )
    return (
        '<div class="scroll" role="region" aria-label="Scores" tabindex="0"><table><thead><tr><th scope="col">measure'
        f'</th><th scope="col">value</th></tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
    )


def metric_series(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Returns the metrics of a run by name: (validation from 1, value), those that are numbers.

    Args:
        folder: Its folder.
    """
    series: dict[str, list[tuple[float, float]]] = {}
    for number, row in enumerate(read_metrics(folder), 1):
        for name, text in row.items():
            value = _number(text)
            if name not in (None, "epoch") and value is not None:
                series.setdefault(name, []).append((number, value))
    return series


def _number(text: Any) -> float | None:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def _curves(folder: Path, unit: str) -> str:
    """A chart for each metric, with its validation in the same one."""
    series = metric_series(folder)
    charts = []
    for name in series:
        if name in _NO_CURVES or name.startswith("val_") and name.removeprefix("val_") in series:
            continue
        drawn = {"training": series[name]} if not name.startswith("val_") else {"validation": series[name]}
        if f"val_{name}" in series:
            drawn["validation"] = series[f"val_{name}"]
        charts.append(_chart(name, drawn, unit))
    return f'<div class="charts">{"".join(charts)}</div>' if charts else ""


def _chart(name: str, series: Mapping[str, Sequence[tuple[float, float]]], unit: str) -> str:
    points = [point for values in series.values() for point in values]
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)

    def place(x: float, y: float) -> str:
        across = _LEFT + (x - first) / (last - first or 1) * (_WIDTH - _LEFT - _EDGE)
        down = _HEIGHT - _EDGE - (y - low) / (high - low or 1) * (_HEIGHT - 2 * _EDGE)
        return f"{across:.1f},{down:.1f}"

    lines, said = [], []
    for kind, values in series.items():
        # a line of one point would not be seen
        places = [place(*point) for point in (values if len(values) > 1 else values * 2)]
        lines.append(f'<polyline class="curve {kind}" stroke-linecap="round" points="{" ".join(places)}"/>')
        said.append(f"{kind} {_shown(values[0][1])} to {_shown(values[-1][1])}")
    label = html.escape(f"{name}: {', '.join(said)}")
    axis = f"M{_LEFT},{_EDGE} V{_HEIGHT - _EDGE} H{_WIDTH - _EDGE}"
    return (
        f'<figure><figcaption>{html.escape(name)}</figcaption><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{label}"><path class="axis" d="{axis}"/>{"".join(lines)}'
        f'<text x="{_LEFT - 6}" y="{_EDGE + 4}" text-anchor="end">{_shown(high)}</text>'
        f'<text x="{_LEFT - 6}" y="{_HEIGHT - _EDGE + 4}" text-anchor="end">{_shown(low)}</text>'
        f'<text x="{_WIDTH - _EDGE}" y="{_HEIGHT - 6}" text-anchor="end">{unit} {last:.0f}</text></svg>'
        f'<p class="hint">{html.escape("; ".join(said)).replace("validation", "validation (dashed)")}</p></figure>'
    )


def _shown(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 10_000 else f"{number:.4g}"


def _pictures(folder: Path) -> str:
    figures = []
    for path in sorted(folder.glob("*.png")):
        if path.name == _CURVES:
            continue
        data = base64.b64encode(path.read_bytes()).decode("ascii")
        name = html.escape(path.stem.replace("_", " "))
        figures.append(
            f'<figure><figcaption>{name}</figcaption><img alt="{name}" src="data:image/png;base64,{data}"></figure>'
        )
    return f'<div class="pictures">{"".join(figures)}</div>' if figures else ""


def _errors(folder: Path) -> str:
    """The wrong predictions with their texts, the surest first; or the outputs least like the right texts."""
    path = folder / ERRORS_FILE
    if path.is_file():
        names, *rows = _read_rows(path)
        return _first_rows(ERRORS_FILE, names, rows, _MOST_ERRORS) if rows else "<p>There is no wrong prediction.</p>"
    path = folder / "samples" / _OUTPUTS
    if not path.is_file():
        return ""
    names, *rows = _read_rows(path)
    if not _REFERENCES <= set(names):
        return ""
    output, reference = names.index("output"), names.index("reference")
    measure = sacrebleu.CHRF()

    def score(row: Sequence[str]) -> float:
        # of two empty texts chrF is 0
        same = row[output] == row[reference]
        return 100.0 if same else measure.sentence_score(row[output], [row[reference]]).score

    scored = [(score(row), row) for row in rows]
    scored.sort(key=lambda pair: pair[0])
    return _first_rows(_OUTPUTS, ["chrF", *names], [[f"{score:.1f}", *row] for score, row in scored], _MOST_ERRORS)


def _read_rows(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8", errors="replace").rstrip("\n").split("\n")]


def _first_rows(label: str, names: Sequence[str], rows: Sequence[Sequence[str]], most: int) -> str:
    more = f'<p class="hint">{len(rows):,} rows, of which the first {most} are shown</p>'
    return _rows(label, names, rows[:most]) + more * (len(rows) > most)


def _use(run: RunFolder, recipe: str, task: zoo.Task) -> str:
    """Links to pages of the model, and the commands that use it."""
    folder = shlex.quote(str(run.path))
    takes_pairs = isinstance(task, zoo.QuestionAnswerer) or len(getattr(task.preprocessor, "text_names", ())) > 1
    texts = '"..." "..."' if takes_pairs else '"..."'
    commands = {"A page and interfaces of HTTP": f"python -m recipes.serve {folder}"}
    if not takes_pairs:
        commands["Outputs for texts"] = f"python -m recipes.generate {folder} --texts {texts}"
    commands["Scores on other data"] = f"python -m recipes.evaluate {folder} --data.test FILE"
    commands["What it does with a text"] = f"python -m recipes.inspect {folder} --text {texts}"
    # a student learns from a teacher, which is to be named, too
    if hasattr(getattr(run.config, "model", None), "start_from") and not hasattr(run.config, "teacher"):
        start = f"--model.start_from {folder}"
        files = "--data.train FILE --data.validation FILE"
        commands["Training goes on with other data"] = f"python -m recipes.{recipe} {start} {files}"
    links = [f'<a href="{_ADDRESS}">The served page</a>, while the first command runs']
    if (run.path / PAGE).exists():
        links.insert(0, f'<a href="{PAGE}">What the model does with an example</a>')
    lines = "".join(f"<dt>{name}</dt><dd><pre>{html.escape(command)}</pre></dd>" for name, command in commands.items())
    return f"<dl>{lines}</dl><ul>{''.join(f'<li>{link}</li>' for link in links)}</ul>"


def _samples(folder: Path) -> str:
    """The beginning of each file of samples; of those of the epochs the last one alone."""
    if not folder.is_dir():
        return ""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    of_epochs = [path for path in files if path.stem.startswith("epoch-")]
    parts = []
    for path in files:
        if path in of_epochs[:-1]:
            continue
        heading = f"<h3>{html.escape(path.name)}</h3>"
        if path.suffix == ".tsv":
            names, *rows = _read_rows(path)
            # others are among the errors
            if path.name != _OUTPUTS or not _REFERENCES <= set(names):
                parts.append(heading + _first_rows(path.name, names, rows, _MOST_SAMPLES))
        else:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            shown = [*lines[:_MOST_SAMPLES], *["…"] * (len(lines) > _MOST_SAMPLES)]
            # each line has its own direction
            body = "".join(f'<div dir="auto">{html.escape(line) or "<br>"}</div>' for line in shown)
            parts.append(f"{heading}<pre>{body}</pre>")
    return "".join(parts)


def _rows(label: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table below the names of its columns."""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in names)
    lines = ("".join(f'<td dir="auto">{html.escape(cell)}</td>' for cell in row) for row in rows)
    body = "".join(f"<tr>{cells}</tr>" for cells in lines)
    return (
        f'<div class="scroll" role="region" aria-label="{html.escape(label)}" tabindex="0"><table><thead><tr>{head}'
        f"</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _model_card(text: str) -> str:
    """The text of a model card as HTML, without what the report shows itself; tags in it are text, images are links."""
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    kept, is_own = [], False
    tokens = markdown.parse(huggingface_hub.ModelCard(text).text)
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "heading_open" and token.tag in ("h1", "h2"):
            is_own = following.content in _OWN_SECTIONS
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"  # below the headings of the report
        if not is_own:
            kept.append(token)
    return f'<div class="model-card">{markdown.renderer.render(kept, markdown.options, {})}</div>'


def write_inspection(run: RunFolder, task: zoo.Task, examples: Sequence[Any]) -> None:
    """Writes `inspect.html` of the first example that is short enough.

    Without one there is no page, and what is printed says so.

    Args:
        run: The run folder.
        task: The trained task.
        examples: Inputs of the task.
    """
    # one of an earlier run would pass for one of this run
    (run.path / PAGE).unlink(missing_ok=True)
    for example in examples:
        try:
            row = task.row_of(example)
        except ValueError:
            continue  # longer than the model
        length = max(value.shape[1] for name, value in row.inputs.items() if name.endswith("token_ids"))
        if length <= _MOST_TOKENS:
            options = {"lens": True, "gradients": length <= _MOST_WITH_GRADIENTS}
            path = zoo.inspect.inspect_task(task, row, top_k=5, **options).save_html(run.path / PAGE)
            print(f"{path}: what the model does with an example")
            return
    print(f"{PAGE} is left out: no example has at most {_MOST_TOKENS} tokens")
