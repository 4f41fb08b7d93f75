"""Tokenizers that put a space before the first text only, as Transformers 5 saves Llama's, against `tokenizers`."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tokenizers

from zoo.tokenizers import (
    ChatFormat,
    SentencePieceTokenizer,
    Tokenizer,
    Turn,
    load_huggingface,
    save_huggingface,
    tokenize_chat,
)

decoders, models = tokenizers.decoders, tokenizers.models
SPECIAL = ["<unk>", "<s>", "</s>"]
MERGES = [("\u2581", "h"), ("h", "e"), ("l", "l"), ("\u2581h", "e"), ("\u2581", "\u2581"), ("\u2581he", "ll")]
PIECES = ["\u2581", "h", "e", "l", "o", "[", "]"]
TEXTS = [
    "",
    " ",
    "  ",
    "   ",
    "hello",
    " hello",
    "  hello",
    "hello  ",
    "\u2581",
    "\u2581hello",
    " \u2581hello",
    "\U0001f600 hello",
    "\nhello",
    "\thello\n hello",
    "\u00a0hello",
    "\u3000",
    "\x00he",
    "<s>[INST] hello",
    "</s>hello",
    "</s> hello",
    "hello</s>hello</s>",
    " </s>hello",
    "<s></s><s>",
    "<user>hello",
    "hello<user>hello",
    "hello <user> hello",
    " <left> hello",
    "<left> hello",
    "hello \n<left>\n hello<unk>he",
]


def write(folder, scheme):
    tokens = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES, *(a + b for a, b in MERGES)]
    ids = {token: index for index, token in enumerate(tokens)}
    library = tokenizers.Tokenizer(models.BPE(ids, MERGES, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    library.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    library.decoder = decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] * (scheme != "never"))
    library.add_special_tokens([tokenizers.AddedToken(token, normalized=False) for token in SPECIAL])
    library.add_special_tokens([tokenizers.AddedToken("<left>", lstrip=True, rstrip=True, normalized=False)])
    library.add_tokens([tokenizers.AddedToken("<user>", normalized=False)])
    folder.mkdir()
    library.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"unk_token": "<unk>", "eos_token": "</s>"}))
    return library


@pytest.fixture(scope="module", params=["first", "always", "never"])
def pair(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepend") / request.param
    return write(folder, request.param), load_huggingface(folder)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepend") / "files"
    return write(folder, "first"), load_huggingface(folder)


def positions(starts, ends):
    return [list(zip(*row, strict=True)) for row in zip(starts.to_list(), ends.to_list(), strict=True)]


@pytest.mark.parametrize("found", [True, False])
def test_equals_the_library(pair, found):
    library, ours = pair
    library.encode_special_tokens = not found
    expected = library.encode_batch(TEXTS, add_special_tokens=False)
    ids, starts, ends = ours.tokenize_with_offsets(TEXTS, special_tokens=found)
    assert ids.to_list() == [encoding.ids for encoding in expected]
    assert ours.tokenize(TEXTS, special_tokens=found).to_list() == ids.to_list()
    assert positions(starts, ends) == [encoding.offsets for encoding in expected]
    if not found:
        assert [text.decode() for text in ours.detokenize(ids).numpy()] == library.decode_batch(ids.to_list())


def test_is_written_and_stored(pair, tmp_path):
    library, ours = pair
    expected = ours.tokenize(TEXTS, special_tokens=True).to_list()
    save_huggingface(ours, tmp_path / "theirs")
    written = tokenizers.Tokenizer.from_file(str(tmp_path / "theirs" / "tokenizer.json"))
    assert [encoding.ids for encoding in written.encode_batch(TEXTS)] == expected
    assert written.decode_batch(expected) == library.decode_batch(expected)
    assert (tmp_path / "theirs" / "tokenizer.model").exists() == (ours.prepend_scheme is None)
    ours.save(tmp_path / "ours")
    for again in (
        load_huggingface(tmp_path / "theirs"),
        Tokenizer.load(tmp_path / "ours"),
        SentencePieceTokenizer.from_config(ours.get_config()),
    ):
        assert again.prepend_scheme == ours.prepend_scheme
        assert again.tokenize(TEXTS, special_tokens=True).to_list() == expected


def test_words(first):
    library, ours = first
    words = [["hello", "he", "", "<user>he", "\u2581he"], [], ["", "he"], ["<user>"]]
    ids, word_ids = ours.tokenize_words(words)
    library.encode_special_tokens = True
    assert ids.to_list() == [
        encoding.ids for encoding in library.encode_batch(["hello he <user>he \u2581he", "", " he", "<user>"])
    ]
    assert [sorted(set(row)) for row in word_ids.to_list()] == [[0, 1, 3, 4], [], [1], [0]]


@pytest.mark.parametrize("start", ["", "<s>"])
def test_conversations(first, start):
    library, ours = first
    turns = {"user": Turn("[", "]"), "assistant": Turn("hello", "</s>")}
    ours = ours.with_chat_format(ChatFormat(turns, start, "hello", special_tokens=("<s>", "</s>")))
    contents = ["he", "llo", "o"]
    messages = [
        {"role": role, "content": text} for role, text in zip(["user", "assistant", "user"], contents, strict=True)
    ]
    library.encode_special_tokens = False
    assert ours.chat_format.render(messages) == f"{start}[he]hellollo</s>[o]hello"
    assert tokenize_chat(ours, messages) == library.encode(ours.chat_format.render(messages)).ids


def test_in_a_graph_and_saved_model(first, tmp_path):
    _, ours = first
    module = tf.Module()
    module.resources = ours.trackables
    module.ids = tf.function(
        lambda texts: ours.tokenize(texts, special_tokens=True).to_tensor(-1),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    tf.saved_model.save(module, str(tmp_path))
    expected = ours.tokenize(TEXTS, special_tokens=True).to_tensor(-1).numpy()
    for made in (module, tf.saved_model.load(str(tmp_path))):
        np.testing.assert_array_equal(made.ids(tf.constant(TEXTS)).numpy(), expected)


def test_a_text_that_grows_keeps_its_beginning(first):
    _, ours = first
    for text in (" hello \U0001f600 hello", "\U0001f600he", "   he"):
        ids = ours.tokenize(text).numpy()
        texts = ours.detokenize([ids[:count].tolist() for count in range(1, len(ids) + 1)]).numpy()
        shown = [text.decode("utf-8", "ignore").rstrip("\ufffd") for text in texts]
        assert all(long.startswith(short) for short, long in zip(shown, shown[1:], strict=False))


def test_what_is_refused(first, trained, tmp_path):
    _, ours = first
    write(tmp_path / "files", "first")
    path = tmp_path / "files" / "tokenizer.json"
    content = json.loads(path.read_text("utf-8"))
    for part, change, message in (
        ("pre_tokenizer", {"split": True}, "pre_tokenizer.split must be .*, got True"),
        ("pre_tokenizer", {"replacement": "_"}, "pre_tokenizer.replacement must be .*, got '_'"),
        ("decoder", {"type": "ByteFallback"}, "decoder must be .*'first'.*, got"),
    ):
        path.write_text(json.dumps({**content, part: {**content[part], **change}}))
        with pytest.raises(ValueError, match=message):
            load_huggingface(tmp_path / "files")
    with pytest.raises(ValueError, match="prepend_scheme must be None, 'first' or 'always', got 'never'"):
        SentencePieceTokenizer(ours.proto, prepend_scheme="never")
    with pytest.raises(ValueError, match="prepend_scheme must be None unless .*, got 'first'"):
        SentencePieceTokenizer(trained["unigram"].proto, prepend_scheme="first")
