"""Trains a smaller model to imitate a saved model.

    python -m recipes.distill                                          # trains a teacher first, in minutes
    python -m recipes.distill --teacher.start_from hf://owner/bert --data.train a.txt --data.validation b.txt ...
    python -m recipes.distill --teacher.start_from runs/dates/model --model.layers 0 --model.decoder_layers 0 ...

Encoders learn as DistilBERT did (soft targets, hidden tokens, cosine of hidden states), decoders from soft targets
beside the text, encoder-decoders from what the teacher writes. The student keeps some of the teacher's layers (every
other one, or `model.layers`), or is a model of its own (`model.preset` and `model.options`). The same command resumes
an interrupted run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

import zoo
from recipes import language_model, pretrain_masked_lm, translate
from recipes.common.config import differences, run_recipe, setting
from recipes.common.data.data_config import TextDataConfig
from recipes.common.errors import ConfigError, errors_of, shown
from recipes.common.evaluation.generated_texts import evaluate_translation
from recipes.common.evaluation.text_metrics import perplexity
from recipes.common.finish import Outcome, decoded
from recipes.common.run_folder import RunFolder
from recipes.common.runner import Recipe, trained_within
from recipes.common.training.distill_data import (
    GENERATED,
    Material,
    longest_of,
    open_texts,
    pairs_material,
    require_keys_of,
    texts_material,
)
from recipes.common.training.fitting import (
    TrainingConfig,
    compile_model,
    prepare,
    require_one_device,
    token_metrics,
    train,
)
from recipes.common.training.models import ModelConfig, count_trained
from recipes.common.training.optimizers import SCHEDULE_HELP, SCHEDULE_NAMES
from recipes.common.training.students import load_teacher, make_student


@dataclasses.dataclass(frozen=True)
class TeacherConfig:
    """The model that is learned from."""

    start_from: str | None = setting(
        None,
        "A saved model, or one of the Transformers library. null: another recipe trains one in RUN/teacher.",
        offers="paths",
    )
    task: Literal["CausalLM", "MaskedLM", "Seq2SeqLM"] | None = setting(
        None, "Task of the teacher. null: the task that was saved, or CausalLM for a teacher that is trained first."
    )


@dataclasses.dataclass(frozen=True)
class DataConfig(TextDataConfig):
    """Where the texts, or for a Seq2SeqLM the pairs, come from; of pairs for training the sources alone are used."""

    train: list[str] = setting(
        [], "Files, plain or .gz, or the name of a data set. Empty: generated dates.", offers="paths"
    )
    unit: Literal["file", "paragraph", "line"] = setting(
        "file", "Which part of a file is a document (not for Seq2SeqLM).", describes_files=True
    )
    words_per_text: int = setting(48, "MaskedLM: longer texts are cut into texts of this many words.", least=2)
    packing: Literal["windows", "documents"] = setting(
        "windows", "CausalLM: windows of all documents joined, or rows of documents that do not attend to each other."
    )
    keys: list[str] = setting(
        ["source", "target"], "Seq2SeqLM: keys of JSON lines, or names in the header.", describes_files=True
    )
    header: bool | None = setting(
        None,
        "Seq2SeqLM: whether the first row of a table has the column names. null: if keys are given.",
        describes_files=True,
    )


@dataclasses.dataclass(frozen=True)
class StudentConfig(ModelConfig):
    """The student: layers of the teacher, a new model by preset and options, or a saved one by start_from."""

    preset: str | None = setting(
        None,
        "Name of the preset of a new student, one of zoo.list_presets(). null: the student has layers of the teacher.",
        offers="presets",
    )
    layers: list[int] | None = setting(
        None,
        "Layers of the teacher to keep, from 0. null: every other layer. In an encoder-decoder these "
        "are layers of the encoder.",
    )
    decoder_layers: list[int] | None = setting(
        None, "Seq2SeqLM: layers of the decoder to keep. null: every other layer."
    )


@dataclasses.dataclass(frozen=True)
class DistillationConfig:
    """What is learned from the teacher."""

    temperature: float = setting(2.0, "Temperature of the soft targets.", above=0)
    soft: float | None = setting(
        None, "Weight of the soft targets. null: 5 for a MaskedLM, 0.5 for a CausalLM, 0 for a Seq2SeqLM.", least=0
    )
    hard: float | None = setting(
        None,
        "Weight of the cross-entropy with the labels. null: 2 for a MaskedLM, 0.5 for a CausalLM, 1 for a Seq2SeqLM.",
        least=0,
    )
    cosine: float | None = setting(
        None, "Weight of the cosine of the last hidden states. null: 1 for a MaskedLM, and 0 otherwise.", least=0
    )
    beams: int = setting(5, "Seq2SeqLM: number of beams with which the teacher generates.", least=1, most=256)


@dataclasses.dataclass(frozen=True)
class DistillTrainingConfig(TrainingConfig):
    """How the student is trained."""

    epochs: int = setting(
        4, "Number of passes over the training data. For a CausalLM an epoch has batches_per_epoch batches."
    )
    batch_size: int = setting(32, "Number of texts, windows or pairs per batch.", least=1, most=1 << 14)
    batches_per_epoch: int = setting(250, "CausalLM: number of batches per epoch.", least=1, most=10**5)
    length: int = setting(64, "CausalLM: number of tokens of a window or row.", least=1, most=1 << 16)
    learning_rate: float = setting(0.001, "Peak learning rate, after the warm-up.")
    schedule: str = setting("linear", SCHEDULE_HELP, offers=SCHEDULE_NAMES)
    warmup_steps: float = setting(
        0.1, "Number of updates of the warm-up. A value below 1 is their share of all updates."
    )
    weight_decay: float = setting(0.01, "Decoupled weight decay, applied to matrices.")


@dataclasses.dataclass(frozen=True)
class DistillConfig:
    """Trains a small model to do what a large one does, and exports it as a SavedModel."""

    run_folder: str = setting(
        "runs/distill", "Folder of the run. The same command resumes the run in it.", offers="paths"
    )
    teacher: TeacherConfig = TeacherConfig()
    data: DataConfig = DataConfig()
    model: StudentConfig = StudentConfig()
    distillation: DistillationConfig = DistillationConfig()
    training: DistillTrainingConfig = DistillTrainingConfig()
    new_tokens: int = setting(
        48, "CausalLM: largest number of tokens that the export generates.", may_change=True, least=1
    )
    export: bool = setting(True, "Whether to write the SavedModel.", may_change=True)


# soft, hard, cosine: Sanh et al. 2019 (their published code); Hinton et al. 2015 with equal parts; Kim and Rush 2016
_WEIGHTS = {"MaskedLM": (5.0, 2.0, 1.0), "CausalLM": (0.5, 0.5, 0.0), "Seq2SeqLM": (0.0, 1.0, 0.0)}


def steps(config: DistillConfig, run: RunFolder) -> Outcome:
    """Reads the data, makes the model, trains and measures it."""
    source = config.teacher.start_from or train_teacher(config, run)
    teacher = load_teacher(run, source, config.teacher.task)
    kind = type(teacher).__name__
    if kind not in _WEIGHTS:
        raise ConfigError(f"teacher.task must be one of {', '.join(_WEIGHTS)}, got a {kind}")
    require_keys_of(kind, differences(DistillConfig(), config))
    print(f"teacher: {source}, a {kind} of {teacher.count_params():,} parameters")
    student = make_student(config.model, run, teacher)
    print(f"student: {student.count_params():,} parameters")
    material = make_material(config, run, teacher, student)
    weights = weights_of(config, kind)
    with errors_of("distillation"):
        model = zoo.training.Distiller(student, teacher, temperature=config.distillation.temperature, **weights)
    loss = zoo.training.TokenCrossEntropy()
    options = {"task": student, "loss": loss, "weighted_metrics": token_metrics()}
    compile_model(model, run, config.training, material.training.number_of_batches, **options)
    teacher.compile(loss=loss, weighted_metrics=token_metrics(), jit_compile=config.training.is_compiled)
    shown = ("nll", "loss") if weights["soft"] or weights["cosine"] else ("nll",)
    train(
        model,
        run,
        config.training,
        material.training,
        material.validation.dataset,
        curves={
            f"{part}, {name}": prefix + name
            for name in shown
            for part, prefix in (("training", ""), ("validation", "val_"))
        },
        monitor="val_nll",
        task=student,
    )
    logs, known = (task.evaluate(material.validation.dataset, return_dict=True, verbose=0) for task in (model, teacher))
    results = {
        "task": kind,
        "teacher_parameters": teacher.count_params(),
        "trained_parameters": count_trained(student),
        **likelihoods("validation", float(logs["nll"])),
        **likelihoods("teacher_validation", float(known["nll"])),
        **{f"validation_{name}": round(float(value), 4) for name, value in logs.items() if name.endswith("_loss")},
        **text_scores(teacher, student, material),
    }
    return outcome_of(config, student, material, results)


def check(config: DistillConfig) -> None:
    """Checks what can be checked before the data are read, and makes ready for a model."""
    model = config.model
    own = "start_from" if model.start_from is not None else "preset" if model.preset is not None else None
    for name in ("layers", "decoder_layers") if own else ():
        if getattr(model, name) is not None:
            raise ConfigError(f"model.{name} must be null with model.{own}, got {getattr(model, name)}")
    if own is None and model.options:
        raise ConfigError(
            "model.options must be empty without model.preset, as a student of layers of the teacher is like it "
            f"otherwise, got {shown(model.options)}"
        )
    if config.teacher.start_from is None and config.data.train:
        raise ConfigError("teacher.start_from must be given with your own data")
    require_one_device(config, "distill")
    prepare(config)


def train_teacher(config: DistillConfig, run: RunFolder) -> str:
    """Returns the folder of a teacher, trained by another recipe on generated data if it is not there yet."""
    recipe, config_class = {
        "CausalLM": (language_model, language_model.LanguageModelConfig),
        "MaskedLM": (pretrain_masked_lm, pretrain_masked_lm.MaskedLMConfig),
        "Seq2SeqLM": (translate, translate.TranslateConfig),
    }[config.teacher.task or "CausalLM"]
    folder = run.path / "teacher"
    wanted = config_class(run_folder=str(folder), export=False)
    return trained_within(run, folder, recipe.main, wanted)


def make_material(config: DistillConfig, run: RunFolder, teacher: Any, student: Any) -> Material:
    """Returns what the student is trained on and measured with."""
    kind = type(teacher).__name__
    if not config.data.train:
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, train=[GENERATED[kind]]))
    if kind == "Seq2SeqLM":
        return pairs_material(config, run, teacher, student)
    train, validation = open_texts(config.data, run)
    if kind == "MaskedLM":
        return texts_material(config, teacher, student, train, validation)
    most, length = longest_of(teacher, student), config.training.length
    if length > most:
        raise ConfigError(f"training.length must be at most {most}, the max_length of teacher or student, got {length}")
    lines = [line for text in validation for line in text.splitlines() if line.strip()]
    return Material(*language_model.make_batches(config, student, train, validation), lines)


def weights_of(config: DistillConfig, kind: str) -> dict[str, float]:
    """Returns the weights of the losses."""
    given = config.distillation.soft, config.distillation.hard, config.distillation.cosine
    chosen = (default if weight is None else weight for weight, default in zip(given, _WEIGHTS[kind], strict=True))
    return dict(zip(("soft", "hard", "cosine"), chosen, strict=True))


def likelihoods(name: str, nll: float) -> dict[str, float]:
    """Returns a negative log-likelihood per token as results."""
    return {f"{name}_nll_per_token": round(nll, 4), f"{name}_perplexity": perplexity(nll)}


def text_scores(teacher: Any, student: Any, material: Material) -> dict[str, Any]:
    """Returns scores of what an encoder-decoder writes for the validation, its teacher's beside its own."""
    if not isinstance(student, zoo.Seq2SeqLM):
        return {}
    sources, references = ([pair[side] for pair in material.examples] for side in (0, 1))
    scores: dict[str, Any] = {}
    for prefix, task in (("", student), ("teacher_", teacher)):
        part = f"{prefix}validation"
        found = evaluate_translation(task, sources, references, part=part, sampler="greedy", batch_size=64)
        scores[f"{part}_sources_cut"] = found.counts["sources_cut"]
        scores |= {prefix + name: value for name, value in found.values.items()}
    return scores


