"""Processes that tests of training on several devices start, and comparisons of what they write."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = "recipes.benchmark.distributed_fit"
SECONDS = 300

needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")


def start(out, options, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KERAS_")}
    environment |= {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, "-m", PROGRAM, str(out), json.dumps(options)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def finish(process):
    try:
        output, errors = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 0, errors[-4000:]
    return json.loads(output.splitlines()[-1])


def fit(folder, name, options, **variables):
    """The arrays that a run in a process of its own writes, and the layouts of weights that it prints."""
    out = folder / f"{name}.npz"
    printed = finish(start(out, options, **variables))
    return dict(np.load(out)), printed


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def together(folder, name, options, count=2, **variables):
    """The same of several processes that train together; the first one writes."""
    variables |= {
        "KERAS_BACKEND": "jax",
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": f"127.0.0.1:{free_port()}",
        "KERAS_DISTRIBUTION_NUM_PROCESSES": str(count),
    }
    out = folder / f"{name}.npz"
    processes = [start(out, options, KERAS_DISTRIBUTION_PROCESS_ID=str(index), **variables) for index in range(count)]
    printed = [finish(process) for process in processes]
    return dict(np.load(out)), printed[0]


def assert_same(found, expected, names=("weights/", "history/", "scores/"), tolerance=2e-5):
    """Weights after the updates, and metrics of epochs, are equal up to rounding.

    `loss` in the history is left out: Keras weights it by rows, and the last batch has rows that fill it up. So are
    biases of keys: without positions, softmax does not see them, and Adam makes steps of what rounding leaves of their
    gradients.
    """
    assert set(found) == set(expected)
    compared = [name for name in expected if name.startswith(names) and name != "history/loss"]
    compared = [name for name in compared if not name.endswith("attention/key/bias")]
    assert compared
    for name in compared:
        np.testing.assert_allclose(found[name], expected[name], atol=tolerance, rtol=1e-4, err_msg=name)
