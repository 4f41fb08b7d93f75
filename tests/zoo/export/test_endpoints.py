"""Endpoints that models name, and what the writer makes of them."""

import gc
import json
import weakref

import keras
import numpy as np
import pytest
from keras import ops

tf = pytest.importorskip("tensorflow")

from zoo import Backbone, Greedy, RecurrentConfig, TextClassifier  # noqa: E402
from zoo.export import Endpoint, Field, write_saved_model  # noqa: E402
from zoo.generation import decode  # noqa: E402
from zoo.generation.compiled_functions import CompiledFunctions  # noqa: E402

NUMBERS, TOTAL = Field("numbers", ("batch", 3), "float32", "some numbers"), Field("total", ("batch",), "float32")


def twice(numbers):
    return tf.reduce_sum(2.0 * numbers, axis=1)


def test_functions_and_signatures_have_the_names_of_the_fields(tmp_path):
    factor = keras.Variable([2.0])
    endpoints = {
        "one": Endpoint(lambda numbers: tf.reduce_sum(factor * numbers, axis=1), (NUMBERS,), (TOTAL,), "Adds."),
        "both": Endpoint(lambda x: {"total": twice(x), "numbers": x}, (NUMBERS,), (TOTAL, NUMBERS)),
    }
    write_saved_model(
        tmp_path / "export",
        endpoints,
        variables=[factor],
        save_assets=lambda folder: open(f"{folder}/words.txt", "w").close(),
    )
    model, given = tf.saved_model.load(tmp_path / "export"), tf.constant([[1.0, 2.0, 3.0]])
    assert model.one(given).numpy() == [12.0] == model.one(numbers=given).numpy()
    assert model.both(given)["total"].numpy() == [12.0]
    assert model.signatures["serving_default"](numbers=given)["total"].numpy() == [12.0]
    assert sorted(model.signatures["both"](numbers=given)) == ["numbers", "total"]
    described = json.loads((tmp_path / "export/signature.json").read_text())
    assert described["default"] == "one" and described["endpoints"]["one"] == {
        "description": "Adds.",
        "inputs": [{"name": "numbers", "shape": ["batch", 3], "dtype": "float32", "description": "some numbers"}],
        "outputs": [{"name": "total", "shape": ["batch"], "dtype": "float32", "description": ""}],
    }
    assert [path.name for path in (tmp_path / "export/assets.extra").iterdir()] == ["words.txt"]


@pytest.mark.parametrize(
    "output",
    [Field("total", ("batch",), "float64"), Field("total", ("batch", 2), "float32"), TOTAL],
    ids=["type", "shape", "names"],
)
def test_an_endpoint_that_returns_something_else(tmp_path, output):
    outputs = (output, NUMBERS) if output is TOTAL else (output,)
    with pytest.raises(ValueError, match="The endpoint 'one' must return .*, it returns .*float32"):
        write_saved_model(tmp_path / "export", {"one": Endpoint(twice, (NUMBERS,), outputs)}, variables=[])
    assert not list(tmp_path.iterdir())


def test_endpoints_that_return_arrays_and_lists(tmp_path):
    rates, names = Field("rates", (2,), "float32"), Field("names", (2,), "string")
    endpoints = {
        "array": Endpoint(lambda: np.array([1.0, 2.0], "float32"), (), (rates,)),
        "list": Endpoint(lambda: [1.0, 2.0], (), (rates,)),
        "several": Endpoint(lambda: {"rates": np.float32([1, 2]), "names": ["a", "b"]}, (), (rates, names)),
    }
    write_saved_model(tmp_path / "export", endpoints, variables=[])
    model = tf.saved_model.load(tmp_path / "export")
    assert model.array().numpy().tolist() == model.list().numpy().tolist() == [1.0, 2.0]
    assert model.signatures["several"]()["names"].numpy().tolist() == [b"a", b"b"]


@pytest.mark.parametrize("kind", ["encoder", "recurrent"])
def test_backbones(encoder_config, tmp_path, kind):
    keras.utils.set_random_seed(0)
    recurrent = RecurrentConfig(vocabulary_size=27, embedding_dim=4, hidden_dim=6, encoder_dim=5)
    backbone = Backbone.from_config(encoder_config if kind == "encoder" else recurrent)
    backbone.export(tmp_path / "export")
    generator = np.random.default_rng(0)
    fields = (*backbone.input_fields(), *backbone.optional_fields())
    inputs = {field.name: tf.constant(generator.integers(0, 2, (2, 5)), field.dtype) for field in fields}
    padding = tf.sequence_mask([3, 5], 5)
    inputs.update({name: padding for name in inputs if name.endswith("mask")})
    expected, loaded = backbone(inputs), tf.saved_model.load(tmp_path / "export")
    keras.tree.map_structure(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6),
        loaded.forward(**inputs),
        expected,
    )
    fields = backbone.output_fields()
    for field, value in zip(
        fields, [expected[field.name] for field in fields] if fields[1:] else [expected], strict=True
    ):
        assert field.sizes[-1] == value.shape[-1]


def test_other_formats_are_refused(make_task, tmp_path):
    task = make_task(TextClassifier, labels=2)
    for model in (task, task.backbone):
        with pytest.raises(ValueError, match="format must be one of 'tf_saved_model', 'onnx', .*, got 'torch'"):
            model.export(tmp_path / "export", format="torch")
    message = r"of a TextClassifier must be among format, examples, weights, strings, attention, got \['labels'\]"
    with pytest.raises(TypeError, match=message):
        task.export(tmp_path / "export", labels=3)


class Chain:
    """A model whose next token depends on the last one, by a variable."""

    def __init__(self, seed):
        self.table = keras.Variable(np.random.default_rng(seed).normal(size=(9, 9)))
        self.programs = CompiledFunctions(lambda: [self.table])

    def decode(self, first):
        def step(token_ids, index, state, constants):
            return ops.take(self.table, token_ids, axis=0), state

        return decode(step, {}, {}, first, 0, 6, Greedy(), 1, 0)["token_ids"]

    def generate(self, first):
        return self.programs.run("decode", self.decode, False, first).numpy().tolist()

    def export(self, folder):
        fields = (Field("first", ("batch",), "int32"),), (Field("token_ids", ("batch", "length"), "int32"),)
        write_saved_model(folder, {"serve": Endpoint(self.decode, *fields)}, variables=[self.table])


def test_many_models_in_one_process(tmp_path):
    """Models decode, are exported and deleted, one after the other: none meets the variables of another."""
    kept, models, expected, first = [], [], [], tf.range(2, 9)
    # what older tests left is not looked through, which takes a minute where memory is short
    gc.collect(1)
    for number in range(3):
        model = Chain(number)
        expected.append(model.generate(first))
        model.export(tmp_path / str(number))
        assert model.generate(first) == expected[-1]
        models.append(weakref.ref(model))
        kept += [model] if number % 2 else []
        del model
        if not number:
            gc.collect(1)
    assert models[0]() is None
    assert len({str(tokens) for tokens in expected}) == 3
    assert [model.generate(first) for model in kept] == expected[1::2]
    served = [tf.saved_model.load(tmp_path / str(number)) for number in range(3)]
    assert [model.serve(first).numpy().tolist() for model in served] == expected