def outcome_of(config: DistillConfig, student: Any, material: Material, results: dict[str, Any]) -> Outcome:
    """Returns the student, what was measured, and how the export is tried."""
    if isinstance(student, zoo.MaskedLM):
        texts, export = [pretrain_masked_lm.with_gap(student, text) for text in material.examples[:3]], {}
    elif isinstance(student, zoo.CausalLM):
        texts = [line[: max(1, len(line) // 2)] for line in material.examples[:3]]
        export = {"sampler": "greedy", "max_new_tokens": config.new_tokens, "truncate": True}
    else:
        texts, export = [pair.source for pair in material.examples[:3]], {"sampler": "greedy", "truncate": True}

    def trial(served: Any) -> Iterable[tuple[Any, Any, Any]]:
        if isinstance(student, zoo.MaskedLM):
            outputs = [np.asarray(row)[0] for row in served.serve(texts)["probabilities"]]
            expected = [[share for _, share in row[0]] for row in student.fill_mask(texts)]
            return zip(texts, outputs, map(np.asarray, expected), strict=True)
        return zip(texts, decoded(served.serve(texts)), student.generate(texts, **export), strict=True)

    return Outcome(student, results, trial, texts, export)


main = Recipe("distill", steps, check)


if __name__ == "__main__":
    run_recipe(main, DistillConfig, "distill")
