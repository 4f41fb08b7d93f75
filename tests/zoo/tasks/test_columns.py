"""Columns of other libraries give what lists give: lazy ones, strings of NumPy, Arrow arrays, filtered series."""

import copy
import json
import pickle
from collections.abc import Sequence

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo import Backbone  # noqa: E402
from zoo.config import EmbeddingConfig  # noqa: E402
from zoo.preprocessing.rows import is_raw  # noqa: E402
from zoo.tasks import CausalLM, MaskedLM, QuestionAnswerer, Seq2SeqLM, TextClassifier, TextEmbedder, TokenClassifier  # noqa: E402  # noqa: E402

TEXTS = ["alpha beta", "omega", "kappa iota alpha", "beta"]
LABELS = ["good", "bad", "good", "bad"]


class Lazy(Sequence):
    """A column that is read row by row, and that has no slices."""

    def __init__(self, rows):
        self._rows, self.reads = rows, 0

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, index):
        row = self._rows[index] if isinstance(index, int) else [][index.start]
        self.reads += 1
        return row


def hugging_face(rows):
    return pytest.importorskip("datasets").Dataset.from_dict({"column": rows})["column"]


def arrow(rows):
    return pytest.importorskip("pyarrow").array(rows)


def chunked(rows):
    return pytest.importorskip("pyarrow").chunked_array([rows[:1], rows[1:]])


def filtered(rows):
    return pytest.importorskip("pandas").Series(["none", *rows])[1:]


def numpy_strings(rows):
    return np.array(rows, np.dtypes.StringDType()) if isinstance(rows[0], str) else rows


KINDS = {"lazy": Lazy, "datasets": hugging_face, "arrow": arrow, "chunked": chunked, "series": filtered}
KINDS["numpy"] = numpy_strings


@pytest.fixture(scope="module")
def tasks(make_task, tiny_config, tiny_tokenizer):
    made = {
        "classifier": make_task(TextClassifier, labels=["bad", "good"]),
        "several": make_task(TextClassifier, labels=["bad", "good", "so"], problem="multi_label"),
        "pairs": make_task(TextClassifier, labels=1, problem="regression", pairs=True),
        "tagger": make_task(TokenClassifier, labels=["O", "B-X"]),
        "masked": make_task(MaskedLM),
        "embedder": make_task(TextEmbedder),
        "answerer": make_task(QuestionAnswerer),
        "writer": make_task(
            CausalLM, config={"architecture": "decoder", "pooler": False, "embedding": EmbeddingConfig()}
        ),
        "translator": Seq2SeqLM(Backbone.from_config(tiny_config), tiny_tokenizer),
    }
    for task in made.values():
        task.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    return made


def loss(task, *data):
    return task.evaluate(*data, return_dict=True, verbose=0)["loss"]


@pytest.mark.parametrize("kind", KINDS)
def test_columns_give_what_lists_give(tasks, kind):
    of, texts = KINDS[kind], KINDS[kind](TEXTS)
    words = [text.split() for text in TEXTS]
    tags = [["B-X" if word == "alpha" else "O" for word in row] for row in words]
    sets, values = [["good"], ["bad"], ["good", "so"], ["so"]], [0.5, 1.0, 2.0, 3.0]
    numbers = of(values) if kind != "numpy" else np.array(values)
    spans = [[{"start": 0, "end": 5, "label": "X"}], [], [], []]
    for name, given, plain in (
        ("classifier", (texts, of(LABELS)), (TEXTS, LABELS)),
        ("several", (texts, of(sets)), (TEXTS, sets)),
        ("pairs", ((texts, texts), numbers), ((TEXTS, TEXTS), values)),
        ("tagger", (of(words), of(tags)), (words, tags)),
        ("tagger", (texts, of(spans)), (TEXTS, spans)),
        ("masked", (texts,), (TEXTS,)),
        ("embedder", ((texts, texts),), ((TEXTS, TEXTS),)),
        ("writer", (texts,), (TEXTS,)),
        ("translator", (texts, texts), (TEXTS, TEXTS)),
    ):
        task = tasks[name]
        np.testing.assert_allclose(loss(task, *given), loss(task, *plain), rtol=1e-5, err_msg=name)
    model, data = tasks["classifier"], (texts, of(LABELS))
    assert np.isfinite(model.fit(*data, validation_data=data, verbose=0).history["val_loss"][0])
    assert np.isfinite(model.train_on_batch(*data)[0])
    np.testing.assert_allclose(tasks["classifier"].predict(texts), tasks["classifier"].predict(TEXTS), rtol=1e-5)
    assert tasks["classifier"].classify(texts) == tasks["classifier"].classify(TEXTS)
    assert tasks["tagger"].tag(of(words)) == tasks["tagger"].tag(words)
    np.testing.assert_allclose(tasks["embedder"].embed(texts), tasks["embedder"].embed(TEXTS), rtol=1e-5)
    assert tasks["answerer"].answer(texts, texts) == tasks["answerer"].answer(TEXTS, TEXTS)
    few = {"max_new_tokens": 3, "jit_compile": False}
    for name in ("writer", "translator"):
        assert tasks[name].generate(texts, **few) == tasks[name].generate(TEXTS, **few), name
    np.testing.assert_allclose(tasks["writer"].score(texts, texts), tasks["writer"].score(TEXTS, TEXTS), rtol=1e-5)
    masked = [f"{text} <mask>" for text in TEXTS]
    assert tasks["masked"].fill_mask(of(masked))[2] == tasks["masked"].fill_mask(masked)[2]
    with pytest.raises(ValueError, match=r"texts\[0\] must have a '<mask>' to fill, got 'alpha beta'"):
        tasks["masked"].fill_mask(texts)
    tokenizer = tasks["classifier"].tokenizer
    assert tokenizer(texts).to_list() == tokenizer.tokenize(TEXTS).to_list()
    np.testing.assert_array_equal(tasks["classifier"].preprocessor(texts)["token_ids"].numpy().shape[0], len(TEXTS))


