"""What exports say of the tokens of texts, and vectors of texts that come as tokens."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo.tasks import TextClassifier, TextEmbedder  # noqa: E402

TEXTS = ["kap omega", "", "ö 你好 สว"]


def ids_of(task, *texts):
    """Of one text, or of a pair, by the tokenizer alone."""
    tokenizer = task.tokenizer
    ids = [tokenizer.start_id]
    for text in texts:
        ids += [*tokenizer.tokenize(text).numpy().tolist(), tokenizer.end_id]
    return ids


def called(task, name, *columns):
    endpoint = task.endpoints()[name]
    outputs = tf.function(endpoint.function)(*map(tf.constant, columns))
    rows = [row[row >= 0].tolist() for row in outputs["token_ids"].numpy()]
    assert outputs["lengths"].numpy().tolist() == [*map(len, rows)]
    return rows


def test_tokens_of_texts_and_pairs(make_task):
    task = make_task(TextClassifier, labels=2)
    assert called(task, "tokens", TEXTS) == [ids_of(task, text) for text in TEXTS]
    assert called(task, "tokens", np.array([], "object").astype(str)) == []
    pairs = make_task(TextClassifier, labels=2, pairs=True)
    expected = [ids_of(pairs, *texts) for texts in zip(TEXTS, TEXTS[::-1], strict=True)]
    assert called(pairs, "tokens", TEXTS, TEXTS[::-1]) == expected


def test_tokens_that_are_cut_are_not_counted(make_task):
    task = make_task(TextClassifier, labels=2, truncate=True, sequence_length=8)
    long = "alpha beta gamma " * 5
    whole = ids_of(task, long)
    assert called(task, "tokens", [long, TEXTS[0]]) == [[*whole[:7], whole[-1]], ids_of(task, TEXTS[0])]
    with pytest.raises(tf.errors.InvalidArgumentError, match="more tokens than the model takes"):
        called(make_task(TextClassifier, labels=2, sequence_length=8), "tokens", [long])


def test_all_windows_of_a_text_count(make_task):
    task = make_task(TextClassifier, labels=2, sequence_length=8, stride=2, pooling="mean")
    words = ["alpha", "beta", "gamma", "omega", "theta", "alpha", "beta"]
    # six tokens fit a window, two of which are those of the one before
    expected = ids_of(task, " ".join(words[:6])) + ids_of(task, " ".join(words[4:]))
    assert called(task, "tokens", ["beta", " ".join(words), ""]) == [ids_of(task, "beta"), expected, ids_of(task, "")]


def test_prompts_are_counted(make_task):
    task = make_task(TextEmbedder, prompts={"query": "kap ", "a.b": "omega "}, default_prompt="query")
    assert called(task, "tokens", TEXTS) == [ids_of(task, f"kap {text}") for text in TEXTS]
    assert called(task, "tokens_a_b", TEXTS) == [ids_of(task, f"omega {text}") for text in TEXTS]
    # the prompt belongs before the text itself
    assert "embed_tokens" not in task.endpoints()


@pytest.mark.parametrize("options", [{}, {"width": 4, "truncate": True, "sequence_length": 8}])
def test_vectors_of_tokens(make_task, options):
    task = make_task(TextEmbedder, prompts={"query": "kap "}, **options)
    texts = [*TEXTS, "alpha beta gamma omega theta alpha beta gamma"]
    ids = task.tokenizer.tokenize(texts).to_tensor(-1)
    vectors = tf.function(task.endpoints()["embed_tokens"].function)(tf.cast(ids, tf.int32))
    np.testing.assert_allclose(vectors, task.embed(texts), rtol=1e-4, atol=1e-5)
    if not options:
        with pytest.raises(tf.errors.InvalidArgumentError, match="more tokens than the model takes"):
            task.endpoints()["embed_tokens"].function(tf.ones((1, 400), tf.int32))
