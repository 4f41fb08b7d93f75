"""Models that are served: each in a process of its own, the newest version of it, swapped without a lost request."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from recipes.serving.model_folders import find_versions
from recipes.serving.worker_client import WorkerClient, WorkerError

LOADING, AVAILABLE, UNLOADING, FAILED = "LOADING", "AVAILABLE", "UNLOADING", "FAILED"
# seconds until a process that has ended is started again: doubled each time, up to the last
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0

_log = logging.getLogger(__name__)


class NoSuchModelError(LookupError):
    """There is no model, or version of it, of that name."""


class NotReadyError(RuntimeError):
    """The model is there, but cannot answer now."""


@dataclasses.dataclass(eq=False)
class Version:
    """A version of a model.

    Args:
        number: Its number.
        folder: Its export.
        mark: What tells that the folder is still the same.
    """

    number: int
    folder: Path
    mark: Any
    state: str = LOADING
    worker: WorkerClient | None = None
    requests: int = 0
    restarts: int = 0
    idle: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.idle.set()


class ServedModels:
    """The models of a folder, looked at again and again.

    Of each model the newest version is served. A newer one is loaded and warmed beside it, takes all new requests, and
    then the old one ends, when it has answered those that it has. A version that does not load leaves the old one in
    its place. Taking the newest folder away serves the one before it again. A process that ends by itself is started
    anew.

    Args:
        folder: See `find_versions`.
        options: Options of the workers.
        interval: Seconds between two looks at the folder.
        drain: Seconds that a version that goes has for its last answers.

    Example:

    >>> async with ServedModels(Path("models"), {}) as models:
    ...     async with models.worker("dates") as worker:
    ...         await worker.call("serve", {"texts": ["1st of May 1999"]})
    """

    def __init__(self, folder: Path, options: dict[str, Any], interval: float = 2.0, drain: float = 30.0) -> None:
        self._folder, self._options, self._interval, self._drain = folder, options, interval, drain
        self._current: dict[str, Version] = {}
        self._others: dict[str, list[Version]] = {}
        self._refused: dict[str, set[Any]] = {}
        self._tasks: set[asyncio.Task] = set()
        self._watching: asyncio.Task | None = None
        self.restarts = 0

    async def __aenter__(self) -> ServedModels:
        await self.look()
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    @property
    def names(self) -> list[str]:
        """Names of the models."""
        return sorted({*self._current, *self._others})

    @property
    def is_ready(self) -> bool:
        """Whether there are models, and all of them can answer."""
        return bool(self._current) and all(version.state == AVAILABLE for version in self._current.values())

    def versions(self, name: str) -> list[Version]:
        """Returns the versions of a model that have a state, the served one first.

        Raises:
            NoSuchModelError: If there is no model of the name.
        """
        current = self._current.get(name)
        versions = [*([current] if current else []), *self._others.get(name, [])]
        if not versions:
            raise NoSuchModelError(f"There is no model {name!r}.")
        return versions

    def served(self, name: str, number: int | None = None) -> Version:
        """Returns the version that answers.

        Args:
            name: Name of the model.
            number: A certain version; None for the one that is served.

        Raises:
            NoSuchModelError: If there is none.
            NotReadyError: If it cannot answer now.
        """
        versions = self.versions(name)
        wanted = [version for version in versions if number in (None, version.number)]
        if not wanted:
            raise NoSuchModelError(f"There is no version {number} of the model {name!r}.")
        for version in wanted:
            if version.state == AVAILABLE and version.worker is not None and not version.worker.is_gone:
                return version
        raise NotReadyError(f"The model {name!r} cannot answer at the moment.")

    @contextlib.asynccontextmanager
    async def worker(self, name: str, number: int | None = None) -> AsyncIterator[WorkerClient]:
        """Gives the worker of a model, which stays as long as it is used.

        Args:
            name, number: As for `served`.
        """
        version = self.served(name, number)
        version.requests += 1
        version.idle.clear()
        try:
            yield version.worker
        finally:
            version.requests -= 1
            if not version.requests:
                version.idle.set()

    async def look(self) -> None:
        """Looks at the folder, and brings what is served in line with it."""
        found = await asyncio.to_thread(find_versions, self._folder)
        for name, versions in found.items():
            marks = {number: _mark(folder) for number, folder in versions.items()}
            refused = self._refused.setdefault(name, set())
            refused &= set(marks.values())
            for number in sorted(versions, reverse=True):
                current = self._current.get(name)
                if current is not None and current.mark == marks[number]:
                    break
                if marks[number] in refused:
                    continue
                if await self._load(name, Version(number, versions[number], marks[number])):
                    break
                refused.add(marks[number])
        for name in set(self._current) - set(found):
            self._retire(name, self._current.pop(name))

    async def close(self) -> None:
        """Answers what was asked, and ends all processes."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        for name in list(self._current):
            self._retire(name, self._current.pop(name))
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self.look()
            except Exception as error:  # such as a folder that is being written: it is looked at again
                _log.error("The models could not be looked at: %s", type(error).__name__)

    async def _load(self, name: str, version: Version) -> bool:
        """Loads a version and serves it; returns whether it could be loaded."""
        others = self._others.setdefault(name, [])
        others[:] = [other for other in others if other.state != FAILED]
        others.append(version)
        _log.info("Loading version %d of %s.", version.number, name)
        try:
            version.worker = await WorkerClient.start(version.folder, self._options)
        except WorkerError:
            version.state = FAILED
            _log.error("Version %d of %s could not be loaded.", version.number, name)
            return False
        except BaseException:
            others.remove(version)
            raise
        others.remove(version)
        version.state = AVAILABLE
        old = self._current.get(name)
        self._current[name] = version
        _log.info("Version %d of %s is served.", version.number, name)
        self._begin(self._revive(name, version))
        if old is not None:
            self._retire(name, old)
        return True

    def _retire(self, name: str, version: Version) -> None:
        self._others.setdefault(name, []).append(version)
        version.state = UNLOADING
        self._begin(self._end(name, version))

    async def _end(self, name: str, version: Version) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(version.idle.wait(), self._drain)
        if version.worker is not None:
            await version.worker.close(self._drain)
        self._others[name].remove(version)
        if not self._others[name]:
            del self._others[name]
        _log.info("Version %d of %s has ended.", version.number, name)

    async def _revive(self, name: str, version: Version) -> None:
        """Starts the process of a version again whenever it ends by itself."""
        pause = FIRST_PAUSE
        while version.state == AVAILABLE:
            began = time.monotonic()
            await version.worker.ended()
            if version.state != AVAILABLE:
                return
            version.state = LOADING
            version.restarts += 1
            self.restarts += 1
            _log.error("The process of version %d of %s has ended: it is started again.", version.number, name)
            pause = FIRST_PAUSE if time.monotonic() - began > LONGEST_PAUSE else min(2 * pause, LONGEST_PAUSE)
            while version.state == LOADING:
                try:
                    worker = await WorkerClient.start(version.folder, self._options)
                except WorkerError:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
                    continue
                if version.state == LOADING:
                    version.worker, version.state = worker, AVAILABLE
                else:  # another version has taken its place in the meantime
                    await worker.close()

    def _begin(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _mark(folder: Path) -> Any:
    """What changes when another export is put in the place of one."""
    status = (folder / "saved_model.pb").stat()
    return str(folder.resolve()), status.st_mtime_ns, status.st_ino
