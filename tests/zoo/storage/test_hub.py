"""Models of the hub: fetched from a local stand-in, named presets, and models that are put there."""

import fnmatch
import http.server
import json
import shutil
import threading
import types
from pathlib import Path

import numpy as np
import pytest

huggingface_hub = pytest.importorskip("huggingface_hub")
constants = pytest.importorskip("huggingface_hub.constants")
errors = pytest.importorskip("huggingface_hub.errors")
pytest.importorskip("tensorflow")

import zoo  # noqa: E402
from zoo.preprocessing import TextClassifierPreprocessor  # noqa: E402
from zoo.presets import registry  # noqa: E402
from zoo.storage import HubError, find_reader  # noqa: E402
from zoo.tokenizers import Tokenizer  # noqa: E402

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.BaseHTTPRequestHandler):
    """What `snapshot_download` asks for: the list of files of `owner/model`, and the files."""

    folder: Path
    asked: list

    def log_message(self, *arguments):
        pass

    def do_HEAD(self):
        self.answer(with_body=False)

    def do_GET(self):
        self.answer(with_body=True)

    def answer(self, with_body):
        self.asked.append(self.path)
        path, headers, status = self.path.partition("?")[0], {"X-Repo-Commit": COMMIT}, 200
        names = sorted(str(file.relative_to(self.folder)) for file in self.folder.rglob("*") if file.is_file())
        if path.startswith("/api/models/owner/model"):
            body = json.dumps({"id": "owner/model", "sha": COMMIT, "siblings": [{"rfilename": name} for name in names]})
            if "/tree/" in path:
                body = json.dumps([{"type": "file", "path": name, "size": 1, "oid": "0"} for name in names])
            body = body.encode()
        elif path.startswith((f"/owner/model/resolve/{COMMIT}/", "/owner/model/resolve/main/")):
            name = path.split("/", 5)[5]
            if name in names:
                body = (self.folder / name).read_bytes()
                headers["ETag"] = f'"{name.replace("/", "-")}"'
            else:
                status, body = 404, b"{}"
                headers["X-Error-Code"] = "EntryNotFound"
        else:
            status, body = 404, b"{}"
            headers["X-Error-Code"] = "RepoNotFound"
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A stand-in whose model `owner/model` is the content of a folder."""
    handler = type("Handler", (Hub,), {"folder": tmp_path / "served", "asked": []})
    (tmp_path / "served").mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    yield handler
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def classifier(tiny_tokenizer, tmp_path_factory):
    config = zoo.preset_config(
        *("encoder_tiny",),
        **{"vocabulary_size": tiny_tokenizer.vocabulary_size, "hidden_dim": 16, "num_layers": 1, "max_length": 20},
        attention={"num_heads": 2},
        feed_forward={"intermediate_dim": 32},
        pooler=True,
    )
    return zoo.TextClassifier(zoo.Backbone.from_config(config), tiny_tokenizer, labels=["no", "yes"])


def same_weights(first, second):
    for one, other in zip(first.weights, second.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_model_of_the_hub(hub, classifier, monkeypatch):
    shutil.rmtree(hub.folder)
    classifier.save_to_preset(hub.folder)
    (hub.folder / "pytorch_model.bin").write_bytes(b"pickled")
    model = zoo.Task.from_preset("hf://owner/model")
    same_weights(model, classifier)
    assert not any("pytorch_model" in path for path in hub.asked if "resolve" in path)
    # from the cache
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    asked = len(hub.asked)
    backbone = zoo.Backbone.from_preset("hf://owner/model")
    same_weights(backbone, classifier.backbone)
    assert Tokenizer.from_preset("hf://owner/model").get_vocabulary() == classifier.tokenizer.get_vocabulary()
    preprocessor = TextClassifierPreprocessor.from_preset("hf://owner/model", truncate=True)
    assert preprocessor.options() == {**classifier.preprocessor.options(), "truncate": True}
    assert len(hub.asked) == asked
    with pytest.raises(HubError, match="hf://owner/other could not be fetched. It is not in the cache"):
        find_reader("hf://owner/other")


def of_weights(paths):
    return [path for path in paths if "resolve" in path and path.endswith((".safetensors", ".h5"))]


def test_weights_are_fetched_where_they_are_read(hub, classifier):
    shutil.rmtree(hub.folder)
    classifier.save_to_huggingface(hub.folder, model_type="bert")
    assert Tokenizer.from_preset("hf://owner/model").get_vocabulary() == classifier.tokenizer.get_vocabulary()
    assert TextClassifierPreprocessor.from_preset("hf://owner/model").labels.names == ["no", "yes"]
    made = zoo.TextClassifier.from_preset("hf://owner/model", load_weights=False)
    assert made.backbone.config.hidden_dim == 16 and not of_weights(hub.asked)
    same_weights(zoo.Task.from_preset("hf://owner/model"), classifier)
    assert of_weights(hub.asked)


def test_a_gguf_file_of_a_repository(hub):
    pytest.importorskip("gguf")
    from gguf_files import write_gguf

    folder = Path(__file__).parents[2] / "reference" / "huggingface" / "granite"
    write_gguf(folder, hub.folder / "small.gguf", "granite")
    write_gguf(folder, hub.folder / "parts.gguf", "granite", split=7)
    first = min(path.name for path in hub.folder.glob("parts-*.gguf"))
    (hub.folder / "parts.gguf").unlink(missing_ok=True)
    one = zoo.Backbone.from_preset("hf://owner/model/small.gguf")
    assert {path.rpartition("/")[2] for path in hub.asked if "resolve" in path} == {"small.gguf"}
    same_weights(zoo.Backbone.from_preset(f"hf://owner/model/{first}"), one)
    with pytest.raises(HubError, match=f"no config.json, but GGUF files: .*model/{first}, hf://owner/model/small.gguf"):
        find_reader("hf://owner/model")
    with pytest.raises(HubError, match="The model has no such file"):
        find_reader("hf://owner/model/other.gguf")


def test_a_name_that_the_hub_does_not_have(hub):
    with pytest.raises(HubError, match="hf://owner/other could not be fetched. The hub has no model of this name"):
        find_reader("hf://owner/other")


def test_named_presets(hub, classifier, monkeypatch):
    shutil.rmtree(hub.folder)
    assert classifier.save_to_huggingface(hub.folder, model_type="bert") == "bert"
    monkeypatch.setattr(registry, "_PRESETS", dict(registry._PRESETS))
    config = classifier.backbone.config
    zoo.register_preset("mine", config, "A small one.", "None 2024", weights="hf://owner/model")
    same_weights(zoo.TextClassifier.from_preset("mine"), classifier)
    same_weights(zoo.Backbone.from_preset("mine"), classifier.backbone)
    assert Tokenizer.from_preset("mine").get_vocabulary() == classifier.tokenizer.get_vocabulary()
    preprocessor = TextClassifierPreprocessor.from_preset("mine")
    assert preprocessor.tokenizer.get_vocabulary() == classifier.tokenizer.get_vocabulary()
    assert preprocessor.options()["labels"] == ["no", "yes"]
    own = TextClassifierPreprocessor.from_preset("gpt_tiny", tokenizer=classifier.tokenizer, labels=2)
    assert own.tokenizer is classifier.tokenizer
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub.folder))
    message = (
        "The preset 'mine' has its weights and tokenizer in hf://owner/model. hf://owner/model could not be fetched. "
        "It is not in the cache, .* `hf download owner/model`.* Else pass load_weights=False"
    )
    everything = (zoo.TextClassifier, zoo.Backbone, Tokenizer, TextClassifierPreprocessor)
    for load in (kind.from_preset for kind in everything):
        with pytest.raises(HubError, match=message):
            load("mine")
    assert zoo.Backbone.from_preset("mine", load_weights=False, num_layers=2).config.num_layers == 2
    with pytest.raises(ValueError, match="'gpt_tiny' names an architecture and has no weights"):
        zoo.Backbone.from_preset("gpt_tiny")


def test_models_are_put_there(classifier, monkeypatch, tmp_path):
    calls, pushed = [], tmp_path / "pushed"

    class Api:
        def create_repo(self, name, private, exist_ok):
            calls.append((name, private, exist_ok))

        def create_branch(self, name, branch, exist_ok):
            calls.append((name, branch))

        def upload_folder(self, repo_id, folder_path, revision, commit_message, ignore_patterns, delete_patterns):
            if repo_id == "owner/full":
                raise OSError("no room\nat all")
            if repo_id == "owner/offline":
                raise errors.OfflineModeIsEnabled("offline")
            for name in [str(path.relative_to(pushed)) for path in pushed.rglob("*") if path.is_file()]:
                if any(fnmatch.fnmatch(name, pattern) for pattern in delete_patterns):
                    (pushed / name).unlink()
            shutil.copytree(folder_path, pushed, dirs_exist_ok=True)
            calls.append((repo_id, revision, commit_message))
            return types.SimpleNamespace(oid="abc")

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    # of an earlier model
    stale = ("model.safetensors.index.json", "generation_config.json", "modules.json", "1_Pooling/config.json")
    own = ("eval_results.json", "requirements.txt")
    for name in (*stale, *own):
        (pushed / name).parent.mkdir(parents=True, exist_ok=True)
        (pushed / name).write_text("{}")
    address = classifier.push("owner/model@next", private=True, license="apache-2.0", base_model="owner/base")
    assert address == "hf://owner/model@abc"
    assert calls == [("owner/model", True, True), ("owner/model", "next"), ("owner/model", "next", "Upload model")]
    same_weights(zoo.TextClassifier.from_preset(pushed), classifier)
    assert not any((pushed / name).exists() for name in stale[:3]) and all((pushed / name).exists() for name in own)
    card = (pushed / "README.md").read_text()
    header = huggingface_hub.ModelCard(card).data
    assert (header.library_name, header.pipeline_tag, header.license) == (
        "transformers",
        "text-classification",
        "apache-2.0",
    )
    assert header.base_model == "owner/base"
    assert "zoo.TextClassifier.from_preset('hf://owner/model')" in card and "model='owner/model'" in card
    classifier.push("hf://owner/model", dtype="bfloat16")
    assert json.loads((pushed / "config.json").read_text())["dtype"] == "bfloat16"
    with pytest.raises(ValueError, match="dtype must be None with format='preset', which .* got 'float16'"):
        classifier.push("hf://owner/model", format="preset", dtype="float16")
    classifier.push("hf://owner/model", format="preset")
    same_weights(zoo.Task.from_preset(pushed), classifier)
    assert huggingface_hub.ModelCard.load(pushed / "README.md").data.library_name == "keras"
    with pytest.raises(ValueError, match=r"format='adapter' needs one active adapter, got \[\]"):
        classifier.push("owner/model", format="adapter")
    classifier.enable_lora(1)
    classifier.push("owner/model", format="adapter", base_model="owner/base")
    classifier.remove_adapters("default")
    assert {path.name for path in pushed.glob("*")} >= {"adapter_config.json", "adapter_model.safetensors"}
    assert not (pushed / "config.json").exists() and not list(pushed.glob("model*"))
    assert huggingface_hub.ModelCard.load(pushed / "README.md").data.library_name == "peft"
    before = len(calls)
    with pytest.raises(ValueError, match="format must be one of"):
        classifier.push("owner/model", format="pickle")
    with pytest.raises(ValueError, match="must be hf://owner/name"):
        classifier.push("a model")
    with pytest.raises(HubError, match="hf://owner/full could not be written. OSError: no room$"):
        classifier.push("owner/full")
    with pytest.raises(HubError, match="hf://owner/offline could not be written. HF_HUB_OFFLINE is set: unset it"):
        classifier.push("owner/offline")
    assert len(calls) == before + 2  # create_repo, twice
