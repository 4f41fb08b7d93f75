"""How large the HTML page of an inspection is, and how long a browser takes to draw another layer or head."""

from __future__ import annotations

import dataclasses
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np
from tqdm import tqdm

import zoo
from recipes.benchmark.step_data import write_results
from recipes.common.config import setting
from recipes.common.errors import ConfigError
from recipes.common.output_file import check_output_file
from zoo.extras import import_extra

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_VIEWS = ("Lines", "All heads", "Matrix")
# the milliseconds from the movement of a slider until the frame that shows it is behind the browser
_MOVE = """async slider => {
  const start = performance.now();
  slider.value = slider.value === slider.max ? 1 : Number(slider.value) + 1;
  slider.dispatchEvent(new Event('input'));
  const frame = () => new Promise(requestAnimationFrame);
  await frame();
  await frame();
  return performance.now() - start;
}"""


@dataclasses.dataclass(frozen=True)
class Config:
    """Measures the page of a model with random weights, in Chromium without a window."""

    architecture: Literal["encoder", "decoder", "encoder_decoder"] = setting(
        "encoder", "The model. An encoder-decoder has three kinds of attention."
    )
    layers: int = setting(12, "Number of layers.", least=2)
    heads: int = setting(12, "Number of heads of each layer.", least=2)
    tokens: int = setting(128, "Number of tokens of the text.", least=1)
    initializer_range: float = setting(
        0.2, "Standard deviation of the random weights. Larger values make attention less even.", above=0
    )
    rounds: int = setting(20, "Number of movements of each slider in each view.", least=1)
    output: str = setting("runs/benchmark/inspection_page.json", "File for the figures.", offers="paths")


def main(config: Config) -> dict[str, Any]:
    """Measures, prints a table and writes it.

    Args:
        config: The configuration.

    Returns:
        The bytes of the page, and the median and largest milliseconds of each slider in each view.
    """
    check_output_file(config.output)
    playwright = import_extra("playwright.sync_api", "benchmark")
    browser_path = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser_path is None:
        raise ConfigError(f"the page needs a browser, one of {', '.join(_BROWSERS)}; none is installed")
    results: dict[str, Any] = {"config": dataclasses.asdict(config), "milliseconds": {}}
    with tempfile.TemporaryDirectory() as folder:
        page_file = Path(folder, "page.html")
        _inspection(config).save_html(page_file)
        results["bytes"] = page_file.stat().st_size
        print(f"{results['bytes']:,} bytes\n\n| view | slider | median ms | largest ms |\n| --- | --- | --- | --- |")
        with playwright.sync_playwright() as play, play.chromium.launch(executable_path=browser_path) as browser:
            page = browser.new_page()
            page.goto(page_file.as_uri())
            for view in tqdm(_VIEWS, disable=None):
                page.get_by_role("radio", name=view).check()
                for name in ("Layer", "Head"):
                    slider = page.get_by_role("slider", name=name)
                    taken = [slider.evaluate(_MOVE) for _ in range(config.rounds)]
                    median, largest = statistics.median(taken), max(taken)
                    results["milliseconds"].setdefault(view, {})[name] = {"median": median, "largest": largest}
                    print(f"| {view} | {name} | {median:.0f} | {largest:.0f} |", flush=True)
    write_results(config.output, results)
    return results


def _inspection(config: Config) -> zoo.inspect.Inspection:
    model = zoo.TransformerConfig(
        config.architecture,
        vocabulary_size=1000,
        hidden_dim=8 * config.heads,
        num_layers=config.layers,
        max_length=config.tokens,
        attention=zoo.AttentionConfig(config.heads),
        feed_forward=zoo.FeedForwardConfig(8 * config.heads),
        initializer_range=config.initializer_range,
    )
    keras.utils.set_random_seed(0)
    backbone = zoo.Backbone.from_config(model)
    ids = np.random.default_rng(0).integers(0, 1000, (1, config.tokens))
    if config.architecture == "encoder_decoder":
        inputs = {"encoder_token_ids": ids, "decoder_token_ids": ids}
        return zoo.Seq2SeqLM(backbone).inspect(inputs, gradients=False)
    task = zoo.MaskedLM if config.architecture == "encoder" else zoo.CausalLM
    return task(backbone).inspect({"token_ids": ids}, gradients=False)
