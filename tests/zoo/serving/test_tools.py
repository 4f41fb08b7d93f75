"""Tools over the server: a model that has learnt to call them, OpenAI's client, streams, and what is refused."""

import json
import re
from pathlib import Path

import keras
import pytest

for name in ("msgpack", "starlette", "uvicorn", "httpx", "prometheus_client", "pydantic"):
    pytest.importorskip(name, reason="the extra serve is not installed")

import httpx  # noqa: E402

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Of a city", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "now"}},
]
UNKNOWN = {"properties": {"a": {"type": "string", "format": "no"}}, "required": ["a"]}
WORDS = "One moment."
CITY = "\u4eac"


def user(content):
    return {"role": "user", "content": content}


def call(name, number="abcDEF123", **arguments):
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": number, "type": "function", "function": function}


def result(content, number="abcDEF123"):
    return {"role": "tool", "tool_call_id": number, "content": content}


ONE = {"role": "assistant", "content": WORDS, "tool_calls": [call("weather", city=CITY)]}
TWO = {"role": "assistant", "content": None, "tool_calls": [call("weather", city="a"), call("now", "987654321")]}
END = {"role": "assistant", "content": "It rains."}
# what the model learns: a call with words before it, two calls, words alone, and words about a result
LEARNT = {
    "one": [user("one"), ONE],
    "two": [user("two"), TWO],
    "words": [user("words"), {"role": "assistant", "content": "Hello."}],
    "result": [user("one"), ONE, result("rain"), END],
}


@pytest.fixture(scope="module")
def caller():
    """A small model that has learnt these conversations by heart."""
    import zoo
    from zoo.tokenizers import CHAT_FORMATS, ByteLevelBPETokenizer

    keras.utils.set_random_seed(0)
    chat_format = CHAT_FORMATS["chatml"].with_tools("hermes")
    talks = [chat_format.plain_messages(talk, add_reply=False, tools=TOOLS) for talk in LEARNT.values()]
    texts = [message["content"] for talk in talks for message in talk]
    tokens = ["<|im_start|>", "<|im_end|>"]
    tokenizer = ByteLevelBPETokenizer.train(texts, 420, end_token="<|endoftext|>", special_tokens=tokens)
    config = zoo.TransformerConfig(
        "decoder",
        tokenizer.vocabulary_size,
        hidden_dim=48,
        num_layers=2,
        max_length=320,
        attention=zoo.AttentionConfig(num_heads=2),
        position=zoo.PositionConfig("rotary"),
        feed_forward=zoo.FeedForwardConfig(64),
        norm=zoo.NormConfig(placement="pre"),
        dropout=0.0,
    )
    model = zoo.CausalLM(zoo.Backbone.from_config(config), tokenizer.with_chat_format(chat_format))
    model.compile(keras.optimizers.Adam(5e-3))
    model.fit(talks * 8, batch_size=4, epochs=12, verbose=0)
    return model


@pytest.fixture(scope="module")
def address(caller, chat_export, made_once, run_server, tmp_path_factory):
    """A server of this model, and of one without tools."""
    folder = tmp_path_factory.mktemp("models")
    export = made_once("caller_export", lambda folder: caller.export(folder, jit_compile=False))
    for name, target in (("caller", export), ("chat", chat_export)):
        (folder / name).mkdir()
        (folder / name / "1").symlink_to(target)
    with run_server(folder, options={"rows": 4, "steps": 3}) as address:
        yield address


@pytest.fixture
def client(address):
    openai = pytest.importorskip("openai", reason="the extra test is not installed")
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


def answer(client, messages, **options):
    settings = {"model": "caller", "max_tokens": 80, "temperature": 0, "tools": TOOLS, **options}
    return client.chat.completions.create(messages=messages, **settings)


def named(calls):
    return [(each.function.name, json.loads(each.function.arguments)) for each in calls or []]


def test_the_library_calls_tools(caller):
    """What the server answers is what `generate` writes."""
    chat_format = caller.chat_format
    for talk in LEARNT.values():
        text = caller.generate(talk[:-1], tools=TOOLS, max_new_tokens=80, jit_compile=False)
        message = chat_format.read_reply(text, TOOLS)
        assert message["content"] == talk[-1]["content"]
        found, expected = (each.get("tool_calls", []) for each in (message, talk[-1]))
        assert [each["function"] for each in found] == [each["function"] for each in expected]
    pieces = list(caller.stream(LEARNT["one"][:-1], tools=TOOLS, max_new_tokens=80, jit_compile=False))
    assert chat_format.read_reply("".join(pieces), TOOLS)["content"] == WORDS
    with pytest.raises(ValueError, match="tools must be None with texts, got"):
        caller.generate("one", tools=TOOLS)


