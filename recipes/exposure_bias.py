"""Measures how much worse a translation model is after its own prefixes than after the true ones.

    python -m recipes.exposure_bias                      # trains three small models on dates, a few minutes each
    python -m recipes.exposure_bias --models runs/a/model runs/b/model --names forced scheduled --data multi30k_de_en

A model trained with the true prefixes (teacher forcing) never sees its own mistakes (Bengio et al. 2015, section 1).
The report compares two predictions of every test text: token by token after the true prefix, and after the model's own
(greedy decoding). By position in the sentence it gives the share of positions where the token is the true one, and the
sacreBLEU of the texts cut to their first words.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import zoo
from recipes import translate
from recipes.command.printing import print_result
from recipes.common.config import run_recipe, setting
from recipes.common.data.data_sets import Source, TextPair, open_part
from recipes.common.data.parallel_text import PARALLEL, read_pairs
from recipes.common.errors import ConfigError, DataError, errors_of
from recipes.common.evaluation.translation_metrics import bleu, bleu_tokenization
from recipes.common.final_steps import FinalSteps
from recipes.common.run_folder import has_ended
from recipes.common.saved_models import load_task
from recipes.common.words import counted_words, first_words

# the sizes of the small models, and how each is fed
SMALL = {"embedding_dim": 64, "hidden_dim": 128, "readout_dim": 64, "reset_after": True, "dropout": 0.1}
FEEDINGS = {
    "teacher forcing": {"feeding": "teacher_forcing"},
    "scheduled sampling": {
        "feeding": "scheduled_sampling",
        "schedule": "inverse_sigmoid",
        "schedule_constant": 60.0,
    },
    "free running": {"feeding": "free_running"},
}

FEWEST_DRAWN = 50  # tokens of a position: the shares of fewer say little


@dataclasses.dataclass(frozen=True)
class ExposureBiasConfig:
    """Compares models on true prefixes and on their own."""

    run_folder: str = setting("runs/exposure_bias", "Folder of the report, and of the small models.", offers="paths")
    models: list[str] = setting(
        [], "Folders of saved Seq2SeqLM models. Empty: small models are trained on dates.", offers="paths"
    )
    names: list[str] = setting([], "Their names in the report. Empty: the names of the folders.")
    data: list[str] = setting(
        ["dates"], "Data set, two aligned files or one TSV file. A data set gives its test set.", offers="paths"
    )
    most_texts: int = setting(1000, "Largest number of test texts.", least=1)
    batch_size: int = setting(64, "Number of texts per batch.", least=1, most=1 << 16)
    bucket: int = setting(5, "Number of positions per row of the table.", least=1)
    epochs: int = setting(2, "Number of passes over the dates, if small models are trained.", least=1, most=10**6)


def main(config: ExposureBiasConfig) -> dict[str, Any]:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        The report of each model, as written to `exposure_bias.json`.
    """
    if config.names and len(config.names) != len(config.models):
        raise ConfigError(f"names must be as many as models ({len(config.models)}), got {len(config.names)}")
    folder = Path(config.run_folder)
    with errors_of("run_folder"):
        folder.mkdir(parents=True, exist_ok=True)
    steps = FinalSteps(folder)
    named = dict(zip(config.names or config.models, config.models, strict=True))
    folders = named or train_small_models(config, steps)
    test, _ = open_part(config.data, "test", Source(PARALLEL, read_pairs), "raise")
    if test is None:
        raise DataError(f"{' '.join(config.data)} has no test set")
    pairs = [pair for pair, _ in zip(test, range(config.most_texts), strict=False)]
    reports = {}
    for name, path in folders.items():
        reports[name] = measure(load_task(path, "Seq2SeqLM"), pairs, config.batch_size, config.bucket)
    table = make_table(reports)
    zoo.storage.write_text_atomically(folder / "exposure_bias.json", json.dumps(reports, indent=2) + "\n")
    zoo.storage.write_text_atomically(folder / "exposure_bias.md", table)
    steps.attempt("exposure_bias.png", draw, reports, folder / "exposure_bias.png")
    print_result(table)
    steps.raise_failed()
    return reports


