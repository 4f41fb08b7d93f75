"""Bad and odd texts in every task: a defined result, or an error that names the row, before anything runs."""

import dataclasses

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo import Backbone, EmbeddingConfig  # noqa: E402
from zoo.tasks import CausalLM, MaskedLM, Seq2SeqLM, TextClassifier, TextEmbedder, TokenClassifier  # noqa: E402
from zoo.tokenizers import ByteLevelBPETokenizer  # noqa: E402

ODD = [
    "",
    "   ",
    "\x00\x01",
    b"\xff\xfe alpha",
    b"cut \xc3",
    "e\u0301 \U0001f600 \u202e",
    "\n\t",
    "x" * 100_000,  # one word of one unknown token
    "<pad> <eos>",
]
LONG = "alpha beta " * 9_091  # 100,001 characters
CASES = {
    TextClassifier: {"labels": 2},
    TokenClassifier: {"labels": ["O", "B-X"]},
    MaskedLM: {"mask_rate": 0.5},
    TextEmbedder: {},
    CausalLM: {},
    Seq2SeqLM: {},
}


@pytest.fixture(scope="module")
def tasks(make_task, tiny_config, tiny_tokenizer):
    """A model of each task, by its class."""
    made = {}
    for task_class, options in CASES.items():
        if task_class is Seq2SeqLM:
            keras.utils.set_random_seed(0)
            task = Seq2SeqLM(Backbone.from_config(tiny_config), tiny_tokenizer)
        else:
            config = {"architecture": "decoder", "pooler": False, "embedding": EmbeddingConfig()}
            task = make_task(task_class, config=config if task_class is CausalLM else None, **options)
        task.compile(keras.optimizers.SGD(0.01), run_eagerly=True)
        made[task_class] = task
    return made


@pytest.fixture(params=CASES, ids=lambda kind: kind.__name__)
def task(request, tasks):
    return tasks[request.param]


def columns(task, texts):
    """`(x, y)` for `fit`; a text becomes a row of words for a `TokenClassifier`."""
    if isinstance(task, TextClassifier):
        return texts, [index % 2 for index in range(len(texts))]
    if isinstance(task, TokenClassifier):
        words = [list(text.split()) for text in texts]
        return words, [["O"] * len(row) for row in words]
    if isinstance(task, TextEmbedder):
        return (texts, texts[::-1]), None
    return texts, texts[::-1] if isinstance(task, Seq2SeqLM) else None


def predict(task, texts):
    """What the task says of each text, in a form that can be compared."""
    if isinstance(task, (CausalLM, Seq2SeqLM)):
        return task.generate(texts, max_length=20, jit_compile=False)
    if isinstance(task, MaskedLM):
        parts = [text if isinstance(text, bytes) else text.encode() for text in texts]
        return [
            [[token for token, _ in mask] for mask in row]
            for row in task.fill_mask([b"<mask> " + part for part in parts], top_k=2)
        ]
    values = task.predict([list(text.split()) for text in texts] if isinstance(task, TokenClassifier) else texts)
    return [np.round(np.asarray(row, "float64"), 4).tolist() for row in values]


def test_odd_texts_have_defined_results(task):
    x, y = columns(task, ODD)
    losses = task.fit(x, y, batch_size=4, verbose=0).history["loss"]
    assert np.all(np.isfinite(losses))
    evaluated = task.evaluate(x, y, batch_size=4, verbose=0)
    assert np.all(np.isfinite(evaluated))
    together = predict(task, ODD)
    assert len(together) == len(ODD)
    if isinstance(task, (TextClassifier, TextEmbedder, TokenClassifier)):
        assert all(np.all(np.isfinite(row)) for row in together)
    # each alone is what it is among others
    for row in (0, 3, 7):
        alone = predict(task, [ODD[row]])[0]
        if isinstance(alone, str) or isinstance(task, MaskedLM):
            assert alone == together[row]
        else:
            np.testing.assert_allclose(alone, together[row], atol=2e-4)


def test_spelled_special_tokens_are_text(task):
    """What a text spells cannot end it, nor stand for padding."""
    inputs = task.preprocessor(["<eos> <pad>"])
    side = "encoder_" if isinstance(task, Seq2SeqLM) else ""
    ids = inputs[f"{side}token_ids"].numpy()[inputs[f"{side}padding_mask"].numpy()].tolist()
    tokenizer = task.tokenizer
    first = int(ids[0] == tokenizer.start_id)
    inside = ids[first : -1 if ids[-1] == tokenizer.end_id else None]
    assert len(inside) > 5 and not {tokenizer.start_id, tokenizer.end_id, tokenizer.pad_id} & set(inside)


def test_100_000_characters_are_an_error_that_names_the_row(task):
    texts = ["alpha", LONG, "beta", LONG]
    x, y = columns(task, texts)
    where = r"x\[0\]\[1\]" if isinstance(task, TextEmbedder) else r"x\[1\]"
    before = int(task.optimizer.iterations)
    with pytest.raises(ValueError, match=where + r" has \d+ tokens .*max_length=\d+ \(2 of 4 rows are too long\)"):
        task.fit(x, y, verbose=0)
    assert int(task.optimizer.iterations) == before
    with pytest.raises(ValueError, match=r"(x|texts)\[1\] (has \d+ tokens|must leave room .*, got \d+)"):
        predict(task, texts)