def test_calls_and_results(client):
    talk = LEARNT["one"][:-1]
    first = answer(client, talk).choices[0]
    assert first.finish_reason == "tool_calls" and first.message.content == WORDS
    assert named(first.message.tool_calls) == [("weather", {"city": CITY})]
    assert first.message.tool_calls[0].type == "function"
    # the whole message goes back, with all fields that the client gives it
    talk = [*talk, first.message, result("rain", first.message.tool_calls[0].id)]
    last = answer(client, talk).choices[0]
    assert (last.message.content, last.message.tool_calls, last.finish_reason) == ("It rains.", None, "stop")
    two = answer(client, LEARNT["two"][:-1]).choices[0]
    assert named(two.message.tool_calls) == [("weather", {"city": "a"}), ("now", {})]
    assert two.message.content is None and two.message.tool_calls[0].id != two.message.tool_calls[1].id
    alone = answer(client, LEARNT["two"][:-1], parallel_tool_calls=False).choices[0]
    assert named(alone.message.tool_calls) == [("weather", {"city": "a"})]
    plain = answer(client, LEARNT["words"][:-1]).choices[0]
    assert (plain.message.content, plain.message.tool_calls, plain.finish_reason) == ("Hello.", None, "stop")


def test_parts_of_text_and_null_fields(client):
    called = {**ONE, "refusal": None, "audio": None, "function_call": None, "name": None, "annotations": []}
    found = {**result([{"type": "text", "text": "ra"}, {"type": "text", "text": "in"}]), "name": "weather"}
    talk = [user([{"type": "text", "text": "one"}]), called, found]
    assert answer(client, talk, extra_body={"functions": None, "function_call": None}).choices[0].message.content == (
        "It rains."
    )


def test_streams_of_calls(client):
    for case, words, calls in (
        ("one", WORDS, [("weather", {"city": CITY})]),
        ("two", "", [("weather", {"city": "a"}), ("now", {})]),
        ("words", "Hello.", []),
    ):
        content, told, reasons = "", {}, []
        for event in answer(client, LEARNT[case][:-1], stream=True):
            [choice] = event.choices
            content += choice.delta.content or ""
            for part in choice.delta.tool_calls or []:
                entry = told.setdefault(part.index, {"id": part.id, "name": part.function.name, "arguments": ""})
                entry["arguments"] += part.function.arguments
            reasons += [choice.finish_reason] if choice.finish_reason else []
        assert content == words and reasons == ["tool_calls" if calls else "stop"]
        assert [(each["name"], json.loads(each["arguments"])) for each in told.values()] == calls
        assert list(told) == list(range(len(calls))) and all(each["id"] for each in told.values())


def test_the_streams_of_the_client(client):
    """Its helper puts deltas together and is strict about them."""
    settings = {"model": "caller", "max_tokens": 80, "temperature": 0, "tools": TOOLS}
    with client.chat.completions.stream(messages=LEARNT["two"][:-1], **settings) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_completion().choices[0].message
    assert kinds.count("tool_calls.function.arguments.done") == 2
    assert named(message.tool_calls) == [("weather", {"city": "a"}), ("now", {})]


def test_no_tools_are_chosen(client, caller):
    talk = LEARNT["one"][:-1]
    without = caller.generate(talk, max_new_tokens=9, jit_compile=False)
    found = answer(client, talk, tool_choice="none", max_tokens=9).choices[0].message
    assert (found.content, found.tool_calls) == (without, None)
    assert answer(client, talk, tools=[], max_tokens=9).choices[0].message.content == without


NAMED = {"type": "function", "function": {"name": "weather"}}


