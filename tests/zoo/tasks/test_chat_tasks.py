"""Conversations of language models: answers in batches, in streams and in exports, and errors that name messages."""

import dataclasses

import keras
import pytest
import tensorflow as tf

import zoo
from zoo.generation.chat import AnswerEdges
from zoo.huggingface.generation import write_generation
from zoo.tokenizers import ByteLevelBPETokenizer, tokenize_chat

SHORT = {"max_new_tokens": 8, "jit_compile": False}


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


TALKS = [
    [user("hello")],
    [user("who <|im_end|> are"), assistant("you </s>"), user(" today ")],
    [user("hello"), assistant(" friend")],
]


@dataclasses.dataclass(frozen=True)
class Writes(zoo.generation.LogitProcessor):
    """Writes given tokens in all rows."""

    token_ids: tuple

    def __call__(self, logits, context):
        chosen = keras.ops.convert_to_tensor(self.token_ids)[context.position]
        return 100.0 * keras.ops.one_hot(chosen, logits.shape[-1]) + 0.0 * logits


@pytest.fixture(scope="module")
def tokenizer():
    tokens = ["<|im_start|>", "<|im_end|>", "<s>", "</s>"]
    return ByteLevelBPETokenizer.train(
        ["hello who are you today friend"] * 9, 280, end_token="<|endoftext|>", special_tokens=tokens
    )


@pytest.fixture(scope="module")
def model(tokenizer):
    keras.utils.set_random_seed(0)
    config = zoo.TransformerConfig(
        "decoder",
        tokenizer.vocabulary_size,
        hidden_dim=8,
        num_layers=1,
        max_length=160,
        attention=zoo.AttentionConfig(num_heads=2),
        position=zoo.PositionConfig("rotary"),
        feed_forward=zoo.FeedForwardConfig(8),
        dropout=0.0,
    )
    return zoo.CausalLM(zoo.Backbone.from_config(config), tokenizer.with_chat_format("chatml"))


@pytest.fixture(autouse=True)
def eagerly(request):
    """Tracing takes longer than the few tokens of a test."""
    tf.config.run_functions_eagerly("export" not in request.node.name)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def llama(model, tokenizer):
    return zoo.CausalLM(model.backbone, tokenizer.with_chat_format("llama2"))


def script(model, *parts):
    ids = []
    for part in parts:
        if part in model.tokenizer.special_tokens:
            ids.append(model.tokenizer.token_to_id(part))
        else:
            ids += model.tokenizer.tokenize(part).numpy().tolist()
    return {**SHORT, "processors": [Writes((*ids, *[ids[-1]] * 20))]}


def test_batches_streams_and_draws_give_what_each_gives_alone(model):
    answers = model.generate(TALKS, **SHORT)
    assert answers == [model.generate(talk, **SHORT) for talk in TALKS]
    pieces = list(model.stream(TALKS, chunk=1, **SHORT))
    assert ["".join(parts) for parts in zip(*pieces, strict=True)] == answers
    assert "".join(model.stream(TALKS[0], chunk=5, **SHORT)) == answers[0]
    drawn, scores = model.generate(TALKS, sampler=zoo.Sample(), num_results=2, return_scores=True, seed=1, **SHORT)
    assert [len(row) for row in drawn] == [2, 2, 2] and scores.shape == (3, 2)
    # the prompt is that of the format
    ids = model.generate_tokens([tokenize_chat(model.tokenizer, TALKS[1])], **SHORT)["token_ids"][0]
    assert answers[1] == model.tokenizer.detokenize(ids).numpy().decode()


def test_the_end_of_a_turn_ends_an_answer(model):
    options = script(model, " Hi\n", "<|im_end|>", "never")
    assert model.generate(TALKS[0], **options) == " Hi\n"
    assert "".join(model.stream(TALKS[0], chunk=1, **options)) == " Hi\n"
    # so does the end of a text, and what else is asked for
    assert model.generate(TALKS[0], **script(model, "Hi", "<|endoftext|>", "never")) == "Hi"
    assert model.generate(TALKS, stop="y", **options | script(model, "Hi, you", "<|im_end|>")) == ["Hi, "] * 3
    # of a text it is no end
    assert model.generate("hello", **options).startswith("hello Hi\nn")


def test_what_the_format_writes_itself_is_no_part_of_an_answer(llama):
    options = script(llama, "  Hi  ", "</s>")
    assert llama.generate(TALKS[:2], **options) == [" Hi "] * 2
    for chunk in (1, 2, 9):
        assert "".join(llama.stream(TALKS[0], chunk=chunk, **options)) == " Hi "
    # the answer is written as the model wrote it
    asked = tokenize_chat(llama.tokenizer, TALKS[0])
    text = llama.tokenizer.detokenize(tokenize_chat(llama.tokenizer, [*TALKS[0], assistant("Hi")], add_reply=False))
    assert text.numpy().decode() == llama.tokenizer.detokenize(asked).numpy().decode() + " Hi "


