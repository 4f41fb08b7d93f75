"""A server of exported models under load: latency, throughput, errors, wrong answers, memory.

    python -m recipes.benchmark serving --seconds 180 --clients 64
    python -m recipes.benchmark serving models --transformers_python peers/bin/python

Without a folder of models it makes four small ones with random weights: one each that classifies, embeds, translates
and completes texts. Locust is what asks. Each answer is compared with what the same export says to the text alone. The
model that completes texts is then served one text at a time, and by `generate` of Transformers behind the same
framework. It takes `seconds` for each job and for each of the two comparisons, and about two minutes in addition.

The clients run on the same machine and take a part of its processors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recipes.benchmark.serving_jobs import JOBS, job_of, make_plan
from recipes.benchmark.serving_models import make_models
from recipes.benchmark.step_data import write_results
from recipes.common.config import setting
from recipes.common.errors import ConfigError, RecipeError
from recipes.common.output_file import check_output_file
from zoo.extras import require_extra

_HERE = Path(__file__).parent
# What the servers of the comparisons are called in results.
ALONE, TRANSFORMERS = "complete, one at a time", "complete, Transformers"


@dataclasses.dataclass(frozen=True)
class Config:
    """Measures a server of exported models under load."""

    models: str | None = setting(
        None, "Folder of models, as recipes.serve takes it. null: small models are made.", words="first", offers="paths"
    )
    seconds: float = setting(180.0, "Seconds of each load.", above=0)
    clients: int = setting(64, "Number of clients that send requests at the same time.", least=1)
    jobs: list[str] = setting(list(JOBS), f"Which of {', '.join(JOBS)}.")
    texts: int = setting(64, "Number of different texts of each job.", least=1)
    max_new_tokens: int = setting(64, "Number of tokens to generate for each text.", least=1)
    preset: str = setting("llama_tiny", "Named decoder that completes texts, where models are made.", offers="presets")
    sizes: dict[str, Any] = setting({}, "Further sizes of it, such as {num_layers: 2}.")
    rows: int = setting(16, "Number of texts that the server generates at the same time.", least=1)
    compare: bool = setting(True, "Whether completion is also measured one text at a time, and by Transformers.")
    transformers_python: str | None = setting(
        None, "Python interpreter that has torch and transformers. null: Transformers is left out.", offers="paths"
    )
    output: str = setting(
        "runs/benchmark/serving.json", "File for the figures; a table and a picture of the same name.", offers="paths"
    )


def main(config: Config) -> dict[str, Any]:
    """Runs the benchmark, prints the table, and writes it, the figures and a picture.

    Args:
        config: The configuration.

    Returns:
        For each load what `_load` returns, by name.

    Raises:
        ConfigError: If a job is unknown, a model is missing, or the extra is not installed.
    """
    check_output_file(config.output)
    unknown = sorted(set(config.jobs) - set(JOBS))
    if unknown:
        raise ConfigError(f"jobs must be of {', '.join(JOBS)}, got {', '.join(unknown)}")
    require_extra("serve", "A server")
    require_extra("benchmark", "Load")
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as made:
        folder, written = Path(config.models or made), None
        if config.models is None:
            written = make_models(folder, config.preset, config.sizes, config.max_new_tokens)
        plans = {}
        for job in config.jobs:
            name, export = job_of(folder, job)
            plans[job] = make_plan(job, name, export, config.texts, config.max_new_tokens)
        with _server(folder, config.rows) as (address, process):
            for job, plan in plans.items():
                results[job] = _load(address, process, plan, config)
        if config.compare and "complete" in plans:
            with _server(folder, 1, waiting=max(256, config.clients)) as (address, process):
                results[ALONE] = _load(address, process, plans["complete"], config)
            if config.transformers_python is not None and written is not None:
                with _transformers(config.transformers_python, written) as (address, process):
                    results[TRANSFORMERS] = _load(address, process, plans["complete"], config)
    output = Path(config.output)
    write_results(output, {"config": dataclasses.asdict(config), "loads": results})
    text = table(results)
    output.with_suffix(".md").write_text(text, encoding="utf-8")
    print("\n" + text)
    plot(results, output.with_suffix(".png"))
    return results


@contextlib.contextmanager
def _server(folder: Path, rows: int, waiting: int = 256) -> Iterator[tuple[str, subprocess.Popen]]:
    """The server in a process of its own, and its address."""
    port = _free_port()
    command = [sys.executable, "-m", "recipes.serve", str(folder), "--port", str(port)]
    options = ["--batching.rows", str(rows), "--limits.waiting", str(waiting), "--limits.seconds", "600"]
    with _running([*command, *options], f"http://127.0.0.1:{port}", "/ready") as running:
        yield running


@contextlib.contextmanager
def _transformers(python: str, directory: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """`generate` of Transformers behind the same framework, one request after the other."""
    port = _free_port()
    command = [sys.executable, "-m", "recipes.benchmark.serving_transformers", python, str(directory), str(port)]
    with _running(command, f"http://127.0.0.1:{port}", "/ready") as running:
        yield running


@contextlib.contextmanager
def _running(command: list[str], address: str, path: str) -> Iterator[tuple[str, subprocess.Popen]]:
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"})
        try:
            ends = time.monotonic() + 600
            while not _answers(address + path):
                if process.poll() is not None or time.monotonic() > ends:
                    log.seek(0)
                    raise RecipeError(f"a server did not start: {log.read()[-1000:]}")
                time.sleep(0.2)
            yield address, process
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            # this project's server is ready when its first model is
            return answer.status == 200 and b"loading" not in answer.read()
    except OSError:
        return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def _load(address: str, process: subprocess.Popen, plan: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """Lets clients ask, and returns what they saw.

    Returns:
        `requests`, `errors`, `wrong`, `seconds`, `per_second`, `milliseconds` and `first_milliseconds` at the
        percentiles 50, 95 and 99, `tokens_per_second`, and `bytes_before` and `bytes_after` of memory of all processes.
    """
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "plan.json", Path(folder) / "found.json"
        # some requests before: what happens once only is not what is measured
        for seconds, clients in ((min(5.0, config.seconds), min(8, config.clients)), (config.seconds, config.clients)):
            given.write_text(json.dumps({**plan, "address": address}), encoding="utf-8")
            before = memory_of(process.pid)
            command = [sys.executable, "-m", "locust", "-f", str(_HERE / "serving_clients.py"), "--headless"]
            options = [
                "-u",
                str(clients),
                "-r",
                str(clients),
                "-t",
                f"{max(1, round(seconds))}s",
                "--stop-timeout",
                "60",
            ]
            done = subprocess.run(
                [*command, *options, "--only-summary", "--host", address],
                env={**os.environ, "ZOO_SERVING_PLAN": str(given), "ZOO_SERVING_FOUND": str(found)},
                capture_output=True,
                text=True,
            )
            if not found.exists():
                raise RecipeError(f"locust failed: {done.stderr[-1000:]}")
        return {**json.loads(found.read_text()), "bytes_before": before, "bytes_after": memory_of(process.pid)}


def memory_of(pid: int) -> int:
    """Returns the bytes of memory of a process and of those that it has started, shared pages counted once for each.

    Args:
        pid: Number of the process.
    """
    import psutil  # comes with locust

    process = psutil.Process(pid)
    return sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))


def table(results: Mapping[str, Any]) -> str:
    """Returns a Markdown table of results.

    Args:
        results: What `main` returns.
    """
    lines = [
        "| load | requests | errors | wrong | per second | tokens per second | 50 % (ms) | 95 % | 99 % | "
        "first byte, 50 % | 99 % | memory before (MiB) | after |",
        "| --- |" + " --- |" * 12,
    ]
    for name, row in results.items():
        times, first = row["milliseconds"], row["first_milliseconds"]
        tokens = f"{row['tokens_per_second']:,.0f}" if row["tokens_per_second"] else ""
        cells = [name, f"{row['requests']:,}", row["errors"], row["wrong"], f"{row['per_second']:,.1f}", tokens]
        cells += [f"{times[p]:,.0f}" for p in ("50", "95", "99")] + [f"{first[p]:,.0f}" for p in ("50", "99")]
        cells += [f"{row[key] / 2**20:,.0f}" for key in ("bytes_before", "bytes_after")]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    if "complete" in results:
        ours = results["complete"]["tokens_per_second"]
        for name in (ALONE, TRANSFORMERS):
            if name in results and results[name]["tokens_per_second"]:
                times = ours / results[name]["tokens_per_second"]
                lines += ["", f"Completion together is {times:.1f} times as fast as: {name}."]
    return "\n".join(lines) + "\n"


def plot(results: Mapping[str, Any], path: Path) -> None:
    """Draws the latency of each load at three percentiles.

    Args:
        results: What `main` returns.
        path: The file.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.2 + 0.5 * len(results)), layout="constrained")
    axes = figure.add_subplot()
    for index, percentile in enumerate(("50", "95", "99")):
        places = [place + (index - 1) * 0.26 for place in range(len(results))]
        axes.barh(places, [row["milliseconds"][percentile] for row in results.values()], 0.26, label=f"{percentile} %")
    axes.set_yticks(range(len(results)), list(results))
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds until an answer is complete")
    # above: any place within may have bars
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(path, dpi=120)
