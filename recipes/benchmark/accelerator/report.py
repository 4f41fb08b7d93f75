"""Tables, kernels and a figure of the rows that the processes answered with."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recipes.benchmark.accelerator.devices import peak_operations
from recipes.benchmark.accelerator.plan import LIBRARIES, PARTS

_COLUMNS = {
    "attention": ("mask", "path", "kernel", "forward, ms", "and backward", "temporary memory", "error", "of gradients"),
    "first_call": ("process", "library", "first step", "first text", "from start to both"),
    "tests": ("tests", "library", "outcome"),
    "": ("work", "library", "tokens/s", "MFU", "first step or call", "peak memory", "ours / this one"),
}


def line(row: dict[str, Any], results: dict[str, Any]) -> str:
    """Returns a row of the table of its part, as Markdown.

    Args:
        row: The row.
        results: See `table`.
    """
    return f"| {' | '.join(_cells(row, results))} |"


def _cells(row: dict[str, Any], results: dict[str, Any]) -> list[str]:
    part, name = row["part"], row["name"]
    if part == "attention":
        path = f"**{row['path']}**" if row.get("is_chosen") else row.get("path", "")
        first = [name, path]
    else:
        first = [name, row["library"]]
    reason = row.get("failed") or row.get("left_out")
    if reason:
        empty = len(_COLUMNS.get(part, _COLUMNS[""])) - len(first) - 1
        return [*first, reason.replace("|", "/").replace("\n", " "), *[""] * empty]
    if part == "attention":
        times = [f"{1e3 * row[key]:.3f}" for key in ("forward_seconds", "both_seconds")]
        errors = [f"{row[key]:.1e}" for key in ("error", "gradient_error")]
        return [*first, row["kernel"], *times, _memory(row["temporary_bytes"]), *errors]
    if part == "first_call":
        keys = ("first_step_seconds", "first_text_seconds", "whole_seconds")
        return [*first, *(f"{row[key]:.1f} s" for key in keys)]
    if part == "tests":
        words = ", ".join(f"{number:,} {outcome}" for outcome, number in sorted(row["outcomes"].items()))
        return [*first, "; ".join([words, *row["failed_tests"]])]
    peak = peak_operations(results["device"])
    share = f"{row['operations_per_second'] / peak:.1%}" if peak and "operations_per_second" in row else ""
    speed = f"{row['tokens_per_second']:,.0f}"
    ours = [each for each in results["rows"] if (each["name"], each["library"]) == (name, "zoo")]
    ratio = ""
    if row["library"] != "zoo" and ours and "tokens_per_second" in ours[0]:
        ratio = f"{ours[0]['tokens_per_second'] / row['tokens_per_second']:.2f}"
    return [*first, speed, share, f"{row['first_step_seconds']:.1f} s", _memory(row["peak_bytes"]), ratio]


def heading(part: str) -> str:
    """Returns the two lines above the rows of a part, as Markdown.

    Args:
        part: The part.
    """
    columns = _COLUMNS.get(part, _COLUMNS[""])
    return f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}"


def table(results: dict[str, Any]) -> str:
    """Returns all tables, and the kernels by time, as Markdown.

    Args:
        results: `rows`, `kernels`, `device`, `versions`, `seconds` and `tiny`.
    """
    device = results["device"]
    peak = peak_operations(device)
    spoken = f"{peak / 1e12:.0f} TFLOP/s in bfloat16" if peak else "no known peak, so no MFU"
    names = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    lines = []
    if results["tiny"]:
        lines += ["Tiny models, to try the command: rows keep their names, and their figures mean nothing.", ""]
    lines += [f"Device: {device} ({spoken}). {names}. {results['seconds']:.0f} s in all.", ""]
    for part, what in PARTS.items():
        rows = [row for row in results["rows"] if row["part"] == part]
        if rows:
            # rows of one work stand together, libraries in their order
            names_of = list(dict.fromkeys(row["name"] for row in rows))
            rows.sort(key=lambda row: (names_of.index(row["name"]), LIBRARIES.index(row["library"])))
            lines += [f"## {part}: {what}", "", heading(part), *(line(row, results) for row in rows), ""]
    for traced in results["kernels"]:
        busy, step = 1e3 * traced["busy_seconds"], 1e3 * traced["step_seconds"]
        lines += [
            f"## Kernels of {traced['name']}",
            "",
            f"A step takes {step:.1f} ms by the clock. Its kernels take {busy:.1f} ms.",
            "",
            "| kernel | ms per step | share |",
            "| --- | --- | --- |",
            *(
                f"| `{name}` | {1e3 * seconds:.2f} | {seconds / max(traced['busy_seconds'], 1e-12):.1%} |"
                for name, seconds in traced["kernels"]
            ),
            "",
        ]
    return "\n".join(lines)


def plot(rows: Sequence[dict[str, Any]], path: Path) -> str | None:
    """Draws how fast each library is in each work, ours being 1, with the tokens per second.

    Args:
        rows: The rows.
        path: The file.

    Returns:
        None, or a sentence that says why there is no figure.
    """
    shown = [row for row in rows if "tokens_per_second" in row]
    if not shown:
        return "There is no figure: no row has tokens per second."
    if importlib.util.find_spec("matplotlib") is None:
        return "There is no figure: matplotlib is not installed."
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["name"] for row in shown))
    # where ours has no row, the first one that has is 1
    units: dict[str, float] = {}
    for row in sorted(shown, key=lambda row: LIBRARIES.index(row["library"])):
        units.setdefault(row["name"], row["tokens_per_second"])
    libraries = [library for library in LIBRARIES if any(row["library"] == library for row in shown)]
    figure = Figure(figsize=(9, 1.5 + 0.45 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    height = 0.8 / len(libraries)
    for index, library in enumerate(libraries):
        speeds = {row["name"]: row["tokens_per_second"] for row in shown if row["library"] == library}
        places = [names.index(name) + (index - (len(libraries) - 1) / 2) * height for name in speeds]
        bars = axes.barh(places, [speed / units[name] for name, speed in speeds.items()], height, label=library)
        axes.bar_label(bars, [f"{speed:,.0f}" for speed in speeds.values()], padding=3, fontsize=7)
    axes.set(xlabel="speed as a share of ours, and tokens per second", yticks=range(len(names)), yticklabels=names)
    axes.margins(x=0.15)
    axes.invert_yaxis()
    axes.legend()
    figure.savefig(path, dpi=150)
    return None


def _memory(number: int | None) -> str:
    return "" if number is None else f"{number / 2**20:,.0f} MiB"
