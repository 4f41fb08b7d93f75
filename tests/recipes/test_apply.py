"""Applying an exported model to files: order, records that are left out, interruptions, processes, Ray."""

import gzip
import json

import keras
import pytest

from recipes import apply
from recipes.common.config import parse
from recipes.common.corpus import application
from recipes.common.errors import ConfigError, DataError, RunFolderError

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="exports are TensorFlow's")


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    """The model that copies: what it returns for a text is the text."""
    folder = tmp_path_factory.mktemp("runs") / "copies"
    trained.export(folder / "export" / "copies" / "2", sampler="greedy", max_length=8)
    (folder / "export" / "copies" / "1").mkdir()
    return folder


def run(model, output, *inputs, **options):
    words = [str(model), "--input", *map(str, inputs), "--output", str(output)]
    for name, value in options.items():
        words += [f"--{name}", *(value if isinstance(value, list) else [json.dumps(value).strip('"')])]
    return apply.main(parse(apply.ApplyConfig, words))


def results(folder):
    files = json.loads((folder / "results.json").read_text(encoding="utf-8"))["files"]
    return [json.loads(line) for name in files for line in (folder / name).read_text(encoding="utf-8").splitlines()]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.json*")}


@pytest.fixture
def files(copied, tmp_path):
    """The texts in three files, of which the first is cut into parts."""
    (tmp_path / "a.txt").write_text("".join(f"{text}\n" for text in copied[:10]), encoding="utf-8")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress("\n".join(copied[10:16]).encode()))
    records = (json.dumps({"id": number, "source": text}) for number, text in enumerate(copied[16:]))
    (tmp_path / "c.jsonl").write_text("\n\n".join(records), encoding="utf-8")
    return tmp_path


def test_results_are_in_the_order_of_the_input(exported, copied, files, tmp_path):
    index = run(exported, tmp_path / "out", files / "?.txt*", part_bytes=60, batch_size=3)
    assert len(index["files"]) > 3 and index["records"] == 16 and index["left_out"] == {}
    assert results(tmp_path / "out") == [{"text": text, "output": text} for text in copied[:16]]
    assert sum(index["files"].values()) == 16
    # the folder of the SavedModel itself, and records with more than a text
    run(exported / "export/copies/2", tmp_path / "records", files / "c.jsonl", keys={"texts": "source"}, keep=["id"])
    assert results(tmp_path / "records") == [{"id": number, "output": text} for number, text in enumerate(copied[16:])]
    assert sorted(path.name for path in (tmp_path / "records").iterdir() if path.name != ".lock") == [
        "00000.jsonl",
        "results.json",
    ]


def test_what_is_left_out_is_counted(exported, copied, tmp_path):
    long = " ".join(["alpha"] * 40)  # beyond the 32 tokens of the model
    rows = [
        '{"text": 3}',
        "{",
        '{"other": "alpha"}',
        *(json.dumps({"text": text}) for text in [copied[0], long, copied[1]]),
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(rows), encoding="utf-8")
    index = run(exported, tmp_path / "out", path, on_error="skip")
    assert [result["output"] for result in results(tmp_path / "out")] == copied[:2]
    assert sorted(index["left_out"].values()) == [1, 1, 1, 1] and index["records"] == 2
    assert index["left_out"]["refused by the model"] == 1
    for bad in rows[:3], rows[4:5]:
        path.write_text("\n".join([rows[3], *bad]), encoding="utf-8")
        with pytest.raises(DataError, match=r"rows\.jsonl, byte \d+: "):
            run(exported, tmp_path / "raised", path)
        assert not (tmp_path / "raised" / "00000.jsonl").exists()
        (tmp_path / "raised" / "work" / "plan.json").unlink()


