"""The endpoint `attention` of exports: weights of the backbone with the tokens that they belong to."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

import served_tasks  # noqa: E402

import zoo  # noqa: E402

TEXTS = ["Ada lives in London", "who are you today?", "wörld"]


@pytest.fixture(scope="module")
def tasks():
    return served_tasks.make_tasks()


@pytest.fixture(scope="module")
def exported(tasks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    tasks["names"].export(folder / "names", attention=True)
    return tf.saved_model.load(str(folder / "names"))


def test_weights_are_those_of_the_backbone(tasks, exported):
    task = tasks["names"]
    found = {name: value.numpy() for name, value in exported.attention(tf.constant(TEXTS)).items()}
    for row, text in enumerate(TEXTS):
        alone = task.preprocessor.inputs(task.preprocessor.tokens(tf.constant([text])))
        ids = alone["token_ids"].numpy()[0][alone["padding_mask"].numpy()[0]]
        count = len(ids)
        assert found["lengths"][row] == count
        # one row without padding, every head by itself
        inputs = {"token_ids": ids[None], "padding_mask": np.ones((1, count), bool)}
        heads = [np.asarray(block)[0] for block in task.backbone.attention_weights(inputs)["encoder"]]
        expected = np.stack([block.sum(axis=0) / len(block) for block in heads])
        np.testing.assert_allclose(found["attention"][row, :, :count, :count], expected, atol=1e-5)
        np.testing.assert_allclose(found["attention"][row, :, :count].sum(axis=-1), 1, rtol=1e-5)
        assert not found["attention"][row, :, count:].any() and not found["attention"][row, :, :, count:].any()
        names = [token.decode() for token in found["tokens"][row]]
        special = {
            task.tokenizer.id_to_token(index)
            for index in task.preprocessor.special_tokens().values()
            if index is not None
        }
        assert not any(names[count:]) and special <= set(names)
        assert "".join(name for name in names if name not in special).replace("▁", "") == text.replace(" ", "")


def test_long_texts_are_refused(exported):
    with pytest.raises(tf.errors.InvalidArgumentError, match="more tokens than the model takes"):
        exported.attention(tf.constant(["Ada " * 200]))


def test_two_stacks(tasks):
    task = tasks["translations"]
    endpoint = task.attention_endpoint()
    found = endpoint.function(tf.constant(TEXTS[:2]), tf.constant(["in London", "you"]))
    found = {name: np.asarray(value) for name, value in found.items()}
    assert sorted(found) == sorted(field.name for field in endpoint.outputs)
    for row in range(2):
        source, written = found["source_lengths"][row], found["written_lengths"][row]
        sizes = {"encoder": (source, source), "decoder": (written, written), "cross": (written, source)}
        for kind, (queries, keys) in sizes.items():
            weights = found[kind][row]
            np.testing.assert_allclose(weights[:, :queries, :keys].sum(axis=-1), 1, rtol=1e-5)
            assert not weights[:, queries:].any()
        # the decoder sees nothing that comes later
        assert not np.triu(found["decoder"][row], 1).any()
        # what it is given at a place is what it was to write at the place before
        assert (found["given_tokens"][row, 1:written] == found["written_tokens"][row, : written - 1]).all()


def test_a_language_model_sees_what_stands_before(tasks):
    tokenizer = tasks["names"].tokenizer
    task = zoo.CausalLM(served_tasks.make_backbone("decoder", tokenizer, 7), tokenizer)
    found = task.attention_endpoint().function(tf.constant(["who are you", "in"]))
    weights, lengths = np.asarray(found["attention"]), np.asarray(found["lengths"])
    assert lengths[0] > lengths[1] and not np.triu(weights, 1).any()
    np.testing.assert_allclose(weights.sum(axis=-1)[0, :, : lengths[0]], 1, rtol=1e-5)


def test_what_has_no_attention_is_refused(tasks, tmp_path):
    tokenizer = tasks["translations"].tokenizer
    config = zoo.RecurrentConfig(tokenizer.vocabulary_size, embedding_dim=8, hidden_dim=8, attention="none")
    task = zoo.Seq2SeqLM(zoo.Backbone.from_config(config), tokenizer)
    with pytest.raises(ValueError, match="attention must be False for a backbone without attention"):
        task.export(tmp_path / "none", attention=True)
    both = zoo.TextClassifier(tasks["translations"].backbone, tokenizer, labels=["a", "b"])
    with pytest.raises(ValueError, match="attention must be False for a TextClassifier whose"):
        both.export(tmp_path / "both", attention=True)
