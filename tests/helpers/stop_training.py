"""A callback that ends the process in the middle of an epoch, as a crash does."""

import os

import keras


class StopAt(keras.callbacks.Callback):
    """Ends the process after so many batches; not where the variable STOPPED says that it did so before.

    Args:
        batch: After how many batches of all epochs.
    """

    def __init__(self, batch):
        super().__init__()
        self.left = batch

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0 and "STOPPED" not in os.environ:
            os._exit(9)
