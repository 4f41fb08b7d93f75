import dataclasses
import gzip
import hashlib
import http.server
import threading
from types import SimpleNamespace

import pytest

from recipes import classify, finetune, tag
from recipes.common.data import data_sets
from recipes.common.data.data_config import check_data
from recipes.common.data.data_sets import RemoteFile, Source, Splits, fetch, is_name, open_part, open_parts
from recipes.common.errors import ConfigError, DataError
from recipes.common.evaluation.held_out import HeldOut, open_rows

CONTENT = b"a dog\na cat\n"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.path)
        content = self.server.files.get(self.path)
        self.send_response(404 if content is None else 200)
        self.end_headers()
        self.wfile.write(content or b"404: Not Found")

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A local server in the place of the public source, with an empty cache and no data folder."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.requests, server.files = [], {"/owner/data/c0ffee/raw/train.en": CONTENT}
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))  # seconds between looks for the shutdown
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/{{repository}}/{{commit}}/{{path}}"
        monkeypatch.setattr(data_sets, "SOURCE_URL", url)
        monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv("ZOO_DATA", raising=False)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server
        server.shutdown()
        thread.join()


def remote_file(content=CONTENT, path="raw/train.en"):
    return RemoteFile("set/train.en", hashlib.sha256(content).hexdigest(), "owner/data", "c0ffee", path)


def test_download_is_cached(server, tmp_path, capsys):
    file = remote_file()
    assert fetch(file).read_bytes() == CONTENT
    assert fetch(file) == tmp_path / "cache" / "set" / "train.en"
    assert server.requests == ["/owner/data/c0ffee/raw/train.en"]
    assert capsys.readouterr().out == f"downloading {file.url}\n"


def test_damaged_cache_is_downloaded_again(server, tmp_path):
    path = fetch(remote_file())
    path.write_bytes(b"a do")
    assert fetch(remote_file()).read_bytes() == CONTENT
    assert len(server.requests) == 2


def test_wrong_checksum_is_refused_and_nothing_kept(server, tmp_path):
    file = remote_file(b"what it was once")
    with pytest.raises(DataError) as error:
        fetch(file)
    message = str(error.value)
    assert f"{file.url} is not the file that it was, or arrived damaged" in message
    assert file.sha256 in message
    assert "put that file at set/train.en below a folder of your choice" in message
    assert "ZOO_DATA" in message
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_file_missing_at_the_source(server):
    with pytest.raises(DataError, match=r"(?s)cannot download http.*404.*put that file at set/train\.en.*ZOO_DATA"):
        fetch(remote_file(path="raw/gone.en"))


def test_offline(server, monkeypatch):
    # Port 9 of this machine: nobody listens there.
    monkeypatch.setattr(data_sets, "SOURCE_URL", "http://127.0.0.1:9/{repository}/{commit}/{path}")
    with pytest.raises(DataError, match=r"(?s)cannot download http://127\.0\.0\.1:9/.*put that file at set/train\.en"):
        fetch(remote_file())


def test_cache_that_cannot_be_written(server, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"cannot store .* in .*cache"):
        fetch(remote_file())


