"""Eager calls of a tokenizer after some others run as one graph: the same results, copies, exports, threads, memory."""

import copy
import functools
import gc
import os
import pickle
import threading
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from zoo.tokenizers import SentencePieceTokenizer, eager_graphs
from zoo.tokenizers.eager_graphs import TRACED_CALL

KINDS = ["unigram", "bytes", "wordpiece", "byte_level"]


def new(name, trained, wordpiece, byte_level):
    """A tokenizer that nobody has called."""
    return copy.deepcopy({**trained, "wordpiece": wordpiece, "byte_level": byte_level}[name])


def values(result):
    return [part.numpy() for part in tf.nest.flatten(result, expand_composites=True)]


def call_often(function):
    """The result of the first call, which is no graph, after that of the last one, which is."""
    first = values(function())
    for _ in range(eager_graphs.TRACED_CALL):
        last = values(function())
    return first, last


@pytest.mark.parametrize("name", KINDS)
def test_same_results(name, trained, wordpiece, byte_level, awkward_texts, monkeypatch):
    monkeypatch.setattr(eager_graphs, "TRACED_CALL", 2)
    tokenizer = new(name, trained, wordpiece, byte_level)
    special = tokenizer.special_tokens[:1]
    texts = [*(text for text in awkward_texts if len(text) < 10_000), f"a {special[0]} b{special[0]}"]
    ids = tokenizer.tokenize(texts)
    dense = ids.to_tensor(-1)[:, :50]
    words = [["the", "dog", ""], [], [b"\xff", "12 houses"]]
    calls = [
        lambda: tokenizer.tokenize(texts),
        lambda: tokenizer.tokenize(texts, special_tokens=special),
        lambda: tokenizer.tokenize_with_offsets(texts),
        lambda: tokenizer.tokenize_with_offsets(texts, unit="bytes", special_tokens=True),
        lambda: tokenizer.tokenize_words(words),
        lambda: tokenizer.detokenize(ids),
        lambda: tokenizer.detokenize(ids.with_row_splits_dtype(tf.int32)),
    ]
    for call in calls:
        for one, other in zip(*call_often(call), strict=True):
            np.testing.assert_array_equal(one, other)
    # other shapes take the same graphs
    assert tokenizer.tokenize([]).to_list() == []
    assert tokenizer.tokenize(texts[4]).numpy().tolist() == tokenizer.tokenize([texts[4]]).to_list()[0]
    assert tokenizer.detokenize(dense[0]).numpy() == tokenizer.detokenize(dense).numpy()[0]
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    assert tokenizer.tokenize(texts).to_list() == ids.to_list()


class Watched(SentencePieceTokenizer, kind="watched_for_tests"):
    """Remembers which calls were eager; refuses some texts."""

    def __init__(self, proto, **options):
        super().__init__(proto, **options)
        self.were_eager = []

    def _tokenize(self, texts):
        self.were_eager.append(tf.executing_eagerly())
        rows = tf.where(tf.strings.regex_full_match(texts, "bad"))
        with tf.control_dependencies([tf.debugging.assert_equal(tf.size(rows), 0, "there is a bad row")]):
            return super()._tokenize(tf.identity(texts))


def test_traced_once_for_all_shapes(trained, sentences):
    tokenizer = Watched(trained["unigram"].proto)
    for batch in (sentences[:1], sentences, sentences[0], [], tf.constant(sentences[:3]), *[["a"]] * 2 * TRACED_CALL):
        tokenizer.tokenize(batch)
    assert tokenizer.were_eager == [True] * (TRACED_CALL - 1) + [False]


class InPython(SentencePieceTokenizer, kind="in_python_for_tests"):
    """Normalises texts in Python, which takes their values."""

    def _tokenize(self, texts):
        return super()._tokenize(tf.constant([text.decode().casefold() for text in texts.numpy()], tf.string))


class Branching(SentencePieceTokenizer, kind="branching_for_tests"):
    """Asks Python what to do about tensors."""

    def _tokenize(self, texts):
        if tf.reduce_any(texts == "bad"):
            raise ValueError("there is a bad row")
        return super()._tokenize(texts)


