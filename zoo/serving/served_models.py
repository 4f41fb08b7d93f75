"""Models that are served: each in a process of its own, the newest version of it, swapped without a lost request."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from zoo.serving.model_folders import find_versions
from zoo.serving.worker_client import WorkerClient, WorkerError

LOADING, AVAILABLE, UNLOADING, FAILED = "LOADING", "AVAILABLE", "UNLOADING", "FAILED"
# seconds until a process that has ended is started again: doubled each time, up to the last
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
# names of models that an error tells
_MOST_NAMED = 20
# seconds between two looks whether a model that is being loaded can answer
_LOOK = 0.1
# what clients are told that ask too early
_WHEN = "; /ready says when this has been done."

_log = logging.getLogger(__name__)
_Found = TypeVar("_Found")


class NoSuchModelError(LookupError):
    """There is no model, or version of it, of that name."""


class NotReadyError(RuntimeError):
    """The model is there, but cannot answer now; `is_loading` says whether it will without a change of its files."""

    def __init__(self, message: str, is_loading: bool) -> None:
        super().__init__(message)
        self.is_loading = is_loading


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
    reason: str = ""
    worker: WorkerClient | None = None
    requests: int = 0
    restarts: int = 0
    idle: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    reviving: asyncio.Task[Any] | None = None

    def __post_init__(self) -> None:
        self.idle.set()


class ServedModels:
    """The models of a folder, looked at again and again, from the moment on that this is entered.

    Of each model the newest version is served. A newer one, or one that is written anew in its place, is loaded when
    its files have been the same on two looks, for a copy may be under way. It is warmed beside the old one, takes all
    new requests, and then the old one ends, when it has answered those that it has. A version that does not load
    leaves the old one in its place, and is tried again when its files change. Taking the newest folder away serves the
    one before it again; models stay as they are while the whole folder is empty or cannot be read, as where a volume
    is not mounted. A process that ends by itself is started anew.

    Args:
        folder: See `find_versions`. Or a function that gives it once it is there: until then models are being loaded.
        options: Options of the workers.
        interval: Seconds between two looks at the folder.
        drain: Seconds that all versions have for their last answers when the server ends.
        longest: Seconds that a version that is replaced has for its last answers: no request may take longer.
        patience: Seconds that requests wait for a model that is being loaded.

    Attributes:
        restarts: Number of processes that ended by themselves.
        trouble: The kind of error because of which the folder cannot be looked at; None if it can.

    Example:

    >>> async with ServedModels(Path("models"), {}) as models:
    ...     await models.loaded()
    ...     async with models.worker("dates") as worker:
    ...         await worker.call("serve", {"texts": ["1st of May 1999"]})
    """

    def __init__(
        self,
        folder: Path | Callable[[], Awaitable[Path]],
        options: dict[str, Any],
        interval: float = 2.0,
        drain: float = 30.0,
        longest: float = 90.0,
        patience: float = 30.0,
    ) -> None:
        self._folder, self._options, self._interval = folder, options, interval
        self._drain, self._longest, self._patience, self._ending = drain, longest, patience, asyncio.Event()
        self._current: dict[str, Version] = {}
        self._others: dict[str, list[Version]] = {}
        self._refused: dict[str, set[Any]] = {}
        self._seen: dict[tuple[str, int], Any] | None = None
        # names that the folder had when it was looked at; None before it was
        self._found: frozenset[str] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watching: asyncio.Task[Any] | None = None
        self._loaded = asyncio.Event()
        self.trouble: str | None = None
        self.restarts = 0

    async def __aenter__(self) -> ServedModels:
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    @property
    def names(self) -> list[str]:
        """Names of the models."""
        return sorted({*self._current, *self._others})

    @property
    def states(self) -> dict[str, str]:
        """Of each model "available", "loading", or why it cannot answer."""
        states = {}
        for name in self.names:
            by_state = {version.state: version for version in reversed(self.versions(name))}
            if AVAILABLE in by_state or LOADING in by_state:
                states[name] = (AVAILABLE if AVAILABLE in by_state else LOADING).lower()
            else:
                states[name] = next(iter(by_state.values())).reason or "It is being ended."
        return states

    @property
    def is_ready(self) -> bool:
        """Whether a model can answer."""
        return AVAILABLE.lower() in self.states.values()

    @property
    def is_loading(self) -> bool:
        """Whether a model is being loaded, or it is not known yet which there are."""
        return LOADING.lower() in self.states.values() or not (self._loaded.is_set() or self.trouble)

    async def loaded(self) -> None:
        """Waits until each model that was there at the beginning has been loaded, or has failed to."""
        await self._loaded.wait()

    def versions(self, name: str) -> list[Version]:
        """Returns the versions of a model that have a state, the served one first.

        Raises:
            NoSuchModelError: If there is no model of the name.
            NotReadyError: If it is not known yet which models there are, or the folder has it, and it comes next.
        """
        current = self._current.get(name)
        versions = [*([current] if current else []), *self._others.get(name, [])]
        if not versions and (self._found is None or name in self._found):
            self.require_known()
        if not versions:
            # a mistyped name is shown; what else stands there may be a text
            shown = f" {name!r}" if re.fullmatch(r"[\w.-]{1,80}", name, re.ASCII) else " of the name given"
            names = ", ".join(self.names[:_MOST_NAMED]) or "none"
            more = f", and {len(self.names) - _MOST_NAMED} more" if len(self.names) > _MOST_NAMED else ""
            raise NoSuchModelError(f"There is no model{shown}. Served are: {names}{more}.")
        return versions

    def require_known(self) -> None:
        """Checks that it is known which models there are.

        Raises:
            NotReadyError: If it is not.
        """
        if self._loaded.is_set():
            return
        if self.trouble:
            raise NotReadyError(f"The folder of models cannot be looked at: {self.trouble}.", is_loading=False)
        raise NotReadyError(f"The models are being loaded{_WHEN}", is_loading=True)

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
        is_loading = any(version.state in (LOADING, AVAILABLE) for version in wanted)
        why = "".join(f": {version.reason}" for version in wanted if version.reason and not is_loading)
        why = f" while it is being loaded{_WHEN}" if is_loading else why or " at the moment."
        raise NotReadyError(f"The model {name!r} cannot answer{why}", is_loading)

    @contextlib.asynccontextmanager
    async def worker(self, name: str, number: int | None = None) -> AsyncIterator[WorkerClient]:
        """Gives the worker of a model, which stays as long as it is used.

        Args:
            name, number: As for `version`.
        """
        async with self.version(name, number) as version:
            yield version.worker

    @contextlib.asynccontextmanager
    async def fitting(self, name: str | None, *kinds: Callable[[Any], bool]) -> AsyncIterator[tuple[str, WorkerClient]]:
        """Gives name and worker of a model of certain kinds, as for `worker`.

        Args:
            name: Its name; None for the only model of the first kind of which there is one.
            *kinds: Functions from what a worker says of its model to whether it is of a kind.

        Raises:
            NoSuchModelError: If there is no such model, or more than one.
            NotReadyError: If it cannot answer now.
        """
        name = await self._patiently(lambda: self._only(kinds)) if name is None else name
        async with self.worker(name) as worker:
            if not any(kind(worker.about) for kind in kinds):
                raise NoSuchModelError(f"The model {name!r} is none for this route.")
            yield name, worker

    def _only(self, kinds: Sequence[Callable[[Any], bool]]) -> str:
        self.require_known()  # another one may fit, too
        for kind in kinds:
            names = sorted(name for name, version in self._current.items() if kind(version.worker.about))
            if len(names) > 1:
                raise NoSuchModelError(f"model must be one of {', '.join(names)}.")
            if names:
                return names[0]
        raise NoSuchModelError("There is no model for this route.")

    async def _patiently(self, find: Callable[[], _Found]) -> _Found:
        """What is found, waiting for models that are being loaded."""
        ends = time.monotonic() + self._patience
        while True:
            try:
                return find()
            except NotReadyError as error:
                if not error.is_loading or time.monotonic() > ends:
                    raise
            await asyncio.sleep(_LOOK)

    @contextlib.asynccontextmanager
    async def version(self, name: str, number: int | None = None) -> AsyncIterator[Version]:
        """Gives the version of a model that answers, which stays as long as it is used; waits while it is loaded.

        Args:
            name, number: As for `served`.

        Raises:
            NoSuchModelError, NotReadyError: As for `served`.
        """
        version = await self._patiently(lambda: self.served(name, number))
        version.requests += 1
        version.idle.clear()
        try:
            yield version
        finally:
            version.requests -= 1
            if not version.requests:
                version.idle.set()

    async def look(self) -> None:
        """Looks at the folder, and brings what is served in line with it."""
        if not isinstance(self._folder, Path):
            self._folder = await self._folder()
        found = await asyncio.to_thread(find_versions, self._folder)
        if not found and self._current:
            raise FileNotFoundError("there are no models")
        self._found = frozenset(found)
        marks = await asyncio.to_thread(_marks, found)
        seen, self._seen = self._seen, marks
        for name in set(self._current) - set(found):
            self._retire(name, self._current.pop(name))
        for name, others in tuple(self._others.items()):
            others[:] = [each for each in others if each.state != FAILED or each.mark in marks.values()]
            if not others:
                del self._others[name]
        results = await asyncio.gather(
            *(self._follow(name, versions, marks, seen) for name, versions in found.items()), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _follow(
        self,
        name: str,
        versions: dict[int, Path],
        marks: dict[tuple[str, int], Any],
        seen: dict[tuple[str, int], Any] | None,
    ) -> None:
        """Loads the newest version of a model that can be loaded, unless it is served already."""
        refused = self._refused.setdefault(name, set())
        refused &= set(marks.values())
        current = self._current.get(name)
        for number in sorted(versions, reverse=True):
            mark = marks.get((name, number))
            is_settled = mark is not None and (seen is None or seen.get((name, number)) == mark)
            if current is not None and current.mark == mark:
                break
            if is_settled and mark not in refused:
                if await self._load(name, Version(number, versions[number], mark)):
                    break
                refused.add(mark)
            if current is not None and current.number == number:  # what is there now is no better: the old one stays
                break

    async def close(self) -> None:
        """Answers what was asked, and ends all processes."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        self._ending.set()
        for name in list(self._current):
            self._retire(name, self._current.pop(name))
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            kind = None
            try:
                await self.look()
                self._loaded.set()
            except Exception as error:  # such as a folder that is being written: it is looked at again
                kind = type(error).__name__
            if kind is not None and kind != self.trouble:  # logged once, not at each look
                _log.error("The models could not be looked at: %s", kind)
            self.trouble = kind
            await asyncio.sleep(self._interval)

    async def _load(self, name: str, version: Version) -> bool:
        """Loads a version and serves it; returns whether it could be loaded."""
        others = self._others.setdefault(name, [])
        others[:] = [other for other in others if (other.state, other.number) != (FAILED, version.number)]
        others.append(version)
        _log.info("Loading version %d of %s.", version.number, name)
        try:
            version.worker = await WorkerClient.start(version.folder, self._options)
        except WorkerError as error:
            version.state, version.reason = FAILED, str(error)
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
        version.reviving = self._begin(self._revive(name, version))
        if old is not None:
            self._retire(name, old)
        return True

    def _retire(self, name: str, version: Version) -> None:
        self._others.setdefault(name, []).append(version)
        version.state = UNLOADING
        version.reviving.cancel()
        self._begin(self._end(name, version))

    async def _end(self, name: str, version: Version) -> None:
        idle, ending = (asyncio.create_task(event.wait()) for event in (version.idle, self._ending))
        await asyncio.wait([idle, ending], timeout=self._longest, return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            await asyncio.wait([idle], timeout=self._drain)
        seconds = self._drain if idle.done() else 0
        for task in (idle, ending):
            task.cancel()
        await version.worker.close(seconds)
        self._others[name].remove(version)
        if not self._others[name]:
            del self._others[name]
        _log.info("Version %d of %s has ended.", version.number, name)

    async def _revive(self, name: str, version: Version) -> None:
        """Starts the process of a version again whenever it ends by itself."""
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            await version.worker.ended()
            version.state = LOADING
            version.restarts += 1
            self.restarts += 1
            _log.error("The process of version %d of %s has ended: it is started again.", version.number, name)
            pause = FIRST_PAUSE if time.monotonic() - began > LONGEST_PAUSE else min(2 * pause, LONGEST_PAUSE)
            while version.state == LOADING:
                try:
                    version.worker = await WorkerClient.start(version.folder, self._options)
                    version.state = AVAILABLE
                except (WorkerError, OSError):
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)

    def _begin(self, coroutine: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _marks(found: dict[str, dict[int, Path]]) -> dict[tuple[str, int], Any]:
    """What changes when files of an export change, by name and version; those that cannot be read have none."""
    marks = {}
    for name, versions in found.items():
        for number, folder in versions.items():
            with contextlib.suppress(OSError):
                marks[name, number] = _mark(folder)
    return marks


def _mark(folder: Path) -> Any:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    statuses = [(str(path.relative_to(folder)), path.stat()) for path in files]
    return str(folder.resolve()), *((name, s.st_size, s.st_mtime_ns, s.st_ino) for name, s in statuses)
