"""SentencePieceTokenizer against the `sentencepiece` package, and its behaviour on odd input."""

import copy
import pickle
import random

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from sentencepiece import sentencepiece_model_pb2

from zoo.tokenizers import SentencePieceTokenizer

KINDS = ("unigram", "bpe", "bytes")


def processor(tokenizer):
    return sentencepiece.SentencePieceProcessor(model_proto=tokenizer.proto)


def assert_same_as_package(tokenizer, texts):
    reference = processor(tokenizer)
    rows = tokenizer.tokenize(texts).to_list()
    decoded = tokenizer.detokenize(rows).numpy()
    for text, row, string in zip(texts, rows, decoded, strict=True):
        expected = reference.encode(text)
        assert row == expected, text[:50]
        assert string.decode("utf-8") == (reference.decode(expected) if expected else ""), text[:50]


def assert_detokenizes_random_ids(tokenizer):
    """Ids that no text gives: many leading spaces, unknown tokens, cut byte sequences."""
    reference = processor(tokenizer)
    generator = random.Random(0)
    vocabulary = tokenizer.get_vocabulary()
    spaces = [index for index, token in enumerate(vocabulary) if token.startswith("\u2581")]
    spaces += [index for index, token in enumerate(vocabulary) if token.strip("\u2581") == ""] * 10
    silent = {tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id}
    usual = [index for index in range(tokenizer.vocabulary_size) if index not in silent]
    rows = [
        [generator.choice(spaces if generator.random() < 0.4 else usual) for _ in range(generator.randrange(7))]
        for _ in range(1000)
    ]
    expected = [reference.decode(row) if row else "" for row in rows]
    assert [string.decode("utf-8") for string in tokenizer.detokenize(rows).numpy()] == expected


@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_package_on_awkward_texts(trained, awkward_texts, kind):
    assert_same_as_package(trained[kind], awkward_texts)


@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_package_on_random_characters(trained, kind):
    generator = random.Random(1)
    alphabet = "abdeh \u00fc\u00e9\u0301.\t<>\u2581\U0001f642\u4f60\ufeff12\x00"
    texts = ["".join(generator.choices(alphabet, k=generator.randrange(30))).encode() for _ in range(500)]
    assert_same_as_package(trained[kind], texts)


