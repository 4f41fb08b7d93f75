"""Versions come, go and fail while requests are being answered."""

import asyncio
import logging
import os
import shutil
import signal

import keras
import numpy as np
import pytest

pytest.importorskip("msgpack", reason="the extra serve is not installed")

from zoo.serving.exported_model import ExportedModel  # noqa: E402
from zoo.serving.model_folders import find_versions  # noqa: E402
from zoo.serving.served_models import NoSuchModelError, NotReadyError, ServedModels  # noqa: E402


def fake(folder):
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"")
    return folder


def test_a_path_that_tensorflow_takes_for_a_pattern(chat_export, exported, tmp_path):
    moved = tmp_path / "dates[1]\\" / "*"
    shutil.copytree(chat_export, moved)
    asked = {"prompts": np.array([b"hello "], "object"), "texts": np.array([b"friend"], "object")}
    before, after = (model.call("score", **asked) for model in (exported, ExportedModel(moved)))
    np.testing.assert_allclose(after["log_likelihoods"], before["log_likelihoods"], rtol=1e-5)


def test_four_kinds_of_folders(tmp_path):
    run = fake(tmp_path / "dates" / "export")
    assert find_versions(run) == {"dates": {1: run}} == find_versions(run.parent)
    (tmp_path / "titles" / "model").mkdir(parents=True)
    version = fake(tmp_path / "titles" / "export" / "of titles" / "1")
    assert find_versions(tmp_path / "titles") == {"of titles": {1: version}}
    models = tmp_path / "models"
    first, tenth = fake(models / "dates" / "1"), fake(models / "dates" / "10")
    (models / "dates" / "11").mkdir()  # nothing in it yet
    (models / "dates" / "notes").mkdir()
    fake(models / "dates" / ("9" * 20))  # no message holds it
    other = fake(models / "titles")
    fake(models / ".hidden" / "1")
    assert find_versions(models / "dates") == {"dates": {1: first, 10: tenth}}
    assert find_versions(models) == {"dates": {1: first, 10: tenth}, "titles": {1: other}}
    assert find_versions(tmp_path / "models" / "dates" / "notes") == {}
    with pytest.raises(NotADirectoryError, match="models must be a folder"):
        find_versions(tmp_path / "nowhere")


@pytest.fixture(scope="module")
def two_exports(chat_model, chat_export, tmp_path_factory):
    """The same model with weights that say something else."""
    folder = tmp_path_factory.mktemp("second") / "export"
    weights = [keras.ops.convert_to_numpy(weight) for weight in chat_model.weights]
    for weight, value in zip(chat_model.weights, weights, strict=True):
        weight.assign(-value)
    chat_model.export(folder, jit_compile=False)
    for weight, value in zip(chat_model.weights, weights, strict=True):
        weight.assign(value)
    return chat_export, folder


async def until(condition, seconds=60):
    for _ in range(int(seconds * 20)):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("That did not happen in time.")


def is_same(one, other):
    """Whether two log-likelihoods are of the same model; threads add up float32 numbers in any order."""
    return abs(one - other) < 1e-4


@pytest.mark.slow
def test_versions_are_swapped_and_processes_revived(loop, two_exports, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    first, second = two_exports
    folder = tmp_path / "models" / "chat"
    shutil.copytree(first, folder / "1")

    async def ask(models):
        async with models.worker("chat") as worker:
            outputs = await worker.call("score", {"prompts": ["hello "], "texts": ["friend of mine"]})
            return float(outputs["log_likelihoods"][0])

    async def run():
        async with ServedModels(tmp_path / "models", {}, interval=0.1) as models:
            await models.loaded()
            assert models.names == ["chat"] and models.is_ready
            old = await ask(models)
            answers, stop = [], asyncio.Event()

            async def go_on():
                while not stop.is_set():
                    answers.append(await ask(models))
                    await asyncio.sleep(0.02)  # or there are no processors left for what is to be loaded

            asking = asyncio.gather(go_on(), go_on())
            # a newer version, whole at once
            shutil.copytree(second, tmp_path / "coming")
            (tmp_path / "coming").rename(folder / "2")
            await until(lambda: models.served("chat").number == 2)
            new = await ask(models)
            # one that does not load leaves it in its place
            fake(folder / "3")
            await until(lambda: any(version.state == "FAILED" for version in models.versions("chat")))
            assert models.served("chat").number == 2 and is_same(await ask(models), new)
            # back to the first
            shutil.rmtree(folder / "3")
            shutil.rmtree(folder / "2")
            await until(lambda: models.served("chat").number == 1)
            stop.set()
            await asking
            assert abs(old - new) > 1e-2 and all(is_same(answer, old) or is_same(answer, new) for answer in answers)
            assert is_same(answers[0], old) and any(is_same(answer, new) for answer in answers)
            assert is_same(await ask(models), old)
            # a process that ends by itself comes back
            worker = models.served("chat").worker
            os.kill(worker.pid, signal.SIGKILL)
            await worker.ended()
            with pytest.raises(NotReadyError, match="'chat' cannot answer while it is being loaded; /ready says"):
                models.served("chat")
            assert not models.is_ready
            await until(lambda: models.is_ready)
            assert is_same(await ask(models), old) and models.restarts == 1
            with pytest.raises(NoSuchModelError, match="no model 'other'"):
                models.served("other")
            with pytest.raises(NoSuchModelError, match="no version 7"):
                models.served("chat", 7)
            return [version.worker.pid for version in models.versions("chat")]

    for pid in loop.run(run(), seconds=300):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert "friend" not in caplog.text
