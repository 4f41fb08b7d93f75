"""Conversations: rows of a format of files, which are too long, packed batches."""

import gzip
import json

import keras
import numpy as np
import pytest

from recipes.common.batching import PackedConversations
from recipes.common.data.chat_data import CONVERSATIONS, short_conversations
from recipes.common.data.chat_files import Conversation, read_conversations
from recipes.common.data.data_sets import Source, open_part
from recipes.common.errors import BadLines, ConfigError, DataError
from zoo.preprocessing import CausalLMPreprocessor
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
def preprocessor():
    # the 256 bytes and the special tokens
    tokenizer = ByteLevelBPETokenizer.train(["a"], 259, special_tokens=["<|im_start|>"], end_token="<|im_end|>")
    return CausalLMPreprocessor(tokenizer.with_chat_format(CHATML))


def write(folder, *lines):
    path = folder / "a.jsonl"
    rows = [{"messages": line} if isinstance(line, list) else line for line in lines]
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return [str(path)]


def open_conversations(files, chat_format=CHATML, on_error="raise", **options):
    def read(files, bad):
        return read_conversations(files, bad, chat_format=chat_format, **options)

    return open_part(files, "train", Source(CONVERSATIONS, read), on_error)


def test_conversations_of_a_file(tmp_path):
    conversations, bad = open_conversations(write(tmp_path, TALK, TALK[:2]))
    assert [len(conversation.messages) for conversation in conversations] == [4, 2]
    assert conversations[1].origin.endswith("a.jsonl:2") and bad.total == 0
    assert [len(split) for split in CONVERSATIONS["date_questions"]()] == [8000, 200, 400]


SHAREGPT = {
    "id": "x1",
    "conversations": [
        {"from": "system", "value": "Hm"},
        {"from": "human", "value": "2 plus 3"},
        {"from": "gpt", "value": "5"},
    ],
}
ALPACA = {"instruction": "Add.", "input": "2 plus 3", "output": "5", "system": "Hm"}


@pytest.mark.parametrize("packed", ["lines", "array", "array.gz"])
def test_formats_are_told_by_their_keys(tmp_path, packed):
    rows = [{"messages": TALK[:2]}, SHAREGPT, ALPACA, {"instruction": "Hi", "output": "Yes"}]
    path = tmp_path / {"lines": "a.jsonl", "array": "a.json", "array.gz": "a.json.gz"}[packed]
    text = "\n".join(map(json.dumps, rows)) if packed == "lines" else json.dumps(rows, indent=2)
    path.write_bytes(gzip.compress(text.encode()) if packed.endswith("gz") else text.encode())
    (first, second, third, fourth), _ = open_conversations([str(path)])
    assert first.messages == TALK[:2]
    assert second.messages == [{"role": "system", "content": "Hm"}, *TALK[:2]]
    asked = {"role": "user", "content": "Add.\n\n2 plus 3"}
    assert third.messages == [{"role": "system", "content": "Hm"}, asked, TALK[1]]
    assert [message["content"] for message in fourth.messages] == ["Hi", "Yes"]
    lines = [int(talk.origin.rpartition(":")[2]) for talk in (first, second, third, fourth)]
    starts = [number for number, line in enumerate(text.split("\n"), 1) if line == "  {"]
    assert lines == ([1, 2, 3, 4] if packed == "lines" else starts)


def test_a_format_and_a_key_of_ones_own(tmp_path):
    files = write(tmp_path, {"talk": TALK[:2], "output": "no matter"})
    (talk,), _ = open_conversations(files, file_format="messages", key="talk")
    assert talk.messages == TALK[:2]
    with pytest.raises(DataError, match=r"a\.jsonl:1: not a conversation: the row must have the keys of one format"):
        open_conversations(files)
    with pytest.raises(ConfigError, match=r"data\.key must be null with data\.format 'auto', got 'talk'"):
        open_conversations(files, key="talk")
    with pytest.raises(DataError, match="must hold records"):
        open_conversations([str(tmp_path / "a.csv")])


