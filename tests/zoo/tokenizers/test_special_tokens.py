"""Special and added tokens in text, and words that are split already."""

import pytest
import tensorflow as tf
import tokenizers

from zoo.tokenizers import ByteLevelBPETokenizer
from zoo.tokenizers.special_tokens import StringIndex

END, START = "<|endoftext|>", "<|im_start|>"


def test_text_that_spells_special_tokens_is_text_unless_asked(byte_level, wordpiece, trained):
    for tokenizer, token in ((byte_level, END), (wordpiece, "[SEP]"), (trained["bytes"], "<eos>")):
        text = f"the dog{token} runs {token}"
        token_id = tokenizer.token_to_id(token)
        assert token_id not in tokenizer.tokenize(text).numpy()
        first, second = (tokenizer.tokenize(part).numpy().tolist() for part in ("the dog", " runs "))
        for choice in (True, [token]):
            ids = tokenizer.tokenize(text, special_tokens=choice).numpy().tolist()
            assert ids == [*first, token_id, *second, token_id]
        others = [name for name in tokenizer.special_tokens if name != token]
        assert token_id not in tokenizer.tokenize(text, special_tokens=others).numpy()


def test_positions_and_rows(byte_level):
    texts = ["", END, f"\u00e9{END}b", "no token", f"{END}{END} \x00{END}\x00x", b"\xff" + END.encode()]
    ids, starts, ends = byte_level.tokenize_with_offsets(texts, special_tokens=True)
    assert byte_level.tokenize(texts, special_tokens=True).to_list() == ids.to_list()
    end = byte_level.token_to_id(END)
    found = [
        [(begin, stop) for token, begin, stop in zip(*rows, strict=True) if token == end]
        for rows in zip(ids.to_list(), starts.to_list(), ends.to_list(), strict=True)
    ]
    assert found == [[], [(0, 13)], [(1, 14)], [], [(0, 13), (13, 26), (28, 41)], [(1, 14)]]
    assert ends.to_list()[4][-1] == 43
    _, starts, ends = byte_level.tokenize_with_offsets(texts, unit="bytes", special_tokens=True)
    assert starts.to_list()[2] == [0, 0, 2, 15] and ends.to_list()[2] == [2, 2, 15, 16]


def test_names_that_are_no_special_tokens(byte_level):
    with pytest.raises(ValueError, match=r"'<\|end\|>' is no special token of this tokenizer, which has \['<\|endof"):
        byte_level.tokenize("a", special_tokens=[END, "<|end|>"])
    with pytest.raises(TypeError, match="must be a bool or a list of tokens"):
        byte_level.tokenize("a", special_tokens=END)
    with pytest.raises(ValueError, match="unit must be 'characters' or 'bytes', got 'words'"):
        byte_level.tokenize_with_offsets("a", unit="words")


def test_added_tokens_and_white_space_equal_the_library(byte_level, odd_texts):
    vocabulary = {token: index for index, token in enumerate(byte_level.get_vocabulary())}
    vocabulary |= {
        token: len(vocabulary) + place for place, token in enumerate(["<mask>", "  ", "    ", "<b>", "<bb>"])
    }
    merges = byte_level._merges
    ours = ByteLevelBPETokenizer(
        vocabulary,
        merges,
        end_token=END,
        mask_token="<mask>",
        added_tokens=["  ", "    ", "<b>", "<bb>"],
        strip_left=["<mask>"],
        strip_right=["<b>"],
    )
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.post_processor = tokenizers.processors.ByteLevel(trim_offsets=False)
    added = tokenizers.AddedToken
    theirs.add_special_tokens([added(END), added("<mask>", lstrip=True)])
    theirs.add_tokens([added("  ", normalized=False), added("    ", normalized=False)])
    theirs.add_tokens([added("<b>", normalized=False, rstrip=True), added("<bb>", normalized=False)])
    texts = ["a \t <mask> b<mask>", "<b>\t a<bb>   b <b>", "def f():\n     return  1", f"<mask>{END}", *odd_texts[:300]]
    expected = theirs.encode_batch(texts)
    ids, starts, ends = ours.tokenize_with_offsets(texts, special_tokens=[END, "<mask>"])
    assert ids.to_list() == [encoding.ids for encoding in expected]
    positions = [list(zip(*row, strict=True)) for row in zip(starts.to_list(), ends.to_list(), strict=True)]
    assert positions == [encoding.offsets for encoding in expected]
    assert ours.tokenize("a<b>").numpy()[-1] == vocabulary["<b>"]  # always, without asking


def test_in_a_pipeline(byte_level):
    texts = [f"the dog{END}", "a", f"{START}user\n"]
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(2)
    dataset = dataset.map(lambda batch: byte_level.tokenize(batch, special_tokens=True))
    expected = byte_level.tokenize(texts, special_tokens=True).to_list()
    assert [row for batch in dataset for row in batch.to_list()] == expected


def test_string_index():
    index = StringIndex(["a", "", "\u4f60"], [7, 8, 9])
    assert index(tf.constant(["\u4f60", "b", "", "a"])).numpy().tolist() == [9, -1, 8, 7]
    with pytest.raises(ValueError, match="given twice"):
        StringIndex(["a", "a"], [0, 1])


WORDS = [["the", "dog", "runs"], [], ["", "a", "", "\u4f60\u597d!"], ["b"]]


def test_words_are_tokenized_as_in_the_text_that_they_make(byte_level, wordpiece, trained):
    rows = [["the", "dog", "runs"], ["a", "small", "child"], ["."]]
    for tokenizer in (byte_level, wordpiece, trained["bytes"], trained["unigram"]):
        ids, word_ids = tokenizer.tokenize_words(rows)
        assert ids.to_list() == tokenizer.tokenize([" ".join(row) for row in rows]).to_list()
        for row, row_ids, row_words in zip(rows, ids.to_list(), word_ids.to_list(), strict=True):
            assert sorted(set(row_words)) == list(range(len(row))) and row_words == sorted(row_words)
            for place, word in enumerate(row):
                own = [token for token, number in zip(row_ids, row_words, strict=True) if number == place]
                assert tokenizer.detokenize(own).numpy().decode().strip() == word


def test_words_of_all_lengths(wordpiece):
    ids, word_ids = wordpiece.tokenize_words(WORDS)
    assert [sorted(set(row)) for row in word_ids.to_list()] == [[0, 1, 2], [], [1, 3], [0]]
    in_graph = tf.function(wordpiece.tokenize_words, input_signature=[tf.RaggedTensorSpec([None, None], tf.string)])
    again = in_graph(tf.ragged.constant(WORDS))
    assert [part.to_list() for part in again] == [ids.to_list(), word_ids.to_list()]


@pytest.mark.parametrize(
    "words, error, message",
    [
        ([["a"], ["b", 3]], TypeError, r"words\[1\]\[1\] must be str or bytes"),
        (["a b"], TypeError, r"words\[0\] must be a list of words"),
        ("a b", TypeError, "a list of lists of words"),
        (tf.ragged.constant([[1]]), TypeError, "must be strings"),
        (tf.ragged.constant([[["a"]]]), ValueError, "rank 2"),
        ([["\ud800"]], ValueError, r"words\[0\]\[0\] can't be encoded"),
    ],
)
def test_words_that_are_none(wordpiece, words, error, message):
    with pytest.raises(error, match=message):
        wordpiece.tokenize_words(words)
