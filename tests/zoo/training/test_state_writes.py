"""A training state that is being written when its process is killed, at each point of the writing."""

import os
import signal
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from zoo.training.state_folder import StateFolder, saved_position

# what touches files; `replace`, `remove` and `write` are also methods of strings and lists
CALLS = {"open", "write", "flush", "fsync", "close", "mkdir", "replace", "rename", "unlink", "rmdir", "listdir"}
OWNERS = {"posix", "io", "_io"}


def write(folder, number, keep):
    tensors = {"weights/a": np.full((3, 4), number, "float32"), "step": np.array(number)}
    values = {"callbacks": [], "number_of_batches": 9, "finished": False, "number": number}
    StateFolder(folder, keep).write(0, number, tensors, values)


def is_of_files(function):
    owner = getattr(function, "__self__", None)
    return function.__name__ in CALLS and (getattr(owner, "__name__", None) or type(owner).__module__) in OWNERS


def write_and_die(folder, point, keep):
    """Writes the second state in a process that kills itself before its call with this number; returns how it ended."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = point

    def count(frame, event, function):
        nonlocal left
        if event == "c_call" and is_of_files(function):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    try:
        sys.setprofile(count)
        write(folder, 2, keep)
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("keep", [1, 2])
def test_a_kill_at_each_point_of_the_writing(tmp_path, keep):
    """What is found is one whole state: the one before, or the new one once it has its name."""
    found = []
    while True:
        folder = tmp_path / str(len(found))
        write(folder, 1, keep)
        ended = write_and_die(folder, len(found), keep)
        number = saved_position(folder)[1]
        # what a resume does first
        state = StateFolder(folder, keep).latest()
        assert state.values["number"] == number
        tensors = load_file(state.tensors)
        assert set(tensors) == {"weights/a", "step"}
        assert int(tensors["step"]) == number and (tensors["weights/a"] == number).all()
        assert all(path.name.startswith("epoch-00000-batch-0000000") for path in folder.iterdir())
        # and then the training goes on
        write(folder, 3, keep)
        assert saved_position(folder) == (0, 3)
        assert len(list(folder.iterdir())) == min(keep, 3 if number == 2 else 2)
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
        found.append(number)
    assert found == sorted(found) and set(found) == {1, 2} and number == 2
    assert len(found) > 20, len(found)