def train_small_models(config: ExposureBiasConfig, steps: FinalSteps) -> dict[str, str]:
    """Trains RNNsearch in three ways on the built-in dates and returns the folders of the models."""
    folders = {}
    for name, options in FEEDINGS.items():
        run_folder = Path(config.run_folder) / name.replace(" ", "_")
        folders[name] = str(run_folder / "model")
        settings = translate.TranslateConfig(
            run_folder=str(run_folder),
            model=translate.Seq2SeqModelConfig("rnnsearch", {**SMALL, **options}),
            training=dataclasses.replace(translate.TranslateConfig().training, epochs=config.epochs, clip_norm=1.0),
            export=False,
        )
        if not has_ended(run_folder, settings):
            with steps.including(name):
                translate.main(settings)
    return folders


def measure(model: zoo.Seq2SeqLM, pairs: Sequence[TextPair], batch_size: int, bucket: int) -> dict[str, Any]:
    """Returns accuracy by position and sacreBLEU by length, with true and with own prefixes.

    Args:
        model: The model.
        pairs: Test pairs.
        batch_size: Pairs per batch.
        bucket: Positions, and words, per row.

    Returns:
        `{"accuracy": {positions: {"true", "own", "tokens"}}, "sacreBLEU": {"first 5 words": {"true", "own"}, ...},
        "signature"}`; accuracies are shares of the true tokens, end token included.
    """
    gold, forced, own = predict(model, pairs, batch_size)
    accuracy = {}
    for first in range(0, max(map(len, gold)), bucket):
        counts = [
            (np.sum(_agreement(truth, a)[first : first + bucket]), np.sum(_agreement(truth, b)[first : first + bucket]))
            for truth, a, b in zip(gold, forced, own, strict=True)
        ]
        tokens = sum(len(truth[first : first + bucket]) for truth in gold)
        true_share, own_share = (float(sum(column)) / tokens for column in zip(*counts, strict=True))
        accuracy[f"{first + 1}-{first + bucket}"] = {"true": true_share, "own": own_share, "tokens": tokens}
    references = [pair.target for pair in pairs]
    texts = {name: _detokenize(model.tokenizer, ids) for name, ids in (("true", forced), ("own", own))}
    longest = int(np.quantile([len(counted_words(reference)) for reference in references], 0.95))
    tokenization = bleu_tokenization(references)
    scores, signature = {}, ""
    for words in [*range(bucket, longest, bucket), None]:
        label = "whole texts" if words is None else f"first {words} words"
        scores[label] = {}
        for name, outputs in texts.items():
            score = bleu(_cut(outputs, words), _cut(references, words), tokenization=tokenization)
            scores[label][name], signature = round(score.value, 2), score.signature
    return {"accuracy": accuracy, "sacreBLEU": scores, "signature": signature}