def test_only_the_first_rows_tell_what_a_column_holds():
    column = Lazy(TEXTS * 100)
    assert is_raw(column)
    assert column.reads <= 8


def test_tables_name_their_columns(tasks):
    for table in (
        pytest.importorskip("datasets").Dataset.from_dict({"text": TEXTS}),
        pytest.importorskip("pyarrow").table({"text": TEXTS}),
        pytest.importorskip("pandas").DataFrame({"text": TEXTS}),
    ):
        with pytest.raises(TypeError, match=r"x must be .*pass one of the columns \['text'\]"):
            tasks["classifier"].predict(table)
    with pytest.raises(TypeError, match=r"x must be texts .*, got DataFrame"):
        tasks["classifier"].predict(pytest.importorskip("pandas").DataFrame(index=range(3)))


def test_one_mirrored_device(make_task):
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = make_task(TextClassifier, labels=["bad", "good"], head_dropout=0.0)
        model.compile(keras.optimizers.SGD(0.0))
    model.run_eagerly = False
    plain = make_task(TextClassifier, labels=["bad", "good"], head_dropout=0.0)
    plain.compile(keras.optimizers.SGD(0.0))
    history = model.fit(TEXTS, LABELS, validation_data=(TEXTS, LABELS), verbose=0).history
    np.testing.assert_allclose(history["loss"], plain.fit(TEXTS, LABELS, verbose=0).history["loss"], rtol=1e-5)
    np.testing.assert_allclose(loss(model, TEXTS, LABELS), history["val_loss"][0], rtol=1e-5)


def test_names_of_keras_hub_that_are_others_here(tasks):
    with pytest.raises(TypeError, match=r"sampler.*'top_k'.*generate\(sampler="):
        tasks["writer"].compile(sampler="top_k")
    with pytest.raises(ValueError, match="preset must be .*'kaggle://keras/bert'.*kagglehub"):
        CausalLM.from_preset("kaggle://keras/bert")
    for options, message in (
        ({"num_classes": 2}, "takes no num_classes: use labels"),
        ({"activation": "softmax"}, r"takes no activation: use predict\(texts\)"),
    ):
        with pytest.raises(TypeError, match=message):
            TextClassifier.from_preset("bert_base_uncased", load_weights=False, **options)
        with pytest.raises(TypeError, match=message):
            TextClassifier(tasks["classifier"].backbone, tasks["classifier"].tokenizer, **options)
    with pytest.raises(TypeError, match="takes no preprocessor: use tokenizer"):
        CausalLM.from_preset("gpt2_small", load_weights=False, preprocessor=None)
    for method in (tasks["writer"].generate, tasks["writer"].stream):
        with pytest.raises(TypeError, match="takes no stop_token_ids: use stop"):
            method("alpha", stop_token_ids=[1])
    for options, message in (
        ({"temperature": 0.5}, r"takes no temperature: use sampler=\{'name': 'sample', 'temperature': \.\.\.\}"),
        ({"top_k": 5}, "takes no top_k: use sampler=.*'sample', 'top_k'"),
        ({"num_beams": 4}, "takes no num_beams: use sampler=.*'beam', 'num_beams'"),
        ({"do_sample": True}, "takes no do_sample: use sampler='sample'"),
    ):
        with pytest.raises(TypeError, match=message):
            tasks["writer"].generate("alpha", **options)
    for options, message in (
        ({"rank": 4, "target_layer_names": ["query"]}, "takes no target_layer_names: use targets"),
        ({"r": 4, "lora_alpha": 8}, "takes no r: use rank"),
        ({"rank": 4, "use_dora": True}, "takes no use_dora: use dora"),
    ):
        with pytest.raises(TypeError, match=r"enable_lora\(\) " + message):
            tasks["writer"].enable_lora(**options)
    with pytest.raises(ValueError, match="got 'top_k' of KerasHub: use .*'sample', 'top_k': 5"):
        tasks["writer"].generate("alpha", sampler="top_k")
    with pytest.raises(NotImplementedError, match=r"enable_lora\(\) .*use model.enable_lora\(rank\)"):
        tasks["writer"].backbone.enable_lora(rank=4)


