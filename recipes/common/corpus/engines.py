"""The same work in one process, in several, or on a Ray cluster."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

import tqdm

from recipes.common.errors import DataError, RecipeError
from recipes.common.processes import THREAD_VARIABLES, terminated_as_interrupted
from zoo.extras import import_extra

_SECONDS_BETWEEN_LOOKS = 1.0


def run_all(function: Callable[[Any], Any], tasks: Sequence[Any], engine: str, processes: int, label: str) -> list[Any]:
    """Calls a function for each task, with a progress bar; returns the results in the order of the tasks.

    Args:
        function: A function of a module, whose result depends on its task alone and can be written as JSON.
        tasks: Its arguments.
        engine: "local" for processes of this machine, "ray" for a Ray cluster, on which all see the same files.
        processes: Number of processes of this machine; with 1, this one does it.
        label: What the progress bar says.

    Raises:
        RecipeError: If a process was killed, and what the function raises of them.
    """
    results: dict[int, Any] = {}
    if engine == "ray":
        calls = _on_ray(function, tasks)
    elif min(processes, len(tasks)) <= 1:
        calls = ((number, function(task)) for number, task in enumerate(tasks))
    else:
        calls = _in_processes(function, tasks, min(processes, len(tasks)))
    with terminated_as_interrupted(), tqdm.tqdm(total=len(tasks), desc=label, disable=None if tasks else True) as bar:
        for number, result in calls:
            results[number] = result
            bar.update()
    return [results[number] for number in range(len(tasks))]


def _in_processes(function: Callable[[Any], Any], tasks: Sequence[Any], processes: int) -> Iterator[tuple[int, Any]]:
    # new processes, not forks: TensorFlow has threads; one thread each
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    executor = ProcessPoolExecutor(processes, get_context("spawn"), _end_with_parent, (os.getpid(),))
    try:
        futures = {executor.submit(function, task): number for number, task in enumerate(tasks)}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool as error:
        raise RecipeError(
            "a process was killed, perhaps for lack of memory: fewer processes, or smaller parts"
        ) from error
    except BaseException:
        for process in list(executor._processes.values()):
            process.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _end_with_parent(parent: int) -> None:
    """Ends this process soon after the one that started it, which may have been killed."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()


def _on_ray(function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    ray = import_extra("ray", "ray")
    data = import_extra("ray.data", "ray")
    if not tasks:
        return
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level="ERROR")
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    # it tells of its plans, and that it has no bars, between the lines of this one
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    calls = data.from_items([{"number": number} for number in range(len(tasks))], override_num_blocks=len(tasks))

    def call(row: dict[str, Any]) -> dict[str, Any]:
        # as text, or the columns of a table would have to be the same for all
        try:
            return {"number": row["number"], "result": json.dumps(function(tasks[row["number"]])), "error": ""}
        except (RecipeError, OSError) as error:
            # raised here, it would come as an error of Ray, with the traceback of a worker
            return {"number": row["number"], "result": "null", "error": str(error)}

    for row in calls.map(call).iter_rows():
        if row["error"]:
            raise DataError(row["error"])
        yield int(row["number"]), json.loads(row["result"])