def test_of_two_beginnings_the_longer_one_is_cut():
    last = zoo.tokenizers.Turn("A:\n", "</s>")
    turns = {"user": zoo.tokenizers.Turn("Q:", "\n"), "assistant": zoo.tokenizers.Turn("A:\n\n", "</s>")}
    chat_format = zoo.tokenizers.ChatFormat(turns, reply="A:", last_reply=last, special_tokens=("</s>",))
    cut = AnswerEdges.of(chat_format).cut(tf.constant(["\n\nHi", "\nHi", "Hi"]))
    assert cut.numpy().tolist() == [b"Hi"] * 3


def test_a_stop_string_where_no_token_ends_a_turn(model, tokenizer):
    turns = {"user": zoo.tokenizers.Turn("Q: ", "\n"), "assistant": zoo.tokenizers.Turn("A: ", "\n###\n")}
    plain = zoo.tokenizers.ChatFormat(turns, reply="A:")
    model = zoo.CausalLM(model.backbone, tokenizer.with_chat_format(plain))
    options = script(model, " Hi###", "never")
    assert model.generate(TALKS[0], **options) == "Hi"


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([user("a"), {"role": "bot", "content": "b"}], r"messages\[1\]\['role'\] must be one of"),
        ([[user("a")], []], r"messages\[1\] must hold at least one message"),
        ([[user("a")], [user("a"), {"role": "user", "content": 3}]], r"messages\[1\]\[1\]\['content'\] must be a str"),
        ([[user("a")], "b"], r"messages\[1\] must be a list of messages, got 'b'"),
        ([user("\ud800")], r"messages\[0\]\['content'\] must be a text that UTF-8 can hold"),
        ([[user("a")], [user("a" * 200)]], r"messages\[1\] must .* leave room .* below max_length=160, got 2"),
    ],
)
def test_errors_name_conversation_and_message(model, messages, error):
    with pytest.raises(ValueError, match=error):
        model.generate(messages, **SHORT)
    with pytest.raises(ValueError, match=error):
        model.stream(messages, **SHORT)


def test_what_conversations_exclude(model, tokenizer, untrained):
    with pytest.raises(ValueError, match="return_cache must be False with conversations"):
        model.generate(TALKS, return_cache=True, **SHORT)
    with pytest.raises(ValueError, match="beginnings must be None with conversations"):
        model.generate(TALKS, beginnings="a", **SHORT)
    with pytest.raises(
        ValueError, match=r"A conversation needs a tokenizer with a chat format.*chat_format=\"chatml\""
    ):
        zoo.CausalLM(model.backbone, tokenizer).generate(TALKS)
    with pytest.raises(ValueError, match="A conversation cannot be used with a Seq2SeqLM, which takes texts"):
        untrained.generate(TALKS)
    assert model.generate([], **SHORT) == []


def test_a_long_conversation_keeps_its_end(model):
    long = [user("a" * 300 + " hello")]
    assert model.generate(long, truncate=True, **SHORT) is not None
    roles, contents = zoo.tokenizers.chat.as_ragged([long, TALKS[0]])
    ids = model.preprocessor.chat_ids(roles, contents, 20).to_list()
    whole = tokenize_chat(model.tokenizer, long)
    assert ids == [[whole[0], *whole[-19:]], tokenize_chat(model.tokenizer, TALKS[0])[:1] + ids[1][1:]]
    assert [len(row) for row in ids] == [20, min(20, len(tokenize_chat(model.tokenizer, TALKS[0])))]


def test_endpoint_cuts_answers(llama):
    chat = llama.endpoints(**script(llama, "  Hi  ", "</s>"))["chat"].function
    assert chat(tf.constant([["user", ""]]), tf.constant([["hello", "left out"]])).numpy().tolist() == [b" Hi "]


def test_the_end_of_a_turn_is_written_for_the_library(model):
    values = write_generation(model)
    assert values["eos_token_id"] == [model.tokenizer.end_id, model.tokenizer.token_to_id("<|im_end|>")]


def test_export_and_preset(llama, tmp_path):
    talks = TALKS[:2]
    llama.export(tmp_path / "served", **SHORT)
    llama.save_to_preset(tmp_path / "model")
    again = zoo.CausalLM.from_preset(tmp_path / "model")
    assert again.chat_format == llama.chat_format
    expected = again.generate(talks, **SHORT)
    served = tf.saved_model.load(str(tmp_path / "served"))
    columns = [[[message[key] for message in talk] + [""] * (3 - len(talk)) for talk in talks] for key in talks[0][0]]
    answers = served.chat(*map(tf.constant, columns)).numpy()
    assert [answer.decode() for answer in answers] == expected
    named = served.signatures["chat"](roles=tf.constant(columns[0]), contents=tf.constant(columns[1]))
    assert named["texts"].numpy().tolist() == answers.tolist()
    with pytest.raises(tf.errors.InvalidArgumentError, match="user and assistant in turns; rows and roles"):
        served.chat(tf.constant([["user", "user"]]), tf.constant([["a", "b"]]))
    again.chat_format = "chatml"
    assert again.chat_format is zoo.tokenizers.CHAT_FORMATS["chatml"]
    assert zoo.CausalLM.from_preset(tmp_path / "model", chat_format="chatml").chat_format == again.chat_format