def test_what_needs_eager_values_goes_on_without_a_graph(trained):
    tokenizer, plain = InPython(trained["unigram"].proto), trained["unigram"]
    expected = plain.tokenize(["the dog", "a house"]).to_list()
    words = plain.tokenize_words([["the", "dog"]])[0].to_list()
    for _ in range(TRACED_CALL + 2):
        assert tokenizer.tokenize(["THE Dog", "A HOUSE"]).to_list() == expected
        assert tokenizer.tokenize_words([["The", "DOG"]])[0].to_list() == words
    # others of its calls have their graphs
    for one, other in zip(*call_often(lambda: tokenizer.detokenize(expected)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert sum(graph is not None for graph in tokenizer._graphs._graphs.values()) == 1


def test_its_errors_are_its_own(trained):
    tokenizer = Branching(trained["unigram"].proto)
    for _ in range(TRACED_CALL + 2):
        with pytest.raises(ValueError, match="there is a bad row"):
            tokenizer.tokenize(["good", "bad"])
    assert tokenizer.tokenize("good").numpy().tolist() == trained["unigram"].tokenize("good").numpy().tolist()


def test_errors_are_those_of_the_operation(trained):
    tokenizer = Watched(trained["unigram"].proto)
    messages = set()
    for _ in range(TRACED_CALL + 2):
        tokenizer.tokenize("good")
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            tokenizer.tokenize(["good", "bad"])
        messages.add(str(caught.value))
    assert False in tokenizer.were_eager
    assert len(messages) == 1 and "there is a bad row" in messages.pop()
    with pytest.raises(TypeError, match=r"texts\[1\] must be str or bytes, got 3"):
        tokenizer.tokenize(["a", 3])


def test_copies_have_graphs_of_their_own(byte_level, sentences):
    tokenizer = copy.deepcopy(byte_level)
    before = tokenizer.get_config()
    expected = call_often(functools.partial(tokenizer.tokenize, sentences))[1]
    assert tokenizer.get_config() == before
    others = [
        tokenizer.with_chat_format("chatml"),
        copy.copy(tokenizer),
        copy.deepcopy(tokenizer),
        pickle.loads(pickle.dumps(tokenizer)),
        keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(tokenizer)),
    ]
    reference = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert reference() is None
    for other in others:
        for result in call_often(functools.partial(other.tokenize, sentences)):
            for one, two in zip(result, expected, strict=True):
                np.testing.assert_array_equal(one, two)


def test_an_export_has_no_part_of_them(tmp_path, byte_level, sentences):
    sizes = []
    for calls in (0, TRACED_CALL):
        tokenizer = copy.deepcopy(byte_level)
        for _ in range(calls):
            tokenizer.tokenize(sentences)
            tokenizer.detokenize([1, 2])
        module = tf.Module()
        module.tokenizer_resources = tokenizer.trackables
        module.tokenizer = tokenizer
        module.tokenize = tf.function(tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
        tf.saved_model.save(module, str(tmp_path / str(calls)))
        content = (tmp_path / str(calls) / "saved_model.pb").read_bytes()
        functions = SavedModel.FromString(content).meta_graphs[0].graph_def.library.function
        sizes.append((len(functions), sum(len(function.node_def) for function in functions)))
    assert sizes[0] == sizes[1]


def test_gone_with_the_tokenizer(trained):
    tokenizer = Watched(trained["bytes"].proto)
    for _ in range(TRACED_CALL):
        tokenizer.tokenize("a")
    (graph,) = tokenizer._graphs._graphs.values()
    name = graph.function_def.signature.name
    references = [weakref.ref(tokenizer), weakref.ref(graph), weakref.ref(graph.graph)]
    gc.collect()
    gc.disable()
    try:
        del tokenizer, graph
        assert references[0]() is None  # nothing refers to it, not even a cycle
    finally:
        gc.enable()
    gc.collect()
    assert [reference() for reference in references] == [None] * 3
    with pytest.raises(tf.errors.InternalError, match="Can't find a function"):
        tf.raw_ops.PartitionedCall(args=[], Tout=[], f=name)


def test_threads(byte_level, sentences):
    tokenizer = copy.deepcopy(byte_level)
    expected = [byte_level.tokenize(sentences[start::8]).to_list() for start in range(8)]
    wrong = []

    def work(start):
        for _ in range(TRACED_CALL):
            ids = tokenizer.tokenize(sentences[start::8])
            if ids.to_list() != expected[start]:
                wrong.append(start)

    threads = [threading.Thread(target=work, args=[start]) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_is_told(byte_level):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            byte_level.tokenize("a dog")
            os.write(writer, b"ids")
        except RuntimeError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    assert "must not be called in a forked process" in os.read(reader, 1000).decode()
    os.close(reader)