def test_a_vocabulary_size_may_be_called_as_in_keras_hub(mask_tokenizer):
    size = mask_tokenizer.vocabulary_size
    assert size() == size == len(mask_tokenizer.get_vocabulary())
    assert type(size()) is int and json.loads(json.dumps({"size": size})) == {"size": size}
    assert tf.constant(size).numpy() == tf.function(lambda: tf.constant(size))().numpy() == size
    assert keras.ops.one_hot(np.array([0]), size).shape == (1, size)
    assert pickle.loads(pickle.dumps(size)) == copy.deepcopy(size) == size


def test_tasks_say_what_they_are_in_notebooks(tasks):
    shown = tasks["classifier"]._repr_html_()
    assert "<caption>TextClassifier" in shown and f"{tasks['classifier'].count_params():,}" in shown


def test_tokenizers_say_what_they_are(mask_tokenizer):
    assert repr(mask_tokenizer).startswith(f"SentencePieceTokenizer(vocabulary_size={mask_tokenizer.vocabulary_size}")


def test_preprocessors_map_datasets(tasks):
    model = tasks["classifier"]
    data = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS))
    batches = data.batch(4).map(model.preprocessor)
    np.testing.assert_allclose(loss(model, batches), loss(model, TEXTS, LABELS), rtol=1e-5)
    inputs = next(iter(data.map(lambda text, label: text).batch(4).map(model.preprocessor)))
    np.testing.assert_array_equal(inputs["token_ids"], model.preprocessor(TEXTS)["token_ids"])
    with pytest.raises(ValueError, match=r"x must hold batches of rows in a dataset, got .*shape \(\)"):
        data.map(model.preprocessor)


def test_a_split_of_sorted_rows_warns(tasks, recwarn):
    words = [text.split() for text in TEXTS]
    sorted_rows = {
        "classifier": (TEXTS, ["bad", "bad", "good", "good"], "good"),
        "several": (TEXTS, [["bad", "so"], ["so"], [], ["good", "bad"]], "good"),
        "tagger": (words, [["O", "O"], ["O"], ["O", "O", "O"], ["B-X"]], "B-X"),
    }
    for name, (inputs, labels, new) in sorted_rows.items():
        with pytest.warns(UserWarning, match=rf"validation_split .*labels \['{new}'\]"):
            tasks[name].fit(inputs, labels, validation_split=0.5, verbose=0)
    recwarn.clear()
    for name, (inputs, labels, _) in sorted_rows.items():
        mixed = [[rows[number] for number in (3, 0, 1, 2)] for rows in (inputs, labels)]
        tasks[name].fit(*mixed, validation_split=0.5, verbose=0)
    tasks["pairs"].fit((TEXTS, TEXTS), [0.5, 1.0, 2.0, 3.0], validation_split=0.5, verbose=0)
    assert not [warning for warning in recwarn if "validation_split" in str(warning.message)]


def test_weights_that_are_all_zero_are_an_error(tasks):
    model = tasks["classifier"]
    message = "{} must be above 0 for some of the rows for training, got 0 for all {}"
    for weights in ([0, 0, 0, 0], np.zeros((4, 1)), tf.zeros(4)):
        with pytest.raises(ValueError, match=message.format("sample_weight", 4)):
            model.fit(TEXTS, LABELS, sample_weight=weights, verbose=0)
    with pytest.raises(ValueError, match=message.format("sample_weight", 2)):
        model.fit(TEXTS, LABELS, sample_weight=[0, 0, 1, 1], validation_split=0.5, verbose=0)
    with pytest.raises(ValueError, match="class_weight must be above 0"):
        model.fit(TEXTS, LABELS, class_weight={"good": 0, "bad": 0}, verbose=0)
    tokens = model.preprocessor(TEXTS)
    with pytest.raises(ValueError, match=message.format("sample_weight", 4)):
        model.fit(tokens, np.array([0, 1, 0, 1]), sample_weight=np.zeros(4), verbose=0)
    assert model.fit(TEXTS, LABELS, sample_weight=[0, 0, 0, 1], verbose=0).history["loss"]