@pytest.mark.parametrize("kind", KINDS)
def test_detokenizes_any_ids_as_the_package(trained, kind):
    assert_detokenizes_random_ids(trained[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_same_ids_eagerly_in_tf_function_and_in_tf_data(trained, awkward_texts, kind):
    tokenizer = trained[kind]
    eager = tokenizer.tokenize(awkward_texts)
    signature = [tf.TensorSpec([None], tf.string)]
    assert tf.function(tokenizer.tokenize, input_signature=signature)(awkward_texts).to_list() == eager.to_list()
    dataset = tf.data.Dataset.from_tensor_slices(awkward_texts)
    single = [row.tolist() for row in dataset.map(tokenizer.tokenize).as_numpy_iterator()]
    assert single == eager.to_list()
    batched = dataset.batch(4).map(tokenizer.tokenize, num_parallel_calls=2)
    assert [row for batch in batched for row in batch.to_list()] == eager.to_list()
    texts = batched.map(tokenizer.detokenize).unbatch()
    assert list(texts.as_numpy_iterator()) == tokenizer.detokenize(eager).numpy().tolist()


def test_identity_with_bytes_comes_back_exactly(trained):
    texts = ["", " ", "  a  b ", "\ta\n\r\nb", "\U0001f642 e\u0301\u4f60", "\x00\x01", "\u2585\ufb01", "x" * 5000]
    decoded = trained["bytes"].detokenize(trained["bytes"].tokenize(texts))
    assert [string.decode("utf-8") for string in decoded.numpy()] == texts


def test_invalid_utf8_reads_as_replacement_characters(trained):
    tokenizer = trained["bytes"]
    assert tokenizer.detokenize(tokenizer.tokenize(b"a\xff\xfeb\xc3")).numpy().decode() == "a\ufffd\ufffdb\ufffd"


def test_control_tokens_are_not_made_from_text_but_user_tokens_are(trained):
    ids = trained["unigram"].tokenize("the <eos> <mask> <pad>").numpy()
    assert trained["unigram"].token_to_id("<mask>") in ids
    assert not {0, 1, 2} & set(ids.tolist())


def test_detokenize_drops_special_tokens_and_all_after_the_end(trained):
    tokenizer = trained["unigram"]
    dog, ball = tokenizer.tokenize(["the dog", "a red ball"]).to_list()
    rows = [
        [1, *dog, 2, *ball],  # text after the end
        [0, 0, *ball, 0, 0],  # padding at both sides
        [2, *dog],  # ended before it began
        [*ball],
        [],
        [1, 0, 2, 2],
        [1, *dog],  # the end tokens of earlier rows must not reach here
    ]
    expected = [b"the dog", b"a red ball", b"", b"a red ball", b"", b"", b"the dog"]
    ragged = tf.ragged.constant(rows, dtype=tf.int32)
    for ids in (rows, ragged, tf.cast(ragged, tf.int64), ragged.with_row_splits_dtype(tf.int32)):
        assert tokenizer.detokenize(ids).numpy().tolist() == expected
    for ids in (ragged.to_tensor(0), ragged.to_tensor(0).numpy(), ragged.to_tensor(0).numpy().astype(np.uint16)):
        assert tokenizer.detokenize(ids).numpy().tolist() == expected
    for row, text in zip(rows, expected, strict=True):
        for ids in (row, tf.constant(row, tf.int32), np.array(row, np.int64)):
            assert tokenizer.detokenize(ids).numpy() == text


def test_detokenize_shows_ids_outside_the_vocabulary_as_unknown(trained):
    tokenizer = trained["unigram"]
    expected = tokenizer.detokenize([tokenizer.unknown_id] * 3).numpy()
    assert tokenizer.detokenize([-1, tokenizer.vocabulary_size, 2**31 - 1]).numpy() == expected
    assert expected.decode().count("\u2047") == 3


def test_shapes_and_types(trained):
    tokenizer = trained["unigram"]
    assert tokenizer.tokenize([]).shape.as_list() == [0, None]
    assert tokenizer.tokenize([]).dtype == tf.int32
    assert tokenizer.tokenize("a").shape.rank == 1
    assert tokenizer.detokenize(np.zeros([0, 5], np.int32)).shape == [0]
    assert tokenizer.detokenize([]).shape == []
    for texts in (["the dog", b"a"], ("the dog", "a"), np.array(["the dog", "a"]), tf.constant(["the dog", "a"])):
        assert tokenizer.tokenize(texts).to_list() == [tokenizer.tokenize(text).numpy().tolist() for text in texts]
    assert tokenizer.tokenize(np.array("the dog")).numpy().tolist() == tokenizer.tokenize("the dog").numpy().tolist()


@pytest.mark.parametrize(
    "texts, error, message",
    [
        (["a", None], TypeError, r"texts\[1\] must be str or bytes, got None"),
        (["a", "b", 3.0], TypeError, r"texts\[2\]"),
        ([["a"]], TypeError, r"texts\[0\]"),
        (3, TypeError, "int32"),
        (["a", "\ud800"], ValueError, r"texts\[1\] can't be encoded"),
        (tf.constant([["a"]]), ValueError, "rank 0 or 1"),
        (tf.ragged.constant([["a"]]), ValueError, "ragged"),
    ],
)
def test_tokenize_names_what_is_wrong(trained, texts, error, message):
    with pytest.raises(error, match=message):
        trained["unigram"].tokenize(texts)


@pytest.mark.parametrize(
    "ids, error, message",
    [
        ([1.5], TypeError, "float64"),
        (tf.constant([1.5]), TypeError, "float32"),
        ([[1], 2], ValueError, r"ids\[1\]"),
        (np.zeros([1, 1, 1], np.int32), ValueError, "rank 1 or 2"),
        (3, ValueError, "rank 1 or 2"),
        (tf.ragged.constant([[[1]]]), ValueError, "rank 1 or 2"),
    ],
)
def test_detokenize_names_what_is_wrong(trained, ids, error, message):
    with pytest.raises(error, match=message):
        trained["unigram"].detokenize(ids)


def test_vocabulary(trained):
    tokenizer = trained["unigram"]
    vocabulary = tokenizer.get_vocabulary()
    assert vocabulary[:5] == ["<pad>", "<sos>", "<eos>", "<unk>", "<mask>"]
    assert len(vocabulary) == tokenizer.vocabulary_size == 72
    assert [tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id] == [0, 1, 2, 3]
    assert all(tokenizer.token_to_id(tokenizer.id_to_token(index)) == index for index in range(72))
    with pytest.raises(ValueError, match="'nothing'"):
        tokenizer.token_to_id("nothing")
    with pytest.raises(ValueError, match="below 72"):
        tokenizer.id_to_token(72)
    with pytest.raises(ValueError, match="-1"):
        tokenizer.id_to_token(-1)


def test_seeds_and_cleared_sessions_leave_the_model_loaded(trained):
    tokenizer = SentencePieceTokenizer(trained["bpe"].proto)
    expected = tokenizer.tokenize(["the dog"]).to_list()
    in_graph = tf.function(tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
    dataset = iter(tf.data.Dataset.from_tensors(["the dog"]).repeat(3).map(tokenizer.tokenize))
    assert in_graph(["the dog"]).to_list() == next(dataset).to_list() == expected
    for forget in (lambda: tf.random.set_seed(1), lambda: keras.utils.set_random_seed(2), keras.backend.clear_session):
        forget()
        assert tokenizer.tokenize(["the dog"]).to_list() == expected
    assert in_graph(["the dog"]).to_list() == next(dataset).to_list() == expected


def test_made_inside_a_function_works_outside(trained):
    made = []

    @tf.function
    def make():
        made.append(SentencePieceTokenizer(trained["bpe"].proto))
        return made[0].tokenize(["the dog"])

    expected = trained["bpe"].tokenize(["the dog"]).to_list()
    assert make().to_list() == made[0].tokenize(["the dog"]).to_list() == expected


def test_copies(trained):
    tokenizer = SentencePieceTokenizer(trained["unigram"].proto, end_token="<mask>")
    serialized = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(tokenizer))
    for other in (copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer)), serialized):
        assert other.proto == tokenizer.proto
        assert other.end_id == 4
        assert other.tokenize("the dog").numpy().tolist() == tokenizer.tokenize("the dog").numpy().tolist()


