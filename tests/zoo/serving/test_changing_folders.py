"""Folders that are half written, empty for a while, or cannot be read; processes are stood in for."""

import asyncio
import logging
import time
from pathlib import Path

import pytest

pytest.importorskip("msgpack", reason="the extra serve is not installed")

from zoo.serving import served_models  # noqa: E402
from zoo.serving.served_models import AVAILABLE, NoSuchModelError, NotReadyError, ServedModels  # noqa: E402
from zoo.serving.worker_client import WorkerError  # noqa: E402


class Process:
    """A process of a model that loads what has a file `whole`, and says what it holds."""

    refusals = 0

    def __init__(self, folder):
        self.folder, self.is_gone, self.about = folder, False, (folder / "whole").read_text()
        self.over = asyncio.Event()

    @classmethod
    async def start(cls, folder, options):
        await asyncio.sleep(0.01)
        if cls.refusals:
            cls.refusals -= 1
            raise OSError("Cannot allocate memory")
        if not (folder / "whole").is_file() or (folder / "whole").read_text() == "broken":
            raise WorkerError("failed", "The model could not be loaded.")
        return cls(folder)

    async def ended(self):
        await self.over.wait()
        self.is_gone = True

    async def close(self, seconds):
        self.over.set()

    async def state(self, seconds):
        return {"waiting": 0, "batches": {}}


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.setattr(served_models, "WorkerClient", Process)
    monkeypatch.setattr(served_models, "FIRST_PAUSE", 0.01)
    write(tmp_path / "dates" / "1", "one")
    return ServedModels(tmp_path, {}, interval=0.03, drain=1)


def write(folder, content, *, whole=True):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "saved_model.pb").write_bytes(b"")
    if whole:
        (folder / "whole").write_text(content)


async def until(condition):
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("That did not happen in time.")


def run(models, check):
    async def within():
        async with models:
            await models.loaded()
            await check()

    asyncio.run(within())


def says(models, name="dates"):
    return models.served(name).worker.about


async def said(models, name="dates", *kinds):
    async with models.fitting(name, *(kinds or [bool])) as (_, worker):
        return worker.about


def test_what_is_asked_while_the_models_are_loaded(models, tmp_path):
    async def check():
        start, may_go = Process.start.__func__, asyncio.Event()

        async def slow(folder, options):
            await may_go.wait()
            return await start(Process, folder, options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Process, "start", slow)
            write(tmp_path / "titles" / "1", "broken")
            async with models:
                for name in ("dates", "titles", "other"):  # at once, when nothing is known
                    with pytest.raises(NotReadyError, match="are being loaded"):
                        models.served(name)
                await until(lambda: models.names == ["dates", "titles"])
                with pytest.raises(NotReadyError, match="'dates' cannot answer while it is being loaded; /ready says"):
                    models.served("dates")
                assert not models.is_ready and models.states == {"dates": "loading", "titles": "loading"}
                with pytest.raises(NoSuchModelError, match="no model 'other'. Served are: dates, titles"):
                    await asyncio.wait_for(said(models, "other"), 5)  # at once, and not when the others are there
                models._patience = 0.1
                began = time.monotonic()
                with pytest.raises(NotReadyError, match="'dates' cannot answer while it is being loaded; /ready says"):
                    await said(models)
                assert 0.1 <= time.monotonic() - began < 5
                models._patience = 30
                waiting = [asyncio.create_task(said(models)), asyncio.create_task(said(models, None, str.isalpha))]
                await asyncio.sleep(0.05)
                assert not any(task.done() for task in waiting)
                may_go.set()
                assert await asyncio.gather(*waiting) == ["one", "one"]
                await models.loaded()
                assert says(models) == "one" and models.is_ready and not models.is_loading
                assert models.states == {"dates": "available", "titles": "The model could not be loaded."}
                with pytest.raises(NotReadyError, match="'titles' cannot answer: The model could not be loaded."):
                    await said(models, "titles")  # at once
                with pytest.raises(NoSuchModelError, match="no model 'other'"):
                    await said(models, "other")
                write(tmp_path / "words" / "1", "two")
                await until(lambda: models.states.get("words") == "available")
                for name, kind, reason in (
                    (None, str.isalpha, "must be one of dates, words"),
                    (None, str.isdigit, "no model for this route"),
                    ("dates", str.isdigit, "'dates' is none for this route"),
                ):
                    with pytest.raises(NoSuchModelError, match=reason):
                        await said(models, name, kind)
                assert await said(models, None, str.isdigit, lambda about: about == "two") == "two"

    asyncio.run(check())


def test_the_end_comes_while_the_models_are_loaded(models, monkeypatch):
    async def never(folder, options):
        await asyncio.sleep(3600)

    async def check():
        async with models:
            await until(lambda: models.names == ["dates"])

    monkeypatch.setattr(Process, "start", never)
    asyncio.run(asyncio.wait_for(check(), 100))