def test_rows_that_are_no_text(task):
    x, y = columns(task, ["alpha", "beta"])
    for bad in (3, None, 2.5, ["alpha", ["beta"]]):
        rows = [["alpha"], [bad]] if isinstance(task, TokenClassifier) else ["alpha", bad]
        rows = (rows, ["a", "b"]) if isinstance(task, TextEmbedder) else rows
        with pytest.raises((TypeError, ValueError), match=r"x(\[0\])?\[1\]"):
            task.fit(rows, y, verbose=0)
    if not isinstance(task, (TokenClassifier, TextEmbedder)):
        import pandas

        for first in (None, np.nan):
            for rows in (np.array([first, "beta"], dtype=object), pandas.Series([first, "beta"], dtype=object)):
                with pytest.raises(TypeError, match=r"x\[0\] must be a string, got (NoneType None|float nan)"):
                    task.fit(rows, y, verbose=0)
    surrogate = [["alpha"], ["\ud800"]] if isinstance(task, TokenClassifier) else ["alpha", "\ud800"]
    surrogate = (surrogate, ["a", "b"]) if isinstance(task, TextEmbedder) else surrogate
    with pytest.raises(ValueError, match=r"x(\[0\])?\[1\].*UTF-8"):
        task.fit(surrogate, y, verbose=0)


def test_texts_without_a_token_where_nothing_is_added(encoder_config):
    """GPT-2 has no start token of its own: an empty text has nothing to learn from, and nothing breaks."""
    tokenizer = ByteLevelBPETokenizer.train(["alpha beta", "beta gamma"] * 3, 270)
    keras.utils.set_random_seed(0)
    config = dataclasses.replace(
        encoder_config,
        architecture="decoder",
        vocabulary_size=tokenizer.vocabulary_size,
        pooler=False,
        embedding=EmbeddingConfig(),
    )
    task = CausalLM(Backbone.from_config(config), tokenizer)
    task.compile(keras.optimizers.SGD(0.01), run_eagerly=True)
    for texts in (["", "alpha", ""], ["", ""]):
        assert np.all(np.isfinite(task.fit(texts, verbose=0).history["loss"]))
        assert np.all(np.isfinite(task.score(texts)))
        assert len(task.generate(texts, max_new_tokens=3, jit_compile=False)) == len(texts)
    assert np.all(np.isfinite(task.fit(["", "alpha"], packed=True, verbose=0).history["loss"]))


@pytest.mark.parametrize(
    ("task_class", "y", "message"),
    [
        (TextClassifier, [0, 2], r"y\[1\] must be .* from 0 to 1, got 2"),
        (TextClassifier, [0, -1], r"y\[1\] must be .* from 0 to 1, got -1"),
        (TextClassifier, [0, 0.5], r"y\[1\] must be .* got 0.5"),
        (TextClassifier, [0, None], r"y\[1\] must be"),
        (TokenClassifier, [["O"], ["B-Y"]], r"y\[1\]\[0\] must be one of .* got 'B-Y'"),
        (TokenClassifier, [["O"], [2]], r"y\[1\]\[0\] must be .* got 2"),
        (TokenClassifier, [["O"], [-1]], r"y\[1\]\[0\] must be .* got -1"),
        (TokenClassifier, [["O"], ["O", "O"]], r"y\[1\] must hold one label per word, got 2 labels for the 1 words"),
        (TokenClassifier, [["O"], []], r"y\[1\] must hold one label per word, got 0 labels for the 1 words"),
    ],
)
def test_labels_out_of_range(tasks, task_class, y, message):
    task = tasks[task_class]
    x, _ = columns(task, ["alpha", "beta"])
    before = int(task.optimizer.iterations)
    with pytest.raises((TypeError, ValueError), match=message):
        task.fit(x, y, verbose=0)
    assert int(task.optimizer.iterations) == before


def test_unknown_special_tokens(tasks, tiny_config, tiny_tokenizer, mask_tokenizer, encoder_config):
    with pytest.raises(ValueError, match="token must be in the vocabulary of 26 tokens, got '<begin>'"):
        Seq2SeqLM(Backbone.from_config(tiny_config), tiny_tokenizer, decoder_start_token="<begin>")
    with pytest.raises(ValueError, match="special_tokens: '<hole>' is no special token of this tokenizer"):
        mask_tokenizer.tokenize("alpha <hole>", special_tokens=["<hole>"])
    with pytest.raises(ValueError, match="mask_token must be in the vocabulary .*, got '<hole>'"):
        type(mask_tokenizer)(mask_tokenizer.proto, mask_token="<hole>")
    # a mask that is none is text, and the row says so
    with pytest.raises(ValueError, match=r"texts\[0\] must have a '<mask>' to fill, got 'alpha \[MASK\]'"):
        tasks[MaskedLM].fill_mask(["alpha [MASK]"])