@pytest.mark.parametrize(
    ("line", "chat_format", "message"),
    [
        (TALK[:1], CHATML, "a list of at least two messages is needed"),
        ("{}\n", CHATML, r"the row must have the keys of one format \(messages: 'messages'; .*, got \[\]"),
        (TALK[:3], CHATML, "the last message is not a reply of the assistant"),
        ([TALK[0], {"role": "assistant", "content": " "}], CHATML, "the last message is not a reply"),
        ([TALK[0], {"role": "bot", "content": "5"}], CHATML, r"messages\[1\]\['role'\] must be one of .*, got 'bot'"),
        ([TALK[0], {"role": "assistant", "content": 5}], CHATML, "message 2 must be .*: text., got"),
        ([TALK[0], {"role": ["assistant"], "content": "5"}], CHATML, "message 2 must be"),
        ([TALK[0], {"role": "assistant"}], CHATML, "message 2 must be"),
        (["x", TALK[1]], CHATML, "message 1 must be .* got 'x'"),
        ({"messages": {"role": "user"}}, CHATML, "a list of at least two messages"),
        ([TALK[0], TALK[0], TALK[1]], MISTRAL, "user and assistant must take turns"),
        ({"messages": TALK, "instruction": "x"}, CHATML, "of one format and not of messages and alpaca"),
        ({"instruction": "x"}, CHATML, r"of one format .* got \['instruction'\]"),
        ({"instruction": "x", "output": 5}, CHATML, "'output' must be a text, got 5"),
        ({"instruction": "x", "output": "y", "history": [["a", "b"]]}, CHATML, "the value of 'history' is not read"),
        ({"messages": TALK, "system": "Hm"}, CHATML, "'system' must be the first of 'messages'"),
        ({"conversations": [{"from": "bing", "value": "x"}]}, CHATML, "'from' must be one of human, .*got 'bing'"),
        ({"conversations": [{"from": "gpt"}]}, CHATML, "message 1 must be {'from': text, 'value': text}"),
    ],
)
def test_bad_lines_raise_or_are_counted(tmp_path, line, chat_format, message):
    files = write(tmp_path, TALK, line)
    with pytest.raises(DataError, match=rf"a\.jsonl:2: .*{message}"):
        open_conversations(files, chat_format)
    conversations, bad = open_conversations(files, chat_format, on_error="skip")
    assert len(conversations) == bad.total == 1 and "a.jsonl:2" in bad.report()


def test_long_conversations_are_dropped_and_counted(preprocessor):
    short, long = Conversation(TALK[:2], "a:1"), Conversation(TALK, "a:2")
    length = len(tokenize_chat(preprocessor.tokenizer, TALK, add_reply=False))
    # the last token is predicted and not fed
    assert short_conversations([short, long], preprocessor, length - 1, BadLines("skip")) == [short, long]
    dropped = BadLines("skip")
    assert short_conversations([short, long], preprocessor, length - 2, dropped) == [short]
    assert dropped.report() == f"skipped 1: longer than {length - 2} tokens 1 (a:2)"
    with pytest.raises(DataError, match="no conversation is left"):
        short_conversations([long], preprocessor, length - 2, dropped)


def test_packed_batches_are_a_function_of_seed_and_epoch(preprocessor):
    options = {"length": 128, "batch_size": 2, "seed": 3}
    batches = PackedConversations(preprocessor, [TALK[:2], TALK] * 4, **options)
    assert batches.number_of_rows == 8 and 0.5 < batches.filled <= 1

    def rows(epoch, skip=0):
        batches.start_epoch(epoch, skip)
        return [keras.tree.map_structure(np.asarray, batch) for batch in batches.dataset]

    first = rows(1)
    assert len(first) == batches.number_of_batches > 1
    keras.tree.map_structure(np.testing.assert_array_equal, first, rows(1))
    keras.tree.map_structure(np.testing.assert_array_equal, first[1:], rows(1, 1))
    # every label of every conversation, once
    counted = sum(int(weights.sum()) for _, _, weights in first)
    assert counted == 8 * 2 + 4 * 2