def test_a_copy_under_way_is_waited_for(models, tmp_path):
    async def check():
        write(tmp_path / "dates" / "2", "", whole=False)
        await asyncio.sleep(0.3)  # a copy that takes longer than some looks
        assert says(models) == "one"
        write(tmp_path / "dates" / "2", "two")
        await until(lambda: says(models) == "two")
        assert [version.state for version in models.versions("dates")][0] == "AVAILABLE"

    run(models, check)


def test_an_export_that_is_written_anew_in_its_place(models, tmp_path):
    async def check():
        write(tmp_path / "dates" / "2", "two")
        await until(lambda: says(models) == "two")
        write(tmp_path / "dates" / "2", "broken")
        await until(lambda: any(version.state == "FAILED" for version in models.versions("dates")))
        await asyncio.sleep(0.2)
        assert says(models) == "two"  # not the version before it
        write(tmp_path / "dates" / "2", "two again")
        await until(lambda: says(models) == "two again")

    run(models, check)


def test_a_folder_that_is_empty_for_a_while_takes_nothing_away(models, tmp_path, caplog):
    async def check():
        away = tmp_path.parent / f"{tmp_path.name}_away"
        tmp_path.rename(away)
        await asyncio.sleep(0.15)
        assert says(models) == "one"
        tmp_path.mkdir()  # as the place of a volume that is not mounted
        await asyncio.sleep(0.15)
        assert says(models) == "one"
        tmp_path.rmdir()
        tmp_path.write_text("a file")
        await asyncio.sleep(0.15)
        assert says(models) == "one"
        tmp_path.unlink()
        away.rename(tmp_path)
        write(tmp_path / "dates" / "2", "two")
        await until(lambda: says(models) == "two")

    caplog.set_level(logging.INFO)
    run(models, check)
    assert str(tmp_path) not in caplog.text


def test_a_folder_that_cannot_be_read_holds_up_no_other(models, tmp_path, monkeypatch):
    iterdir = Path.iterdir

    def refuses(path):
        if path.name == "titles":
            raise PermissionError(path)
        return iterdir(path)

    async def check():
        write(tmp_path / "titles" / "1", "titles")
        await until(lambda: "titles" in models.names and models.is_ready)
        monkeypatch.setattr(Path, "iterdir", refuses)
        write(tmp_path / "dates" / "2", "two")
        await until(lambda: says(models) == "two")
        assert says(models, "titles") == "titles"

    run(models, check)


def test_a_version_that_is_replaced_answers_what_it_was_asked(models, tmp_path):
    """However long that takes within the limits; only at the end of the server there is less time."""
    models = ServedModels(tmp_path, {}, interval=0.03, drain=0.1, longest=60)

    async def check():
        async with models.worker("dates") as old:
            write(tmp_path / "dates" / "2", "two")
            await until(lambda: says(models) == "two")
            await asyncio.sleep(0.4)
            assert not old.over.is_set()
        await until(old.over.is_set)
        request = models.worker("dates")  # one that is never answered
        newer = await request.__aenter__()
        write(tmp_path / "dates" / "3", "three")
        await until(lambda: says(models) == "three")
        await asyncio.sleep(0.4)
        assert not newer.over.is_set()
        return request

    async def within():
        async with models:
            await models.loaded()
            await check()
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 5

    asyncio.run(within())


def test_a_model_that_has_gone_is_not_counted(models, tmp_path):
    pytest.importorskip("prometheus_client", reason="the extra serve is not installed")
    from zoo.serving.metrics import Metrics

    async def check():
        metrics = Metrics()
        write(tmp_path / "titles" / "1", "titles")
        # a name is known before its first version can answer
        await until(lambda: "titles" in models.names and models.versions("titles")[0].state == AVAILABLE)
        assert b'zoo_model_ready{model="titles"} 1.0' in await metrics.page(models)
        (tmp_path / "titles").rename(tmp_path / ".titles")
        await until(lambda: models.names == ["dates"])
        page = await metrics.page(models)
        assert b"titles" not in page and b'zoo_model_ready{model="dates"} 1.0' in page

    run(models, check)


def test_a_version_that_failed_is_forgotten_with_its_folder(models, tmp_path):
    async def check():
        write(tmp_path / "titles" / "1", "broken")
        await until(lambda: "titles" in models.names)
        (tmp_path / "titles").rename(tmp_path / ".titles")
        await until(lambda: models.names == ["dates"])

    run(models, check)


def test_a_process_comes_back_when_there_is_memory_again(models):
    async def check():
        Process.refusals = 2
        models.served("dates").worker.over.set()
        await until(lambda: Process.refusals == 0 and models.is_ready)
        assert says(models) == "one" and models.restarts == 1

    run(models, check)


def test_the_end_does_not_wait_for_a_process_that_starts(models, monkeypatch):
    async def check():
        async def never(folder, options):
            await asyncio.sleep(3600)

        monkeypatch.setattr(Process, "start", never)
        models.served("dates").worker.over.set()
        await until(lambda: not models.is_ready)

    run(models, lambda: asyncio.wait_for(check(), 100))
