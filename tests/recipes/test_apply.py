"""Applying an exported model to files: order, records that are left out, interruptions, processes, Ray."""

import gzip
import json
import shutil

import keras
import numpy as np
import pytest

import zoo
from recipes import apply
from recipes.common.config import parse
from recipes.common.corpus import application, exported_model
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
        with pytest.raises(DataError, match=r"rows\.jsonl:2: "):
            run(exported, tmp_path / "raised", path)
        assert not (tmp_path / "raised" / "00000.jsonl").exists()
        (tmp_path / "raised" / "work" / "plan.json").unlink()


def test_bad_records_may_be_left_out_from_now_on(exported, copied, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in copied[:4]) + "{\n", encoding="utf-8")
    with pytest.raises(DataError, match="rows.jsonl:5: "):
        run(exported, tmp_path / "out", path, part_bytes=30)
    run(exported, tmp_path / "out", path, part_bytes=30, on_error="skip")
    run(exported, tmp_path / "other", path, part_bytes=30, on_error="skip")
    assert contents(tmp_path / "out") == contents(tmp_path / "other")
    with pytest.raises(RunFolderError, match="on_error: 'skip' in the folder, 'raise' now"):
        run(exported, tmp_path / "out", path, part_bytes=30)


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
        (
            {"endpoint": "generate", "options": {"seed": 2**63, "max_new_tokens": 3}},
            "options.seed must fit into int64, got 9223372036854775808",
        ),
        ({"options": {"seed": 1}}, "options must be among none, got seed"),
        ({"keys": {"prompts": "text"}}, "keys must be among texts, got prompts"),
        ({"keep": ["output"]}, "keep must not hold 'output'"),
        ({"split": "test"}, "split must be left out, as the input has text alone, got 'test'"),
    ):
        with pytest.raises(ConfigError, match=message):
            run(exported, tmp_path / "out", source, **options)
    with pytest.raises(DataError, match="does not describe a SavedModel"):
        run(tmp_path, tmp_path / "out", source)
    with pytest.raises(DataError, match="there is no file"):
        run(exported, tmp_path / "out", tmp_path / "nothing*.txt")


def test_keys_to_keep_that_are_missing(exported, copied, tmp_path):
    """A word with a mistake in it is not left out of all results."""
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"id": 0, "text": copied[0]}) + "\n" + json.dumps({"text": copied[1]}), encoding="utf-8")
    with pytest.raises(DataError, match=r"rows\.jsonl:1: key missing: idd; it has \['id', 'text'\]"):
        run(exported, tmp_path / "raised", path, keep=["idd"])
    index = run(exported, tmp_path / "out", path, keep=["id"], on_error="skip")
    assert results(tmp_path / "out") == [{"id": 0, "output": copied[0]}]
    assert index["left_out"] == {"key missing": 1}


def test_records_with_an_output(exported, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "alpha", "output": 1}', encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.jsonl:1: the record has a key 'output'"):
        run(exported, tmp_path / "out", tmp_path / "a.jsonl")


@pytest.fixture(scope="module")
def encoders(texts, made_once):
    """Exports of tasks whose outputs are labels, tags, entities, fillings of gaps, answers and vectors."""
    from zoo import AttentionConfig, EmbeddingConfig, FeedForwardConfig, PositionConfig, TransformerConfig
    from zoo.tokenizers import SentencePieceTokenizer

    proto = SentencePieceTokenizer.train(texts, vocabulary_size=27, special_tokens=["<mask>"]).proto
    tokenizer = SentencePieceTokenizer(proto, mask_token="<mask>")
    config = TransformerConfig(
        "encoder",
        **{"vocabulary_size": 27, "hidden_dim": 16, "num_layers": 1, "max_length": 24},
        attention=AttentionConfig(num_heads=2),
        position=PositionConfig("learned"),
        feed_forward=FeedForwardConfig(32),
        embedding=EmbeddingConfig(num_segments=2),
    )
    tasks = {
        "tagger": (zoo.TokenClassifier, {"labels": ["O", "B-X", "I-X"]}),
        "pairs": (zoo.TextClassifier, {"labels": ["no", "yes"], "pairs": True}),
        "gaps": (zoo.MaskedLM, {}),
        "answers": (zoo.QuestionAnswerer, {}),
        "vectors": (zoo.TextEmbedder, {}),
    }

    def export(folder):
        folder.mkdir()
        for seed, (name, (kind, options)) in enumerate(tasks.items()):
            keras.utils.set_random_seed(seed)
            task = kind(zoo.Backbone.from_config(config), tokenizer, **options)
            for weight in task.backbone.weights:
                if "embedding" in weight.path:
                    weight.assign(weight * 4)  # or all texts would have the same tags
            task.run_eagerly = True
            task.export(folder / name)

    return made_once("exports of encoders", export)