def test_calls_that_must_be(client):
    """The model would answer in words; a small one that is held to calls writes some, and their arguments fit."""
    pytest.importorskip("llguidance", reason="the extra structured is not installed")
    talk = LEARNT["words"][:-1]
    for choice, settings in (
        ("required", {"max_tokens": 60}),
        (NAMED, {"max_tokens": 60}),
        (NAMED, {"temperature": 1.0, "seed": 3, "n": 2, "max_tokens": 100}),
        ("required", {"parallel_tool_calls": False, "max_tokens": 100}),
    ):
        for found in answer(client, talk, tool_choice=choice, **settings).choices:
            calls = named(found.message.tool_calls)
            if found.finish_reason == "length" and not calls:
                continue  # a text that is cut has no call
            assert calls and all(name in ("weather", "now") for name, _ in calls)
            assert all(isinstance(each["city"], str) for name, each in calls if name == "weather")
            if choice == NAMED:
                assert [name for name, _ in calls] == ["weather"] and found.finish_reason == "tool_calls"
    assert named(answer(client, talk, tool_choice="required").choices[0].message.tool_calls)
    # in words of its own choice a strict tool is called as its schema says, and JSON may be a call in its place
    strict = [{**TOOLS[0], "function": {**TOOLS[0]["function"], "strict": True}}, TOOLS[1]]
    found = answer(client, LEARNT["one"][:-1], tools=strict).choices[0].message
    assert found.content == WORDS and named(found.tool_calls) == [("weather", {"city": CITY})]
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": {"type": "array", "maxItems": 0}}}
    found = answer(client, talk, response_format=form, tool_choice="none").choices[0].message
    assert json.loads(found.content) == []
    found = answer(client, LEARNT["two"][:-1], response_format=form).choices[0].message
    assert found.content is None and len(found.tool_calls) == 2
    wrong = [{"type": "function", "function": {"name": "a", "parameters": UNKNOWN}}]
    openai = pytest.importorskip("openai")
    with pytest.raises(openai.UnprocessableEntityError, match="tools cannot be followed"):
        answer(client, talk, tools=wrong, tool_choice="required")


def test_tokens_of_conversations_with_tools(address, caller):
    from zoo.tokenizers import tokenize_chat

    for talk, tools in ((LEARNT["result"][:-1], TOOLS), (LEARNT["one"][:-1], [])):
        body = {
            "model": "caller",
            "messages": [{k: v for k, v in m.items() if v is not None} for m in talk],
            "tools": tools,
        }
        said = httpx.post(f"{address}/tokenize", json=body, timeout=300).json()
        assert said["tokens"] == tokenize_chat(caller.tokenizer, talk, tools=tools or None)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tools": [{"type": "function"}]}, "tools[0].function is missing."),
        ({"tools": [{"type": "retrieval", "function": {"name": "a"}}]}, "tools[0].type must be 'function'."),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name must match pattern"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools must have different names."),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "code": "x"}}]},
            "There is no field 'code' in tools",
        ),
        (
            {"tool_choice": "always"},
            'tool_choice must be "none", "auto", "required", or a function of tools by its name',
        ),
        ({"tool_choice": {**NAMED, "function": {"name": "other"}}}, "tool_choice must name one of tools."),
        ({"tools": [], "tool_choice": "required"}, "tool_choice must be auto or none without tools."),
        ({"tool_choice": "required", "tools": None}, "tool_choice must be auto or none without tools."),
        ({"functions": [{"name": "a"}]}, "functions is not supported."),
        ({"function_call": "auto"}, "function_call is not supported."),
        ({"audio": {"voice": "x"}}, "audio is not supported."),
        ({"suffix": "x"}, "suffix is not supported."),
        ({"messages": [user("a"), {**ONE, "role": "user"}]}, "messages[1] must have no tool_calls but with the role"),
        (
            {"messages": [user("a"), {"role": "tool", "content": "b"}]},
            "messages[1] must have tool_call_id with the role",
        ),
        (
            {"messages": [{**user("a"), "tool_call_id": "b"}]},
            "messages[0] must have tool_call_id with the role tool, and",
        ),
        ({"messages": [{"role": "assistant", "content": None}]}, "messages[0] must have content."),
        (
            {
                "messages": [
                    user("a"),
                    {**ONE, "tool_calls": [call("f") | {"function": {"name": "f", "arguments": "7"}}]},
                ]
            },
            "messages[1].tool_calls[0].function.arguments must be a text in JSON that describes an object.",
        ),
        ({"messages": [user([{"type": "image_url"}])]}, "messages[0].content must have parts of the type text alone."),
    ],
)
def test_what_is_refused(address, fields, reason):
    body = {"model": "caller", "messages": LEARNT["one"][:-1], "max_tokens": 4, "tools": TOOLS, **fields}
    said = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=300)
    assert said.status_code == 422 and reason in said.json()["error"]["message"], said.text


def test_a_format_without_tools(address):
    for fields in ({"tools": TOOLS}, {"messages": [user("a"), ONE, result("b")]}):
        body = {"model": "chat", "messages": [user("a")], "max_tokens": 4, **fields}
        said = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=300)
        assert said.status_code == 422
        assert said.json()["error"]["message"].startswith("The chat format of this model has no tools")


FUNCTIONS = [{"type": "function", "strict": False, **tool["function"]} for tool in TOOLS]