def predict(
    model: zoo.Seq2SeqLM, pairs: Sequence[TextPair], batch_size: int
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Returns the true tokens of each target (end token included), those predicted after true prefixes and after own.

    Args:
        model: The model.
        pairs: The pairs.
        batch_size: Pairs per batch.
    """
    order = np.argsort([len(pair.source) for pair in pairs], kind="stable")
    results: list[list[np.ndarray]] = [[], [], []]
    for start in range(0, len(order), batch_size):
        rows = [pairs[index] for index in order[start : start + batch_size]]
        sources, targets = [row.source for row in rows], [row.target for row in rows]
        inputs, labels, mask = model.preprocessor.training_batch(sources, targets)
        masks = np.asarray(inputs["encoder_padding_mask"])
        source = [ids[mask] for ids, mask in zip(np.asarray(inputs["encoder_token_ids"]), masks, strict=True)]
        outputs = model.generate_tokens(source=source, sampler=zoo.Greedy(), jit_compile=False)
        forced = np.argmax(np.asarray(model(inputs, training=False)), axis=-1)
        for row, length in enumerate(np.sum(np.asarray(mask) > 0, axis=1)):
            results[0].append(np.asarray(labels)[row, :length])
            results[1].append(forced[row, :length])
            results[2].append(outputs["token_ids"][row, : int(outputs["lengths"][row])])
    places = np.argsort(order)
    return tuple([column[place] for place in places] for column in results)


def _agreement(truth: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """For each true token whether it is predicted at its place."""
    agrees = np.zeros(len(truth), bool)
    common = min(len(truth), len(predicted))
    agrees[:common] = truth[:common] == predicted[:common]
    return agrees


def _detokenize(tokenizer: Any, ids: Sequence[np.ndarray]) -> list[str]:
    """Texts of token ids. An end that is predicted too early is one wrong token: the true prefix goes on after it."""
    rows = [row[row != tokenizer.end_id] for row in ids]
    return [tokenizer.detokenize(row[np.newaxis]).numpy()[0].decode("utf-8") for row in rows]


def _cut(texts: Sequence[str], words: int | None) -> list[str]:
    return list(texts) if words is None else [first_words(text, words) for text in texts]


def make_table(reports: dict[str, dict[str, Any]]) -> str:
    """Returns the reports as Markdown tables.

    Args:
        reports: What `measure` returned, by name of the model.
    """
    lines = []
    for title, key, show in (
        ("Token accuracy, true prefix / own prefix (difference), %", "accuracy", lambda value: 100 * value),
        ("sacreBLEU, true prefix / own prefix (difference)", "sacreBLEU", lambda value: value),
    ):
        first = next(iter(reports.values()))[key]
        heads = [f"{row}, {values['tokens']} tokens" if "tokens" in values else row for row, values in first.items()]
        lines += [f"| {title} | {' | '.join(heads)} |", "| --- " * (len(heads) + 1) + "|"]
        for name, report in reports.items():
            cells = []
            for values in report[key].values():
                true, own = show(values["true"]), show(values["own"])
                cells.append(f"{true:.1f} / {own:.1f} ({true - own:.1f})")
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    lines.append(f"sacreBLEU: {next(iter(reports.values()))['signature']}")
    return "\n".join(lines) + "\n"


def draw(reports: dict[str, dict[str, Any]], path: Path) -> None:
    """Draws accuracy by position and sacreBLEU by length, after true prefixes (left) and after own ones (right).

    Args:
        reports: What `measure` returned, by name of the model. Positions of fewer than `FEWEST_DRAWN` tokens are in
            the table only.
        path: PNG file to write.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6.4), layout="constrained")
    panels = figure.subplots(2, 2, sharex="row", sharey="row")
    for row, key, x_label, y_label in (
        (0, "accuracy", "tokens of the true text, up to", "share of true tokens"),
        (1, "sacreBLEU", "first words of the text", "sacreBLEU"),
    ):
        for axes, prefix in zip(panels[row], ("true", "own"), strict=True):
            for name, report in reports.items():
                places, values = curve(report[key], prefix)
                axes.plot(places, values, marker=".", label=name)
            axes.set_title(f"after {'the true' if prefix == 'true' else 'its own'} prefix")
            axes.set_xlabel(x_label)
            axes.grid(alpha=0.3)
        panels[row, 0].set_ylabel(y_label)
    panels[0, 1].legend()
    zoo.inspect.save_figure(figure, path)


def curve(rows: dict[str, dict[str, float]], prefix: str) -> tuple[list[int], list[float]]:
    """Returns the positions and values to draw of one part of a report.

    Args:
        rows: `report["accuracy"]` or `report["sacreBLEU"]`.
        prefix: "true" or "own".
    """
    kept = {}
    for name, values in rows.items():
        if name != "whole texts" and values.get("tokens", FEWEST_DRAWN) >= FEWEST_DRAWN:
            kept[int(name.split("-")[-1].removeprefix("first ").removesuffix(" words"))] = values[prefix]
    return list(kept), list(kept.values())


if __name__ == "__main__":
    run_recipe(main, ExposureBiasConfig, "exposure_bias")