def alone(model, endpoint, texts):
    """What the SavedModel returns for one record, without what rows are filled up with."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401

    loaded = tf.saved_model.load(str(model))
    for record in texts:
        outputs = loaded.signatures[endpoint](**{name: tf.constant([text]) for name, text in record.items()})
        yield {name: output.numpy()[0] for name, output in outputs.items()}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "endpoint", "inputs"),
    [
        ("tagger", "serve", ["texts"]),
        ("tagger", "entities", ["texts"]),
        ("pairs", "serve", ["first_texts", "second_texts"]),
        ("gaps", "serve", ["texts"]),
        ("answers", "serve", ["questions", "contexts"]),
        ("vectors", "serve", ["texts"]),
    ],
)
def test_what_each_task_returns(encoders, tmp_path, name, endpoint, inputs):
    """The outputs of a record are those that it has alone, whatever stands beside it in its batch."""
    generator = np.random.default_rng(0)
    words = ["alpha", "beta", "omega", "theta"]
    records = []
    for number in range(12):
        texts = [" ".join(generator.choice(words, number % 5 + 1)) for _ in inputs]
        if name == "gaps":
            texts = [" ".join(["<mask>"] * (number % 3 + 1) + texts)]
        records.append(dict(zip(inputs, texts, strict=True)))
    path = tmp_path / "records.jsonl"
    path.write_text("\n".join(json.dumps({"id": row, **record}) for row, record in enumerate(records)))
    keys = {name: name for name in inputs}
    run(encoders / name, tmp_path / "out", path, endpoint=endpoint, keys=keys, keep=["id"], batch_size=5)
    found = results(tmp_path / "out")
    assert [result["id"] for result in found] == list(range(12))
    for result, expected in zip(found, alone(encoders / name, endpoint, records), strict=True):
        output = result["output"] if len(expected) > 1 else {next(iter(expected)): result["output"]}
        assert output.keys() == expected.keys()
        filled = next((key for key in ("words", "labels", "tokens") if key in expected), None)
        # behind the last word, entity or gap stand empty texts
        count = None if filled is None else sum(np.any(entry != b"") for entry in expected[filled])
        for key, value in expected.items():
            value = value if count is None else value[:count]
            if isinstance(value, bytes) or value.dtype == object:
                assert output[key] == decoded(value if isinstance(value, bytes) else value.tolist())
            else:
                np.testing.assert_allclose(output[key], value, atol=1e-5)
    if name == "tagger" and endpoint == "serve":
        assert {len(result["output"]["words"]) for result in found} == {1, 2, 3, 4, 5}


def decoded(value):
    return [decoded(entry) for entry in value] if isinstance(value, list) else value.decode()


def test_outputs_stand_in_the_order_of_the_description(encoders, tmp_path, monkeypatch):
    """Or the same command would write other bytes in another process, where TensorFlow has them in another order."""
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"first_texts": "alpha", "second_texts": "beta"}))
    load = exported_model._load
    for folder, turn in (("one", list), ("two", reversed)):

        def turned(*given, turn=turn):
            function, *others = load(*given)
            return (lambda **inputs: dict(turn(function(**inputs).items())), *others)

        monkeypatch.setattr(exported_model, "_load", turned)
        run(encoders / "pairs", tmp_path / folder, path)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    signature = json.loads((encoders / "pairs" / "signature.json").read_text())
    names = [field["name"] for field in signature["endpoints"]["serve"]["outputs"]]
    (row,) = results(tmp_path / "one")
    assert list(row["output"]) == names and len(names) > 1


def test_another_model_in_the_same_folder(encoders, tmp_path):
    """What an earlier call in this process has loaded is not used."""
    (tmp_path / "a.txt").write_text("alpha beta")
    shutil.copytree(encoders / "tagger", tmp_path / "model")
    run(tmp_path / "model", tmp_path / "one", tmp_path / "a.txt")
    shutil.rmtree(tmp_path / "model")
    shutil.copytree(encoders / "vectors", tmp_path / "model")
    run(tmp_path / "model", tmp_path / "two", tmp_path / "a.txt")
    assert "words" in results(tmp_path / "one")[0]["output"]
    assert np.shape(results(tmp_path / "two")[0]["output"]) == (16,)
    with pytest.raises(RunFolderError, match="model: "):
        run(tmp_path / "model", tmp_path / "one", tmp_path / "a.txt")


def test_values_that_json_has_not(encoders, tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="the extra 'corpus' is not installed")
    import datetime

    import pyarrow.parquet as parquet

    columns = {"text": ["alpha", "beta"], "score": [float("nan"), 0.5], "day": [datetime.date(2020, 1, 2), None]}
    parquet.write_table(arrow.table(columns), tmp_path / "a.parquet")
    run(encoders / "vectors", tmp_path / "out", tmp_path / "a.parquet", keep=["score", "day"])
    lines = (tmp_path / "out" / "00000.jsonl").read_text().splitlines()
    found = [json.loads(line, parse_constant=lambda name: pytest.fail(name)) for line in lines]
    assert [(row["score"], row["day"]) for row in found] == [(None, "2020-01-02"), (0.5, None)]


def test_large_records_are_not_held_together(encoders, tmp_path, monkeypatch):
    monkeypatch.setattr(application, "_CHARACTERS_AT_ONCE", 10)
    sizes, do = [], application._results
    monkeypatch.setattr(
        application, "_results", lambda records, *rest: sizes.append(len(records)) or do(records, *rest)
    )
    (tmp_path / "a.txt").write_text("alpha\nbeta\nalpha beta omega\nbeta\n")
    run(encoders / "vectors", tmp_path / "out", tmp_path / "a.txt")
    assert sizes == [3, 1]


@pytest.mark.parametrize("end", ["complete", "begun"])
def test_input_that_has_changed(encoders, tmp_path, monkeypatch, end):
    (tmp_path / "a.txt").write_text("alpha")
    if end == "begun":
        with monkeypatch.context() as patch:
            patch.setattr(apply, "apply_shard", lambda task: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                run(encoders / "vectors", tmp_path / "out", tmp_path / "*.txt")
    else:
        run(encoders / "vectors", tmp_path / "out", tmp_path / "*.txt")
    (tmp_path / "b.txt").write_text("beta")
    with pytest.raises(DataError, match=r"b\.txt was not there when"):
        run(encoders / "vectors", tmp_path / "out", tmp_path / "*.txt")


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