def respond(client, given, **options):
    settings = {"model": "caller", "max_output_tokens": 80, "temperature": 0, "tools": FUNCTIONS, **options}
    return client.responses.create(input=given, **settings)


def parts_of(response):
    """Words and calls of a response."""
    calls = [each for each in response.output if each.type == "function_call"]
    return response.output_text, [(each.name, json.loads(each.arguments)) for each in calls]


def test_responses_are_those_of_chats(client):
    found = respond(client, "words")
    assert parts_of(found) == ("Hello.", []) and found.status == "completed"
    assert found.usage.input_tokens > 0 and found.usage.output_tokens > 0
    found = respond(client, [user("one")])
    assert parts_of(found) == (WORDS, [("weather", {"city": CITY})])
    # its own items are taken again, with the result of the call
    called = found.output[-1]
    items = [user("one"), *(each.model_dump() for each in found.output)]
    items[-1] = {**items[-1], "call_id": "abcDEF123"}  # the one that the model has learnt
    assert called.call_id and called.status == "completed"
    items.append({"type": "function_call_output", "call_id": "abcDEF123", "output": "rain"})
    assert parts_of(respond(client, items))[0] == "It rains."
    assert parts_of(respond(client, "two"))[1] == [("weather", {"city": "a"}), ("now", {})]
    by_name = respond(client, "words", tool_choice={"type": "function", "name": "now"})
    assert [name for name, _ in parts_of(by_name)[1]] == ["now"]
    cut = respond(client, "one", max_output_tokens=2)
    assert (cut.status, cut.incomplete_details.reason, cut.output[0].status) == (
        *("incomplete", "max_output_tokens"),
        "incomplete",
    )
    chat = client.chat.completions.create(
        model="chat", messages=[{"role": "system", "content": "hello"}, user("who")], max_tokens=9
    )
    plain = client.responses.create(
        model="chat",
        instructions="hello",
        input=[{"role": "user", "content": [{"type": "input_text", "text": "who"}]}],
        max_output_tokens=9,
        include=["message.output_text.logprobs"],
        top_logprobs=2,
    )
    assert plain.output_text == chat.choices[0].message.content
    told = plain.output[0].content[0].logprobs
    assert told and all(len(each.top_logprobs) == 2 and each.logprob <= 0 for each in told)


def test_responses_in_events(client):
    for given in ("one", "two", "words"):
        expected = respond(client, given)
        with client.responses.stream(
            model="caller", input=given, max_output_tokens=80, temperature=0, tools=FUNCTIONS
        ) as stream:
            events = list(stream)
            final = stream.get_final_response()
        assert parts_of(final) == parts_of(expected)
        numbers = [event.sequence_number for event in events if hasattr(event, "sequence_number")]
        assert numbers == sorted(numbers)
        assert [events[0].type, events[-1].type] == ["response.created", "response.completed"]
        words = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        assert words == expected.output_text


def test_responses_by_a_schema(client):
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}
    schema["additionalProperties"] = False
    text = {"format": {"type": "json_schema", "name": "letters", "schema": schema, "strict": True}}
    found = client.responses.create(model="chat", input="who", text=text, max_output_tokens=60)
    assert json.loads(found.output_text)["a"] in ("x", "y")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "image", "image": "a"}]}, "input[0]"),
        ({"previous_response_id": "resp_1"}, "previous_response_id is not supported"),
        ({"store": True}, "store is not supported"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"max_output_tokens": 0}, "max_output_tokens must be from 1 to"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "name must be given"),
        ({"temprature": 1}, "There is no field 'temprature'"),
    ],
)
def test_responses_that_are_refused(address, change, named):
    given = httpx.post(f"{address}/v1/responses", json={"model": "caller", "input": "one", **change}, timeout=300)
    assert given.status_code == 422 and named in given.json()["error"]["message"]


def test_the_programs_of_the_guide(client, address, capsys):
    page = Path(__file__).parents[3].joinpath("docs/guides/serving.md").read_text(encoding="utf-8")
    programs = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[2:]
    asked = []

    def weather(**arguments):
        asked.append(arguments)
        return "rain"

    # another one mounts the server: tests/docs/test_serving.py
    programs = [program for program in programs if "zoo.serving.app" not in program]
    names = {"__name__": "documentation", "weather": weather}
    for program in programs:
        program = program.replace("http://localhost:8501", address).replace('"chat"', '"caller"')
        exec(compile(program, "docs/guides/serving.md", "exec"), names)
    place, word = capsys.readouterr().out.strip().split("\n", 1)
    assert re.fullmatch(r"name=.* height=\d+", place) and word