def test_special_tokens_can_be_chosen(trained):
    tokenizer = SentencePieceTokenizer(trained["unigram"].proto, pad_token="<eos>", start_token="<mask>")
    assert [tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id] == [2, 4, 2]
    with pytest.raises(ValueError, match="pad_token must be in the vocabulary .*, got '<none>'"):
        SentencePieceTokenizer(trained["unigram"].proto, pad_token="<none>")


def test_bad_models(tmp_path, trained):
    proto = trained["unigram"].proto
    for bad in (b"", b"not a model", proto[: len(proto) // 2]):
        with pytest.raises(ValueError, match="not a SentencePiece model"):
            SentencePieceTokenizer(bad)
    with pytest.raises(TypeError, match="from_file"):
        SentencePieceTokenizer("spm.model")
    with pytest.raises(FileNotFoundError, match="absent.model"):
        SentencePieceTokenizer.from_file(tmp_path / "absent.model")
    (tmp_path / "bad.model").write_bytes(b"not a model")
    with pytest.raises(ValueError, match="bad.model"):
        SentencePieceTokenizer.from_file(tmp_path / "bad.model")


# Published models.

T5_IDS = [8774, 296, 6, 149, 33, 25, 58]
MISTRAL_IDS = [22557, 1526, 28725, 910, 460, 368, 28804]


@pytest.fixture(scope="module", params=["t5", "mistral", "stories"])
def published(request, data_directory):
    path, ids = {
        "t5": ("tokenizers/t5_tokenizer_base.model", (0, None, 1, 2)),
        "mistral": ("tokenizers/mistral_tokenizer.model.v1", (None, 1, 2, 0)),
        "stories": ("checkpoints/stories260K/tok512.model", (None, 1, 2, 0)),
    }[request.param]
    return SentencePieceTokenizer.from_file(data_directory / path), ids


def test_published_models_have_their_special_tokens(published):
    tokenizer, ids = published
    assert (tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id) == ids
    reference = processor(tokenizer)
    package_ids = (reference.pad_id(), reference.bos_id(), reference.eos_id(), reference.unk_id())
    assert tuple(-1 if index is None else index for index in ids) == package_ids


def test_published_models_equal_the_package(published, awkward_texts, multi30k_lines):
    tokenizer, _ = published
    assert_same_as_package(tokenizer, awkward_texts)
    assert_same_as_package(tokenizer, multi30k_lines)
    assert_detokenizes_random_ids(tokenizer)


def test_published_models_give_their_documented_ids(data_directory):
    text = "Hello world, how are you?"
    for name, ids in (("t5_tokenizer_base.model", T5_IDS), ("mistral_tokenizer.model.v1", MISTRAL_IDS)):
        tokenizer = SentencePieceTokenizer.from_file(data_directory / "tokenizers" / name)
        assert tokenizer.tokenize(text).numpy().tolist() == ids


def test_loading_writes_nothing(trained, capfd):
    model = sentencepiece_model_pb2.ModelProto.FromString(trained["bpe"].proto)
    model.normalizer_spec.name, model.normalizer_spec.precompiled_charsmap = "identity", b""
    model.trainer_spec.input_format = "of this test"  # equal models are loaded once
    tokenizer = SentencePieceTokenizer(model.SerializeToString())
    assert_same_as_package(tokenizer, [b"a small dog", b"\x00\x00a\x00", "e\u0301 \ufb01 \uff21".encode()])
    assert tokenizer.proto == model.SerializeToString()
    captured = capfd.readouterr()
    assert "charsmap" not in captured.err + captured.out
