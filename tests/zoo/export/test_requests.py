"""What a request chooses (temperature, stop strings, ...) and conversations in rows: what `generate` gives."""

import random

import keras
import numpy as np
import pytest
from served_rows import write_in_rows

tf = pytest.importorskip("tensorflow")

import zoo  # noqa: E402
from zoo.generation.texts import cut_at_stops  # noqa: E402
from zoo.tokenizers import ByteLevelBPETokenizer  # noqa: E402

SHORT = {"max_new_tokens": 12}
NOTHING = {"seed": 0, "max_new_tokens": 0, "temperature": -1.0, "top_k": -1, "top_p": -1.0, "stop": [""]}
WORDS = ["hello", "who", "are", "you", "today", "friend", "\u00e9t\u00e9", "</s>", "a.b|c"]


def say(role, text):
    return {"role": role, "content": text}


@pytest.fixture(scope="module")
def model():
    """A chat model with random weights; the format has texts before and behind an answer."""
    keras.utils.set_random_seed(0)
    tokenizer = ByteLevelBPETokenizer.train(
        ["hello who are you today friend"] * 9, 290, end_token="</s>", special_tokens=["<s>", "[INST]"]
    )
    config = zoo.TransformerConfig(
        "decoder",
        tokenizer.vocabulary_size,
        hidden_dim=16,
        num_layers=2,
        max_length=160,
        attention=zoo.AttentionConfig(num_heads=2),
        position=zoo.PositionConfig("rotary"),
        feed_forward=zoo.FeedForwardConfig(32),
        dropout=0.0,
        initializer_range=0.7,
    )
    return zoo.CausalLM(zoo.Backbone.from_config(config), tokenizer.with_chat_format("llama2"))


@pytest.fixture(scope="module")
def talks():
    generator = random.Random(0)

    def words():
        return " ".join(generator.choices(WORDS, k=generator.randint(0, 4)))

    roles = ["user", "assistant"] * 3
    return [[say(role, words()) for role in roles[: generator.choice([1, 3, 5])]] for _ in range(40)]


@pytest.fixture(scope="module")
def texts():
    generator = random.Random(1)
    return [" ".join(generator.choices(WORDS, k=generator.randint(1, 5))) for _ in range(40)]


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports") / "model"
    model.export(folder, sampler=zoo.Sample(0.9, min_p=0.001), stop=["zz", "o"], seed=7, **SHORT)
    return folder, tf.saved_model.load(folder)


def columns(talks):
    roles, contents = zoo.tokenizers.chat.as_ragged(talks)
    return {"roles": roles.to_tensor(""), "contents": contents.to_tensor("")}


def ask(signature, given, **chosen):
    inputs = {
        name: tf.constant(value, signature.structured_input_signature[1][name].dtype)
        for name, value in {**NOTHING, **chosen}.items()
    }
    return [text.decode("utf-8", "replace") for text in signature(**given, **inputs)["texts"].numpy()]


CHOICES = [
    {},
    {"temperature": 0.0},
    {"temperature": 1.7, "seed": 4},
    {"temperature": 0.6, "top_k": 20, "top_p": 0.8, "seed": 2**32 - 1, "max_new_tokens": 5},
    {"top_k": 3},
    {"stop": ["", "a", "\u00e9", "|", "e y"]},
]


def expected_options(chosen):
    own = {"temperature": 0.9, "min_p": 0.001}
    filters = {name: chosen[name] for name in ("temperature", "top_k", "top_p") if name in chosen}
    sampler = zoo.Sample(**{**own, **filters}) if filters.get("temperature") != 0 else zoo.Greedy()
    stops = ["zz", "o", *filter(None, chosen.get("stop", ()))]
    others = {"seed": chosen.get("seed", 0), "max_new_tokens": chosen.get("max_new_tokens", 12)}
    return {"sampler": sampler, "stop": stops, "jit_compile": False, "batch_size": 64, **others}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("chosen", CHOICES, ids=str)
def test_requests_give_what_python_generates(model, exported, texts, talks, chosen):
    signatures = exported[1].signatures
    expected = model.generate(texts, **expected_options(chosen))
    assert ask(signatures["generate"], {"texts": tf.constant(texts)}, **chosen) == expected
    assert len(set(expected)) > 30
    answers = model.generate(talks, **expected_options(chosen))
    assert ask(signatures["chat_generate"], columns(talks), **chosen) == answers


