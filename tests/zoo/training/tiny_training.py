"""A tiny training run that can be resumed, for the tests of it: imported by them, and run as a program to be killed.

    python tiny_training.py FOLDER --kill_in_save N

The process kills itself with SIGKILL halfway through its N-th save.
"""

import argparse
import os
import signal
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from zoo.training import state_folder
from zoo.training.losses import TokenCrossEntropy
from zoo.training.metrics import TokenAccuracy, TokenCount, TokenNegativeLogLikelihood
from zoo.training.schedules import InverseSquareRoot
from zoo.training.state import TrainingState

VOCABULARY_SIZE = 9
EPOCHS = 3


class TinyData:
    """Seven batches of sequences of different lengths, another order in each epoch."""

    def __init__(self, number_of_batches=7):
        self.number_of_batches = number_of_batches
        self.started = []
        self._position = (0, 0)
        tokens, weights = tf.TensorSpec((None, None), tf.int32), tf.TensorSpec((None, None), tf.float32)
        self.dataset = tf.data.Dataset.from_generator(self._batches, output_signature=(tokens, tokens, weights))
        self.dataset.cardinality = lambda: tf.constant(number_of_batches, tf.int64)

    def _batches(self):
        epoch, skip_batches = self._position
        for index in range(skip_batches, self.number_of_batches):
            generator = np.random.default_rng((epoch, index))
            length = generator.integers(3, 8)
            tokens = generator.integers(0, VOCABULARY_SIZE, (4, length), "int32")
            weights = (np.arange(length) < generator.integers(1, length + 1, (4, 1))).astype("float32")
            yield tokens, (tokens + 1) % VOCABULARY_SIZE, weights

    def start_epoch(self, epoch, skip_batches=0):
        self.started.append((epoch, skip_batches))
        self._position = (epoch, skip_batches)


def tiny_model(width=6, seed=1, steps_per_execution=1):
    """A new model, compiled; to trace its step takes longer than all steps of a run."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(VOCABULARY_SIZE, width),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(VOCABULARY_SIZE),
        ]
    )
    model.compile(
        keras.optimizers.Adam(InverseSquareRoot(0.03, 6), gradient_accumulation_steps=2, global_clipnorm=1.0),
        TokenCrossEntropy(0.1),
        weighted_metrics=[TokenNegativeLogLikelihood(), TokenAccuracy(), TokenCount()],
        steps_per_execution=steps_per_execution,
    )
    return model


_models = {}


def reset_model(**options):
    """The model of earlier runs with these options, whose step is traced, with all its variables as they were."""
    key = (keras.config.dtype_policy().name, *sorted(options.items()))
    if key not in _models:
        model = tiny_model(**options)
        model.optimizer.build(model.trainable_variables)
        _models[key] = model, [(variable, np.array(variable)) for variable in state_of(model)]
    model, initial = _models[key]
    for variable, value in initial:
        variable.assign(value)
    return model


def state_of(model):
    return [*model.variables, *model.optimizer.variables]


def train(folder, callbacks_before=(), callbacks_after=(), patience=2, **options):
    """Starts or resumes the run in a folder. Returns everything by which two runs can be compared."""
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    model_options = {key: options.pop(key) for key in ("width", "steps_per_execution") if key in options}
    make_model = tiny_model if options.pop("fresh", False) else reset_model
    model, data = make_model(**model_options), options.pop("data", None) or TinyData()
    callbacks = [
        keras.callbacks.EarlyStopping("val_loss", patience=patience, restore_best_weights=True),
        keras.callbacks.CSVLogger(folder / "metrics.csv", append=True),
    ]
    options = {"save_every": 2, "monitor": "val_loss", **options}
    state = TrainingState(folder / "checkpoints", data, callbacks, **options)
    validation = TinyData(3)
    history = model.fit(
        data.dataset,
        validation_data=validation.dataset,
        epochs=EPOCHS,
        initial_epoch=state.initial_epoch,
        callbacks=[*callbacks_before, *callbacks, *callbacks_after, state],
        shuffle=False,
        verbose=0,
    )
    return {
        "history": {name: [value.hex() for value in values] for name, values in history.history.items()},
        "weights": [weights.tobytes().hex() for weights in model.get_weights()],
        "csv": (folder / "metrics.csv").read_text(),
        "started": data.started,
    }


def kill_in_save(number):
    """Makes the process kill itself when half of the tensors of the save with this number are written."""
    write_bytes = state_folder.write_bytes
    saves = []

    def write_and_die(path, blocks):
        saves.append(path)
        if len(saves) == number:
            path.write_bytes(b"".join(blocks)[:10])
            os.kill(os.getpid(), signal.SIGKILL)
        write_bytes(path, blocks)

    state_folder.write_bytes = write_and_die


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kill_in_save", type=int, required=True)
    arguments = parser.parse_args()
    kill_in_save(arguments.kill_in_save)
    train(arguments.folder)
