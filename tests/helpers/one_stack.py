"""Graphs of tests have one stack trace for all operations."""

import sys


def keep_one_stack():
    """Gives all operations that are made from now on the same stack trace, if TensorFlow is imported.

    TensorFlow keeps for each operation where in a program it was made. Walking up the deep stacks of tests is a fifth
    of the time in which a graph is made.
    """
    if "tensorflow" in sys.modules:
        from tensorflow.python.util import tf_stack

        stack = tf_stack.extract_stack()
        tf_stack.extract_stack = lambda stacklevel=1: stack