def test_examples_with_calls_and_results(model):
    chat_format = zoo.tokenizers.CHAT_FORMATS["llama2"].with_tools("hermes")
    task = zoo.CausalLM(model.backbone, model.tokenizer.with_chat_format(chat_format))
    call = {"id": "1", "function": {"name": "who", "arguments": {"name": "\u4eac"}}}
    talk = [
        say("user", "who"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "friend"},
    ]
    endpoints = task.endpoints(**SHORT)
    [request] = task.example_requests(endpoints, [talk])
    assert request.inputs["roles"] == [[b"user", b"assistant", b"user"]]
    assert b'"arguments": {"name": "\xe4\xba\xac"}' in request.inputs["contents"][0][1]
    with pytest.raises(ValueError, match=r"^examples\[1\]\[0\]\['role'\] must be one of"):
        task.example_requests(endpoints, ["hello", [say("nobody", "a")]])


def test_without_choices_and_in_rows(model, exported, texts, talks):
    folder, served = exported
    options = {**expected_options({}), "seed": 7}
    expected, answers = model.generate(texts, **options), model.generate(talks, **options)
    assert [text.decode("utf-8", "replace") for text in served.serve(tf.constant(texts)).numpy()] == expected
    given = columns(talks)
    chat = served.signatures["chat"](**given)["texts"].numpy()
    assert [text.decode("utf-8", "replace") for text in chat] == answers
    prompts = served.signatures["chat_tokens"](**given)
    written = write_in_rows(served, folder, prompts, "chat_continuation", "chat", seed=7)
    assert [text.decode("utf-8", "replace") for text in written] == answers
    # some end at a stop string, others at the edges of an answer
    whole = model.generate(talks, **{**options, "stop": None})
    assert 0 < sum(one != other for one, other in zip(whole, answers, strict=True)) < len(talks)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"temperature": float("nan")}, "temperature must be a number"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1"),
        ({"seed": -1}, "seed must be an integer from 0"),
        ({"stop": [b"\xff"]}, "stop must be strings in UTF-8"),
    ],
    ids=str,
)
def test_wrong_choices(exported, chosen, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        ask(exported[1].signatures["generate"], {"texts": tf.constant(["hello"])}, **chosen)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sampler", [zoo.Beam(2), "contrastive", zoo.Sample(typical_p=0.5)], ids=str)
def test_samplers_without_such_settings(model, sampler):
    generate = model.endpoints(sampler=sampler, **SHORT)["generate"].function
    inputs = [tf.constant(["hello", "who"]), tf.constant(0, tf.int64), *map(tf.constant, (0, -1.0, -1, -1.0, ["a"]))]
    expected = model.generate(["hello", "who"], sampler=sampler, stop="a", jit_compile=False, **SHORT)
    assert [text.decode("utf-8", "replace") for text in generate(*inputs).numpy()] == expected
    for place, value in ((3, 0.0), (3, 1.0), (4, 5), (5, 0.5)):
        other = [*inputs[:place], tf.constant(value), *inputs[place + 1 :]]
        with pytest.raises(tf.errors.InvalidArgumentError, match="must be below 0, the settings of the export, with"):
            generate(*other)


def test_stops_are_bytes():
    """Every character of a stop stands for itself, whatever bytes are around it."""
    generator = random.Random(2)
    characters = [*map(chr, range(128)), "\u00e9", "\u4f60", "\U0001f600", "\\E", "\\Q", "(?i)", "$", "^"]
    for character in characters:
        stops = [character, "never there", ""]
        around = [bytes(generator.choices(range(256), k=6)) for _ in range(4)]
        texts = [*around, *(b"\xff\n" + part[:2] + character.encode() + part for part in around)]
        found = cut_at_stops(tf.constant(texts), tf.constant(stops)).numpy().tolist()
        assert found == [text.split(character.encode())[0] for text in texts], repr(character)
    assert cut_at_stops(tf.constant(["abc"]), tf.constant(["", ""])).numpy() == [b"abc"]
    assert cut_at_stops(tf.constant(["abc"]), tf.constant([], tf.string)).numpy() == [b"abc"]
    # the first place counts, not the first stop
    assert cut_at_stops(tf.constant(["one two"]), tf.constant(["two", "e t", "ne"])).numpy() == [b"o"]


def test_nothing_of_xla(exported):
    from tensorflow.core.protobuf import saved_model_pb2

    content = (exported[0] / "saved_model.pb").read_bytes()
    graph = saved_model_pb2.SavedModel.FromString(content).meta_graphs[0].graph_def
    assert not any(function.attr["_XlaMustCompile"].b for function in graph.library.function)
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    assert len(nodes) > 1000 and not [node.op for node in nodes if node.op.startswith("Xla")]
    assert np.unique([node.attr["_XlaMustCompile"].b for node in nodes]).tolist() == [False]
