"""Conversations: which lines are one, which tokens are learned, which are too long."""

import json

import numpy as np
import pytest

from recipes.common.chat_data import CONVERSATIONS, Conversation, ConversationRows, read_conversations
from recipes.common.data_sets import open_part
from recipes.common.errors import DataError
from recipes.common.example_batches import ExampleBatches
from zoo.tokenizers import ByteLevelBPETokenizer
from zoo.tokenizers.chat import CHAT_FORMATS, tokenize_chat

CHATML, MISTRAL = CHAT_FORMATS["chatml"], CHAT_FORMATS["mistral"]
TALK = [
    {"role": "user", "content": "2 plus 3"},
    {"role": "assistant", "content": "5"},
    {"role": "user", "content": "1 plus 1"},
    {"role": "assistant", "content": "2"},
]


@pytest.fixture(scope="module")
def tokenizer():
    # the 256 bytes and the special tokens
    return ByteLevelBPETokenizer.train(
        ["a"], 259, special_tokens=["<|im_start|>"], end_token="<|im_end|>"
    ).with_chat_format(CHATML)


def write(folder, *lines):
    path = folder / "a.jsonl"
    path.write_text("".join(line if isinstance(line, str) else json.dumps({"messages": line}) + "\n" for line in lines))
    return [str(path)]


def open_conversations(files, chat_format=CHATML, on_error="raise"):
    def read(files, bad):
        return read_conversations(files, bad, chat_format=chat_format)

    return open_part(files, "train", CONVERSATIONS, read, on_error)


def test_conversations_of_a_file(tmp_path):
    conversations, bad = open_conversations(write(tmp_path, TALK, TALK[:2]))
    assert [len(conversation.messages) for conversation in conversations] == [4, 2]
    assert conversations[1].origin.endswith("a.jsonl:2") and bad.total == 0
    assert [len(split) for split in CONVERSATIONS["date_questions"]()] == [8000, 200, 400]


@pytest.mark.parametrize(
    ("line", "chat_format", "message"),
    [
        (TALK[:1], CHATML, "a list of at least two messages is needed"),
        ("{}\n", CHATML, "key missing: 'messages'"),
        (TALK[:3], CHATML, "the last message is not a reply of the assistant"),
        ([TALK[0], {"role": "assistant", "content": " "}], CHATML, "the last message is not a reply"),
        ([TALK[0], {"role": "bot", "content": "5"}], CHATML, r"messages\[1\]\['role'\] must be one of .*, got 'bot'"),
        (
            [TALK[0], {"role": "assistant", "content": 5}],
            CHATML,
            "message 2 must be .*: text., got",
        ),
        ([TALK[0], {"role": ["assistant"], "content": "5"}], CHATML, "message 2 must be"),
        ([TALK[0], {"role": "assistant"}], CHATML, "message 2 must be"),
        (["x", TALK[1]], CHATML, "message 1 must be .* got 'x'"),
        ({"role": "user"}, CHATML, "a list of at least two messages"),
        ([TALK[0], TALK[0], TALK[1]], MISTRAL, "user and assistant must take turns"),
    ],
)
def test_bad_lines_raise_or_are_counted(tmp_path, line, chat_format, message):
    files = write(tmp_path, TALK, line)
    with pytest.raises(DataError, match=rf"a\.jsonl:2: .*{message}"):
        open_conversations(files, chat_format)
    conversations, bad = open_conversations(files, chat_format, on_error="skip")
    assert len(conversations) == bad.total == 1 and "a.jsonl:2" in bad.report()


def test_replies_alone_are_learned(tokenizer):
    rows = ConversationRows(tokenizer, 64)
    (ids,), (mask,) = rows.columns([Conversation(TALK, "a:1")])
    assert ids == tokenize_chat(tokenizer, TALK, add_reply=False)
    learned = [tokenizer.id_to_token(token) for token, is_learned in zip(ids, mask, strict=True) if is_learned]
    assert learned == ["5", "<|im_end|>", "2", "<|im_end|>"]
    batches = ExampleBatches(rows, [ids], [mask], batch_size=1)
    inputs, labels, weights = next(iter(batches.dataset))
    count = len(ids) - 1
    np.testing.assert_array_equal(inputs["token_ids"][0, :count], ids[:-1])
    np.testing.assert_array_equal(labels[0, :count], ids[1:])
    np.testing.assert_array_equal(weights[0, :count], np.array(mask[1:], "float32"))
    assert inputs["padding_mask"].numpy().sum() == count and not weights[0, count:].numpy().any()


def test_long_conversations_are_dropped_and_counted(tokenizer):
    short, long = Conversation(TALK[:2], "a:1"), Conversation(TALK, "a:2")
    length = len(tokenize_chat(tokenizer, TALK, add_reply=False))
    # the last token is predicted and not fed
    assert ConversationRows(tokenizer, length - 1).short_enough([short, long]) == [short, long]
    rows = ConversationRows(tokenizer, length - 2)
    assert rows.short_enough([short, long]) == [short]
    assert rows.dropped.report() == f"skipped 1: longer than {length - 2} tokens 1 (a:2)"
    with pytest.raises(DataError, match="no conversation is left"):
        rows.short_enough([long])
