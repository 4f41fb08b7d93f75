"""Teachers and students: models that others learn from, and models that are made to learn from another one."""

from __future__ import annotations

from typing import Any

import zoo
from recipes.common.errors import ConfigError, RunFolderError, errors_of
from recipes.common.run_folder import RunFolder, trained
from recipes.common.saved_models import load_task
from recipes.common.training.models import adapt, make_or_load_task
from recipes.common.training.teacher_outputs import digest_of

_FILE = "teacher.sha256"


def load_teacher(run: RunFolder, source: str, kind: str | None) -> Any:
    """Returns the teacher, its low-rank updates merged into weights in floats; the run folder notes its weights.

    Args:
        run: The run folder.
        source: What `from_preset` takes.
        kind: Its task; None for what was saved.

    Raises:
        ConfigError: If there is no such task.
        DataError: If there is no saved model.
        RunFolderError: If the run goes on and was begun with a teacher of other weights.
    """
    teacher = load_task(source, kind)
    path, weights = run.path / _FILE, digest_of(teacher)
    known = path.read_text(encoding="utf-8").strip() if path.exists() else weights
    if known != weights and trained(run.path) is not None:
        raise RunFolderError(
            f"the teacher {source} has other weights than when the run in {str(run.path)!r} was begun; name another "
            "run folder"
        )
    run.write_text(_FILE, weights + "\n")
    adapters = teacher.backbone.adapters
    if teacher.adaptation.mode is None:
        # layers that are kept must be plain ones
        if adapters.active:
            teacher.merge_lora()
        if len(adapters):
            teacher.remove_adapters(*adapters)
    return teacher


def make_student(model: Any, run: RunFolder, teacher: Any) -> Any:
    """Returns the student: a saved model, a new one, or layers of the teacher.

    Args:
        model: The group `model` of `recipes.distill`.
        run: The run folder.
        teacher: The task of the teacher.

    Raises:
        ConfigError: If there is no such model, it has other tokens, or layers cannot be left out.
    """
    kind = type(teacher)
    if model.start_from is not None:
        student = make_or_load_task(kind, model, None, run, list)
        if student.tokenizer.get_vocabulary() != teacher.tokenizer.get_vocabulary():
            raise ConfigError(f"model.start_from must be a model with the teacher's tokens, got {model.start_from}")
        return student
    if model.preset is not None:
        with errors_of("model"):
            # a vocabulary may be padded beyond the tokenizer's
            size = teacher.backbone.config.vocabulary_size
            backbone = zoo.Backbone.from_config(zoo.preset_config(model.preset, vocabulary_size=size, **model.choices))
            preprocessor = teacher.preprocessor.replace(sequence_length=None)
            student = kind(backbone, preprocessor, **teacher.own_options())
    else:
        if teacher.adaptation.mode is not None:
            raise ConfigError(
                "model.preset or model.start_from must be given with a teacher whose weights are stored in "
                f"{teacher.adaptation.mode}: its layers cannot be trained"
            )
        with errors_of("model.layers"):
            student = zoo.tasks.keep_layers(teacher, *layers_to_keep(model, teacher.backbone.config))
    adapt(student, model)
    return student


def layers_to_keep(model: Any, config: Any) -> list[list[int]]:
    """Returns the numbers of the layers to keep of each stack; every other one where none are named.

    Args:
        model: The group `model` of `recipes.distill`.
        config: The configuration of the teacher's backbone.
    """
    numbers = [(model.layers, config.num_layers)]
    if config.architecture == "encoder_decoder":
        numbers.append((model.decoder_layers, config.num_decoder_layers or config.num_layers))
    return [zoo.tasks.every_other(number) if layers is None else layers for layers, number in numbers]
