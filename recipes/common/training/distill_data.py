"""Batches that a student learns from: texts with hidden tokens, running text, sources with outputs of the teacher."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from recipes.common import batching
from recipes.common.data.choosing import short_enough
from recipes.common.data.data_sets import Source, TextPair, open_parts
from recipes.common.data.parallel_text import PARALLEL, read_pairs
from recipes.common.data.plain_text import PLAIN, cut_texts, read_plain
from recipes.common.errors import BadLines, ConfigError, shown
from recipes.common.run_folder import RunFolder
from recipes.common.training.encoder_recipe import print_cut
from recipes.common.training.teacher_outputs import teacher_outputs

# the generated data set of each kind of teacher
GENERATED = {"CausalLM": "date_lines", "MaskedLM": "date_lines", "Seq2SeqLM": "dates"}
# keys that say something of one kind alone
_KEYS_OF = {
    "data.unit": ("CausalLM", "MaskedLM"),
    "data.text_key": ("CausalLM", "MaskedLM"),
    "data.words_per_text": ("MaskedLM",),
    "data.packing": ("CausalLM",),
    "data.keys": ("Seq2SeqLM",),
    "data.header": ("Seq2SeqLM",),
    "training.length": ("CausalLM",),
    "training.batches_per_epoch": ("CausalLM",),
    "distillation.beams": ("Seq2SeqLM",),
    "model.decoder_layers": ("Seq2SeqLM",),
    "new_tokens": ("CausalLM",),
}


class Material(NamedTuple):
    """Batches for training and validation, and what examples are made of: texts, or pairs of the validation."""

    training: Any
    validation: Any
    examples: list[Any]


def as_config_of(kind: str, stored: Any, default: Any) -> Any:
    """Returns the config of a student's run as that of the recipe which trains its kind: data and length of rows.

    Args:
        kind: The task of the student.
        stored: The configuration of `recipes.distill`.
        default: The default configuration of the other recipe.
    """
    names = {field.name for field in dataclasses.fields(default.data)}
    data = {name: value for name, value in vars(stored.data).items() if name in names}
    data["train"] = stored.data.train or [GENERATED[kind]]
    training = {"length": stored.training.length} if kind == "CausalLM" else {}
    return dataclasses.replace(
        default,
        data=dataclasses.replace(default.data, **data),
        training=dataclasses.replace(default.training, **training),
    )


def require_keys_of(kind: str, changed: dict[str, tuple[Any, Any]]) -> None:
    """Raises a `ConfigError` for a key that does not apply to this kind of teacher.

    Args:
        kind: The task of the teacher.
        changed: Default and value of the keys that differ from their defaults.
    """
    for name, kinds in _KEYS_OF.items():
        if name in changed and kind not in kinds:
            default, value = changed[name]
            raise ConfigError(f"{name} must be {shown(default)} with a {kind}, got {shown(value)}")


def open_texts(data: Any, run: RunFolder) -> list[list[str]]:
    """Returns the training and validation documents.

    Args:
        data: The group `data` of `recipes.distill`.
        run: The run folder.
    """
    source = Source(PLAIN, lambda files, bad: read_plain(files, bad, unit=data.unit, key=data.text_key))
    return open_parts(data, source, account=run.data)


def longest_of(teacher: Any, student: Any) -> int:
    """Returns the largest number of tokens that both accept.

    Args:
        teacher, student: Tasks.
    """
    return min(task.backbone.config.max_length for task in (teacher, student))


def texts_material(
    config: Any, teacher: Any, student: Any, train: Sequence[str], validation: Sequence[str]
) -> Material:
    """Returns batches of texts of which tokens are hidden, and says how many texts are cut.

    Args:
        config: The configuration of `recipes.distill`.
        teacher, student: `MaskedLM`s.
        train, validation: Documents.
    """
    train, validation = (cut_texts(documents, config.data.words_per_text) for documents in (train, validation))
    preprocessor = student.preprocessor.replace(truncate=True, sequence_length=longest_of(teacher, student))
    options = {"batch_size": config.training.batch_size, "seed": config.training.seed}
    batches = batching.ExampleBatches(preprocessor, train, **options)
    held_out = batching.ExampleBatches(preprocessor, validation, shuffle=False, **options)
    print(f"training: {batches.number_of_rows} texts; validation: {held_out.number_of_rows}")
    for name, part in (("training", batches), ("validation", held_out)):
        print_cut(name, part.number_cut, part.number_of_rows, "texts", preprocessor)
    return Material(batches, held_out, validation)


def pairs_material(config: Any, run: RunFolder, teacher: Any, student: Any) -> Material:
    """Returns batches of sources with outputs of the teacher, and of the validation's own pairs.

    Args:
        config: The configuration of `recipes.distill`.
        run: The run folder, which keeps the outputs.
        teacher, student: `Seq2SeqLM`s.

    Raises:
        DataError: Anything wrong with the files.
        RunFolderError: If a run that goes on has outputs of something else.
    """
    data = config.data
    source = Source(PARALLEL, lambda files, bad: read_pairs(files, bad, keys=data.keys, header=data.header))
    train, validation = open_parts(data, source, account=run.data)
    dropped = BadLines("skip")
    train, validation = (_short_pairs(teacher, student, pairs, dropped) for pairs in (train, validation))
    beams = config.distillation.beams
    options = {"sampler": "greedy" if beams == 1 else {"name": "beam", "num_beams": beams}}
    outputs = teacher_outputs(
        run,
        teacher,
        [pair.source for pair in train],
        options=options,
        batch_size=config.training.batch_size,
    )
    learned = []
    for pair, output in zip(train, outputs, strict=True):
        if output.strip():
            learned.append(TextPair(pair.source, output, pair.origin))
        else:
            dropped.add("the teacher writes nothing", pair.origin)
    learned = _short_pairs(teacher, student, learned, dropped)
    sizes = {"batch_size": config.training.batch_size, "seed": config.training.seed}
    batches, held_out = (
        batching.ExampleBatches(
            student.preprocessor,
            [pair.source for pair in pairs],
            [pair.target for pair in pairs],
            shuffle=pairs is learned,
            **sizes,
        )
        for pairs in (learned, validation)
    )
    print(f"training: {batches.number_of_rows} pairs; validation: {held_out.number_of_rows}; {dropped.report()}")
    return Material(batches, held_out, validation)


def _short_pairs(teacher: Any, student: Any, pairs: Sequence[TextPair], dropped: BadLines) -> list[TextPair]:
    preprocessor = student.preprocessor.replace(sequence_length=None)
    examples = preprocessor.examples([pair.source for pair in pairs], [pair.target for pair in pairs])
    lengths = np.maximum(examples.lengths, np.asarray(preprocessor.token_counts(examples.targets)))
    return short_enough(pairs, lengths, longest_of(teacher, student), dropped, what="pair of texts")
