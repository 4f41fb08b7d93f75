"""Students: models that are made to learn from another one."""

from __future__ import annotations

from typing import Any

import zoo
from recipes.common.errors import ConfigError, errors_of
from recipes.common.run_folder import RunFolder
from recipes.common.training.models import adapt, make_or_load_task
from zoo.tasks import every_other, keep_layers


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
        with errors_of("model.layers"):
            student = keep_layers(teacher, *kept_layers(model, teacher.backbone.config))
    adapt(student, model)
    return student


def kept_layers(model: Any, config: Any) -> list[list[int]]:
    """Returns the numbers of the layers to keep of each stack; every other one where none are named.

    Args:
        model: The group `model` of `recipes.distill`.
        config: The configuration of the teacher's backbone.
    """
    numbers = [(model.layers, config.num_layers)]
    if config.architecture == "encoder_decoder":
        numbers.append((model.decoder_layers, config.num_decoder_layers or config.num_layers))
    return [every_other(number) if layers is None else layers for layers, number in numbers]