def test_an_interrupted_run_goes_on(exported, files, tmp_path, monkeypatch):
    options = {"part_bytes": 60, "batch_size": 2}
    run(exported, tmp_path / "whole", files / "a.txt", **options)
    done, do = [], application.apply_shard

    def stop(task):
        if task.number == 2 and not done.count(2):
            done.append(2)
            raise KeyboardInterrupt
        done.append(task.number)
        return do(task)

    monkeypatch.setattr(apply, "apply_shard", stop)
    with pytest.raises(KeyboardInterrupt):
        run(exported, tmp_path / "out", files / "a.txt", **options)
    assert not (tmp_path / "out" / "results.json").exists()
    with pytest.raises(RunFolderError, match="batch_size: 2 in the folder, 3 now"):
        run(exported, tmp_path / "out", files / "a.txt", part_bytes=60, batch_size=3)
    run(exported, tmp_path / "out", files / "a.txt", **options)
    assert done == [0, 1, 2, *range(2, len(contents(tmp_path / "whole")) - 1)]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    # nothing is done again
    run(exported, tmp_path / "out", files / "a.txt", **options)
    assert done[-1] == len(contents(tmp_path / "whole")) - 2


def test_what_cannot_be_done_is_said_at_once(exported, files, tmp_path):
    source = files / "a.txt"
    for options, message in (
        ({"endpoint": "answer"}, "endpoint must be one of serve, .*got 'answer'"),
        ({"endpoint": "generate", "options": {"stop": "a"}}, "options: stop must be a list of texts, got 'a'"),
        (
            {"endpoint": "generate", "options": {"seed": 0.5, "max_new_tokens": 3}},
            "must give seed \\(int64\\), got 0.5",
        ),
        ({"options": {"seed": 1}}, "options must be among none, got seed"),
        ({"keys": {"prompts": "text"}}, "keys must be among texts, got prompts"),
        ({"keep": ["output"]}, "keep must not hold 'output'"),
    ):
        with pytest.raises(ConfigError, match=message):
            run(exported, tmp_path / "out", source, **options)
    with pytest.raises(DataError, match="does not describe a SavedModel"):
        run(tmp_path, tmp_path / "out", source)
    with pytest.raises(DataError, match="there is no file"):
        run(exported, tmp_path / "out", tmp_path / "nothing*.txt")


def test_records_with_an_output(exported, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "alpha", "output": 1}', encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.jsonl, byte 1: the record has a key 'output'"):
        run(exported, tmp_path / "out", tmp_path / "a.jsonl")


@pytest.mark.slow
def test_processes_give_the_same_bytes(exported, files, tmp_path):
    for name, processes in (("one", 1), ("two", 2)):
        run(exported, tmp_path / name, files / "?.txt*", part_bytes=60, processes=processes)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@pytest.mark.slow
def test_a_node_of_a_cluster_that_dies(exported, files, tmp_path):
    """Two nodes of Ray on this machine, one of them killed at work: nothing lost, nothing twice."""
    pytest.importorskip("ray.data", reason="the extra 'ray' is not installed")
    import ray
    from ray.cluster_utils import Cluster

    options = {"part_bytes": 30, "batch_size": 1}
    run(exported, tmp_path / "one", files / "?.txt*", **options)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    node = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        import threading

        def kill():
            while not list((tmp_path / "ray").glob("work/0*.json")):
                if finished.wait(0.05):
                    return
            killed.append(True)
            cluster.remove_node(node, allow_graceful=False)

        finished, killed = threading.Event(), []
        thread = threading.Thread(target=kill)
        thread.start()
        run(exported, tmp_path / "ray", files / "?.txt*", engine="ray", **options)
        finished.set()
        thread.join()
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert killed and contents(tmp_path / "ray") == contents(tmp_path / "one")


def test_inputs_with_defaults_may_be_left_out(exported, copied, files, tmp_path):
    model, options = exported / "export" / "copies", {"max_new_tokens": 9, "stop": [" "], "temperature": 0}
    run(model, tmp_path / "out", files / "a.txt", endpoint="generate", options=options)
    assert results(tmp_path / "out") == [{"text": text, "output": text.split()[0]} for text in copied[:10]]