def test_data_folder_comes_first(server, tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_DATA", str(tmp_path / "data"))
    path = tmp_path / "data" / "set" / "train.en"
    # Not there: downloaded.
    assert fetch(remote_file()).parent.parent.name == "cache"
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    assert fetch(remote_file()) == path
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(DataError, match=r"data/set/train\.en has the SHA-256 .* expected .*replace it by http"):
        fetch(remote_file())
    assert len(server.requests) == 1


def test_data_folder_may_hold_it_compressed(server, tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_DATA", str(tmp_path / "data"))
    path = tmp_path / "data" / "set" / "train.en.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(CONTENT))
    assert fetch(remote_file()) == path
    path.write_bytes(gzip.compress(CONTENT)[:-9])
    with pytest.raises(DataError, match=r"train\.en\.gz: the compressed file is damaged"):
        fetch(remote_file())
    path.write_bytes(gzip.compress(b"another"))
    with pytest.raises(DataError, match=r"train\.en\.gz has the SHA-256"):
        fetch(remote_file())


SETS = {"toy": lambda: Splits(["a", "b"], ["c"]), "other": lambda: Splits(["d"], ["e"])}


def data(train, **others):
    return SimpleNamespace(**{"train": train, "validation": [], "on_error": "skip", **others})


def read(files, bad):
    """The letters of the name of a file."""
    bad.add("empty line", f"{files[0]}:3")
    return [letter for letter in files[0] if letter != "."]


def test_a_name_is_a_name_and_a_path_a_path(tmp_path, monkeypatch):
    """A data set is not shadowed by a folder of its name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy").mkdir()
    (tmp_path / "mine").touch()
    assert is_name(["toy"]) and not is_name(["./toy"]) and not is_name(["a.tsv"]) and not is_name(["a", "b"])
    assert open_part(["toy"], "train", Source(SETS, read), "raise")[0] == ["a", "b"]
    with pytest.raises(DataError, match="'mine' is not the name of a data set; write './mine' for the file"):
        open_part(["mine"], "train", Source(SETS, read), "raise")
    with pytest.raises(DataError, match="'toyy' is not the name of a data set; did you mean 'toy'?"):
        open_part(["toyy"], "train", Source(SETS, read), "raise")
    with pytest.raises(DataError, match="known: toy, other"):
        open_part(["zzz"], "train", Source(SETS, read), "raise")


def test_a_name_stands_for_all_parts_and_the_validation_part_for_the_test_part(capsys):
    assert open_parts(data(["toy"], test=[]), Source(SETS, read)) == [["a", "b"], ["c"], ["c"]]
    assert open_parts(data(["a.b"], validation=["c.d"]), Source(SETS, read)) == [["a", "b"], ["c", "d"]]
    assert open_parts(data(["a.b"], validation=["c.d"], test=[]), Source(SETS, read))[2] == ["c", "d"]
    said = capsys.readouterr().out
    assert "toy: there is no test set; the validation set takes its place" in said
    assert "train: skipped 1: empty line 1 (a.b:3)\nvalidation: skipped 1" in said
    assert "data.test is empty; the validation set takes its place" in said and "a.b: there is no" not in said


def test_a_test_set_without_a_test_part_is_not_replaced_by_another_set(capsys):
    assert open_parts(data(["toy"], test=["other"]), Source(SETS, read)) == [["a", "b"], ["c"], ["e"]]
    assert "other: there is no test set; the validation set takes its place" in capsys.readouterr().out
    other = classify.DataConfig(["toy"], test=["other"])
    held_out = HeldOut(None, None, None, other, {"test"}, "test", {})
    assert open_rows(held_out, Source(SETS, read)) == (["e"], 0)
    assert "other: there is no test set; this is the validation set" in capsys.readouterr().out
    assert open_rows(dataclasses.replace(held_out, data=classify.DataConfig(["toy"])), Source(SETS, read)) == (["c"], 0)


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        (
            classify.DataConfig,
            {"text_columns": ["2"]},
            "data.text_columns must be ['1'] with a named data set, because it",
        ),
        (classify.DataConfig, {"label_separator": ","}, "data.label_separator must be null with a named data set"),
        (tag.DataConfig, {"tag_column": 4}, "data.tag_column must be 2 with a named data set"),
        (finetune.DataConfig, {"key": "talk"}, "data.key must be null with a named data set"),
    ],
)
def test_keys_that_say_how_files_are_read(kind, words, message):
    with pytest.raises(ConfigError) as error:
        check_data(kind(**words))
    assert message in str(error.value)
    # they are used for the files that there are
    check_data(kind(test=["a.tsv"], **words))
    check_data(kind())


def test_rows_are_checked_whatever_they_come_from():
    def check(row, bad):
        if row == "b":
            bad.add("a b", "here")
        return row != "b"

    for files in (["toy"], ["a.b"]):
        assert open_part(files, "train", Source(SETS, read, check), "skip")[0] == ["a"]
    with pytest.raises(DataError, match="here: a b"):
        open_part(["toy"], "train", Source(SETS, read, check), "raise")


def test_parts_that_are_missing_or_empty():
    with pytest.raises(DataError, match="data.validation must be given"):
        open_parts(data(["a.b"]), Source(SETS, read))
    with pytest.raises(DataError, match="data.train must be given"):
        open_parts(data([]), Source(SETS, read))
    with pytest.raises(DataError, match=r"nothing is left of \.\.: skipped 1: empty line 1"):
        open_parts(data([".."]), Source(SETS, read))
