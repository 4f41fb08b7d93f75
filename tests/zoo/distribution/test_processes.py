"""Two processes train as one does, and say when they have lost another."""

import os
import signal
import subprocess
import sys

import pytest
from distributed_runs import ROOT, assert_same, fit, free_port, needs_jax, together

from zoo.distribution import is_lost_process

pytestmark = needs_jax


@pytest.mark.sampled(1)
@pytest.mark.parametrize("distribution", ["data", "model"])
@pytest.mark.parametrize(
    "shape",
    [
        "decoder",
        pytest.param("encoder", marks=pytest.mark.slow),
        pytest.param("encoder_decoder", marks=pytest.mark.slow),
    ],
)
def test_same_as_one_process(tmp_path, shape, distribution):
    one, _ = fit(tmp_path, "one", {"shape": shape}, KERAS_BACKEND="jax")
    two, _ = together(tmp_path, "two", {"shape": shape, "distribution": distribution})
    assert_same(two, one)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("distribution", ["data", "model", "fsdp"])
def test_early_stopping_puts_back_weights_that_no_process_holds_whole(tmp_path, distribution):
    one, _ = fit(tmp_path, "one", {"shape": "decoder", "epochs": 1}, KERAS_BACKEND="jax")
    options = {"shape": "decoder", "distribution": distribution, "returns_to_first": True}
    two, _ = together(tmp_path, "two", options)
    # the second epoch has changed them in between
    assert len(two["history/loss"]) == 2 and len(one["history/loss"]) == 1
    assert_same(two, one, names=("weights/", "scores/"))


def test_errors_of_others_and_of_this_process(monkeypatch):
    import jax

    gone = jax.errors.JaxRuntimeError("UNKNOWN: Gloo all-reduce failed: Connection closed by peer")
    assert not is_lost_process(gone)
    monkeypatch.setattr("zoo.distribution.processes.num_processes", lambda: 2)
    assert is_lost_process(gone)
    assert not is_lost_process(jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes"))
    assert not is_lost_process(ValueError("labels"))
    # what two processes have seen, one of which was killed when states were looked for
    peer = "[external/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:48287"
    assert is_lost_process(ValueError(f"UNKNOWN: Gloo AllGather failed: {peer}"))


CONNECTED = """
import os, sys
from zoo.distribution import initialize
initialize()
print("connected", flush=True)
if sys.stdin.readline() == "abort\\n":
    os.abort()
"""


def test_the_first_process_is_killed(tmp_path):
    """JAX aborts the others from C++, also those that compute nothing; what aborts by itself is left alone."""
    port, processes = free_port(), []
    for number in range(3):
        variables = {"KERAS_BACKEND": "jax", "PYTHONPATH": str(ROOT), "KERAS_DISTRIBUTION_NUM_PROCESSES": "3"}
        variables |= {"KERAS_DISTRIBUTION_JOB_ADDRESSES": f"127.0.0.1:{port}", "PYTHONFAULTHANDLER": "1"}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", CONNECTED],
                env={
                    **os.environ,
                    **variables,
                    "KERAS_DISTRIBUTION_PROCESS_ID": str(number),
                    "PYTHONFAULTHANDLER": "1",
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        for process in processes:
            # Gloo speaks before
            assert "connected\n" in iter(process.stdout.readline, ""), process.stderr.read()
        first, second, third = processes
        _, errors = third.communicate("abort\n", timeout=60)
        assert third.returncode == -signal.SIGABRT and "lost" not in errors
        assert 'File "<string>"' in errors  # where it was, as Python's own handler says it
        assert second.poll() is None
        first.kill()
        errors = second.stderr.read()
        assert second.wait(60) == 2
        message = errors.splitlines()[-1]
        assert message.startswith("error: process 1 of 3 lost process 0, which")
        assert f" at 127.0.0.1:{port}; " in message and "resume from the last saved state" in message
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["encoder", "encoder_decoder"])
def test_same_as_one_process_with_a_mesh_of_both(tmp_path, shape):
    one, _ = fit(tmp_path, "one", {"shape": shape}, KERAS_BACKEND="jax")
    options = {"shape": shape, "distribution": {"data": 2, "model": 2}}
    two, _ = together(tmp_path, "two", options, JAX_NUM_CPU_DEVICES="2")
    assert_same(two, one)
