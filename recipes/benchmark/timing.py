"""Timing several functions fairly on a noisy machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def time_in_turn(
    functions: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    calls: int,
    warm_up: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Times functions in turn, so that a slow spell of the machine meets all of them.

    Args:
        functions: By name; each must return only when its work is done.
        rounds: How often each has its turn.
        calls: Calls per turn.
        warm_up: Calls of each before the first round, for compilation and caches.
        clock: What tells the time: `time.process_time` counts that of all processors, and none of other processes.

    Returns:
        For each name the mean seconds per call of each round.

    Example:

    >>> times = time_in_turn({"a": work_a, "b": work_b}, rounds=5, calls=3)
    >>> statistics.median(times["a"]) / statistics.median(times["b"])
    """
    for function in functions.values():
        for _ in range(warm_up):
            function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            started = clock()
            for _ in range(calls):
                function()
            times[name].append((clock() - started) / calls)
    return times


def calls_per_turn(function: Callable[[], object], *, seconds: float = 0.2, most: int = 20, warm_up: int = 1) -> int:
    """Returns how many calls make a turn long enough to be timed.

    Args:
        function: The function. It is called `warm_up` times, and once more to time it.
        seconds: How long a turn should take at least.
        most: Most calls.
        warm_up: Number of calls before the timed one.
    """
    for _ in range(warm_up):
        function()
    started = time.perf_counter()
    function()
    return min(most, 1 + int(seconds / max(time.perf_counter() - started, 1e-6)))


def median_ratio(times: Mapping[str, list[float]], name: str, baseline: str) -> float:
    """Returns the median over rounds of the time of `name` divided by that of `baseline` in the same round.

    Args:
        times: What `time_in_turn` returned.
        name: Numerator.
        baseline: Denominator.
    """
    return statistics.median(a / b for a, b in zip(times[name], times[baseline], strict=True))


def first_and_median(function: Callable[[], object], calls: int) -> tuple[float, float]:
    """Returns the seconds of the first call, which traces and compiles, and the median of those that follow.

    Args:
        function: The function; it must return only when its work is done.
        calls: Number of calls after the first.
    """
    seconds = []
    for _ in range(1 + calls):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return seconds[0], statistics.median(seconds[1:])
