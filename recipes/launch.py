"""Starts several processes on this machine that train one model, on JAX.

    python -m recipes.launch --processes 2 recipes.language_model --training.distribution data --config ...

Each process gets its share of the cores, or one GPU. What the first one says is shown; the others are heard when they
fail. When one ends with an error all are stopped, and the same command resumes from the last saved state. On several
machines the scheduler starts the processes, see docs/guides/scale.md.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from recipes.command.lists import recipes
from recipes.command.printing import lasting_output
from recipes.common.config import PROGRAM
from recipes.common.processes import THREAD_VARIABLES, terminated_as_interrupted, threads_each
from zoo.extras import MissingExtraError, require_extra

# seconds between two looks at the processes, and that they have for ending by themselves when one of them has failed
_BETWEEN, _GRACE = 0.2, 30
_RANKS = {-signal.SIGABRT: 2}


@lasting_output()
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a recipe in several processes.

    Args:
        arguments: Words of the command line; None means those of this process.

    Returns:
        0, or the exit status of the process that failed first; of one that a signal ended 128 and its number.
    """
    program = PROGRAM.get().format("launch")
    speaker = program.removeprefix("python -m ")
    parser = argparse.ArgumentParser(prog=program, description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--processes", type=int, required=True, help="Number of processes, at least 2.")
    recipe = parser.add_argument("recipe", help="The recipe, such as recipes.language_model.")
    recipe.completer = lambda **context: [f"recipes.{name}" for name in recipes()]
    rest = parser.add_argument("arguments", nargs=argparse.REMAINDER, help="Its arguments.")
    rest.completer = lambda **context: []
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)
    words = sys.argv[1:] if arguments is None else list(arguments)
    given = parser.parse_args(words)
    if given.processes < 2:
        parser.error(f"--processes must be at least 2, got {given.processes}")
    backend = os.environ.get("KERAS_BACKEND", "jax")
    if backend != "jax":
        parser.error(f"KERAS_BACKEND must be jax, got {backend!r}: on TensorFlow one process trains on all devices")
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if visible and len(visible) < given.processes:
        parser.error(f"CUDA_VISIBLE_DEVICES must name a GPU for each of {given.processes} processes, got {visible}")
    try:
        require_extra("jax", "Training in several processes")
    except MissingExtraError as error:
        parser.error(str(error))
    again = f"{program} {shlex.join(words)}"
    goes_on = f"the same command resumes from the last saved state: {again}"
    processes = _start([sys.executable, "-m", given.recipe, *given.arguments], given.processes)
    try:
        with terminated_as_interrupted():
            failed = _wait(processes)
    except KeyboardInterrupt:
        for process in processes:
            process.send_signal(signal.SIGINT)
        _stop(processes)
        print(f"\n{speaker}: interrupted; {goes_on}", file=sys.stderr)
        raise
    finally:
        _stop(processes)
    if failed is None:
        return 0
    status = processes[failed].returncode
    ended = f"signal {-status} ({signal.Signals(-status).name})" if status < 0 else f"status {status}"
    print(
        f"{speaker}: error: process {failed} of {len(processes)} ended with {ended}, and the others were stopped; "
        f"{goes_on}",
        file=sys.stderr,
    )
    return 128 - status if status < 0 else status


def _start(command: Sequence[str], count: int) -> list[subprocess.Popen]:
    threads = dict.fromkeys(THREAD_VARIABLES, str(threads_each(count)))
    environment = {
        **threads,
        **os.environ,
        "KERAS_BACKEND": "jax",
        "PYTHONUNBUFFERED": "1",
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": f"127.0.0.1:{_free_port()}",
        "KERAS_DISTRIBUTION_NUM_PROCESSES": str(count),
    }
    return [
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env={**environment, "KERAS_DISTRIBUTION_PROCESS_ID": str(index), **_device(index)},
            start_new_session=True,  # Ctrl-C comes here alone
        )
        for index in range(count)
    ]


def _device(index: int) -> dict[str, str]:
    """What gives a process a GPU of its own; a machine without GPUs ignores it, as does one that is to show none."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = None if given is None else [name for name in given.split(",") if name]
    if visible == []:
        return {}
    return {"CUDA_VISIBLE_DEVICES": str(index) if visible is None else visible[index]}


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _wait(processes: Sequence[subprocess.Popen]) -> int | None:
    """The number of the process that failed first; None when all have ended well."""
    while True:
        statuses = [process.poll() for process in processes]
        failed = [index for index, status in enumerate(statuses) if status]
        if failed:
            # one that a signal ended is the cause, and others that fail at the same time the consequence, as are those
            # that JAX aborts
            return min(failed, key=lambda index: (_RANKS.get(statuses[index], int(statuses[index] > 0)), index))
        if None not in statuses:
            return None
        time.sleep(_BETWEEN)


def _stop(processes: Sequence[subprocess.Popen]) -> None:
    """Lets processes end by themselves, as those do that have lost another, and then ends them."""
    deadline = time.monotonic() + _GRACE
    while time.monotonic() < deadline and any(process.poll() is None for process in processes):
        time.sleep(_BETWEEN)
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
