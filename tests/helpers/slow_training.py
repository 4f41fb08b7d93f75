"""A callback that leaves time to kill a process between two batches."""

import time

import keras


class Slow(keras.callbacks.Callback):
    """Waits after each batch.

    Args:
        seconds: How long.
    """

    def __init__(self, seconds=0.3):
        super().__init__()
        self.seconds = seconds

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(self.seconds)
