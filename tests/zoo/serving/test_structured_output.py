"""Answers of the server that follow schemas, expressions and grammars, asked for with the client of OpenAI."""

import asyncio
import json
import re

import pytest
from random_schemas import faults, make_schemas

for name in ("msgpack", "starlette", "uvicorn", "httpx", "pydantic", "llguidance"):
    pytest.importorskip(name, reason="the extra serve is not installed")

import httpx  # noqa: E402
import pydantic  # noqa: E402

from zoo.lark import json_grammar  # noqa: E402
from zoo.serving import structured_output  # noqa: E402
from zoo.serving.problems import Problem  # noqa: E402

TALK = [{"role": "user", "content": "who are you, 你好?"}]
SECRET = "hemlig"
AGE = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 150}, "ort": {"enum": ["北京", "Malmö"]}},
    "required": ["age", "ort"],
    "additionalProperties": False,
}


class Place(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=5)
    heights: list[int] = pydantic.Field(max_length=2)

    @pydantic.field_validator("heights")
    @classmethod
    def _few(cls, heights):
        assert len(heights) <= 2
        return heights


@pytest.fixture
def client(chat_address):
    openai = pytest.importorskip("openai", reason="the extra test is not installed")
    return openai.OpenAI(base_url=f"{chat_address}/v1", api_key="none", max_retries=0)


@pytest.fixture
def post(chat_address):
    def post(path, **body):
        body = {"model": "chat", "max_tokens": 120, **body}
        return httpx.post(f"{chat_address}/v1/{path}", json=body, timeout=300)

    return post


def ask(client, **options):
    """The choices of answers."""
    options = {"model": "chat", "messages": TALK, "max_completion_tokens": 140, "temperature": 1.0, **options}
    return client.chat.completions.create(**options).choices


def named(schema):
    return {"type": "json_schema", "json_schema": {"name": "an-answer_1", "schema": schema, "strict": True}}


def test_schemas_of_answers(client):
    for number, choice in enumerate(ask(client, response_format=named(AGE), n=4, seed=2)):
        assert not faults(choice.message.content, AGE), number
        assert choice.finish_reason == "stop"
    for number, schema in enumerate(make_schemas(seed=5, count=8)):
        [choice] = ask(client, response_format=named(schema), seed=number)
        if choice.finish_reason == "stop":
            assert not faults(choice.message.content, schema), schema


def test_any_object(client):
    seen = set()
    for seed in range(6):
        [choice] = ask(client, response_format={"type": "json_object"}, seed=seed)
        assert choice.message.content.startswith("{")
        seen.add(choice.finish_reason)
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(choice.message.content), dict)
    assert seen <= {"stop", "length"}


def test_classes_of_pydantic(client):
    for seed in range(3):
        answer = client.chat.completions.parse(
            model="chat", messages=TALK, response_format=Place, seed=seed, temperature=1.0, max_completion_tokens=150
        )
        place = answer.choices[0].message.parsed
        assert isinstance(place, Place) and len(place.name) <= 5


def test_streams(client):
    options = {"response_format": named(AGE), "seed": 4}
    [whole] = ask(client, **options)
    pieces = list(
        client.chat.completions.create(
            model="chat", messages=TALK, max_completion_tokens=140, temperature=1.0, stream=True, **options
        )
    )
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == whole.message.content
    assert len(pieces) > 3 and pieces[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"guided_regex": "[0-9]{3}-(你|नम){2}"}, "[0-9]{3}-(你|नम){2}"),
        ({"structured_outputs": {"regex": "a{3,5}/\\\\"}}, "a{3,5}/\\\\"),
        ({"guided_choice": ["ja", "ไม่", "a\nb"]}, "ja|ไม่|a\nb"),
        ({"structured_outputs": {"choice": ["yes"]}}, "yes"),
        ({"guided_json": {"enum": [1, "ß"]}}, '1|"ß"'),
        ({"guided_json": '{"const": null}'}, "null"),
        ({"structured_outputs": {"json": {"type": "boolean"}}}, "true|false"),
        ({"guided_grammar": 'root ::= "x" [a-c] "!"'}, "x[a-c]!"),
        ({"structured_outputs": {"grammar": 'start: ("ab" | "是")~2'}}, "(ab|是){2}"),
        ({"response_format": {"type": "text"}, "guided_regex": "z+y"}, "z+y"),
    ],
)
def test_fields_of_vllm(post, fields, pattern):
    for path, prompt in (("completions", {"prompt": "hello"}), ("chat/completions", {"messages": TALK})):
        answer = post(path, **prompt, **fields, temperature=0.8, seed=1)
        assert answer.status_code == 200, answer.text
        [choice] = answer.json()["choices"]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        assert re.fullmatch(pattern, text) and choice["finish_reason"] == "stop", text


def test_what_the_most_tokens_cut(post):
    choice = post("completions", prompt="hello", guided_regex="[a-z]{80}", max_tokens=6).json()["choices"][0]
    assert choice["finish_reason"] == "length" and re.fullmatch("[a-z]{6,60}", choice["text"])
    # what is complete with the very last token has ended by itself
    choice = post("completions", prompt="hello", guided_choice=["q"], max_tokens=1).json()["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("q", "stop")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"response_format": named({"type": SECRET})}, "response_format.json_schema.schema cannot .*: Invalid type"),
        ({"response_format": named({"not": {"const": SECRET}})}, r"response_format.json_schema.schema .* \(not\)"),
        ({"response_format": {"type": "json_schema"}}, "response_format json_schema must be given"),
        ({"response_format": {"type": SECRET}}, "response_format.type must be"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, "json_schema.name is missing"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a b"}}}, "json_schema.name must"),
        ({"guided_regex": f"({SECRET}"}, "guided_regex cannot be followed"),
        ({"guided_regex": f"{SECRET}\\"}, "guided_regex cannot be followed"),
        ({"guided_regex": f"(?={SECRET})"}, "guided_regex cannot be followed: look-around"),
        ({"guided_choice": []}, "guided_choice must have at least 1"),
        ({"guided_choice": [1]}, r"guided_choice\[0\] must be"),
        ({"guided_json": f"{{{SECRET}"}, "guided_json must be an object"),
        ({"guided_json": "[" * 5000}, "guided_json must be an object"),
        ({"guided_json": '{"a": ' * 600 + "1" + "}" * 600}, "guided_json must be an object"),
        ({"guided_grammar": f"start: {SECRET}"}, "guided_grammar cannot be followed: unknown name"),
        ({"structured_outputs": {"grammar": f"root ::= {SECRET} ("}}, "structured_outputs.grammar cannot be followed"),
        ({"structured_outputs": {SECRET: 1}}, "structured_outputs"),
        ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_regex and guided_choice must not be given together"),
        ({"guided_grammar": 'start: a\na: a "x"'}, "grammar is none that a text of this model can follow"),
        ({"guided_choice": ["a" * 70_000]}, "guided_choice must have at most 65536 characters"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(post, fields, said):
    for more in ({"prompt": "hello"}, {"prompt": "hello", "stream": True}):
        answer = post("completions", **more, **fields)
        assert answer.status_code == 422, answer.text
        assert re.search(said, answer.json()["error"]["message"]), answer.text
        assert SECRET not in answer.text.replace(f"There is no field '{SECRET}'", "")


@pytest.mark.slow  # a server of its own
def test_models_that_write_whole_texts(run_server, tmp_path):
    import keras
    from served_tasks import make_backbone, make_tokenizer

    import zoo

    keras.utils.set_random_seed(0)
    tokenizer = make_tokenizer()
    whole = zoo.Seq2SeqLM(make_backbone("encoder_decoder", tokenizer, 5), tokenizer)
    whole.export(tmp_path / "whole" / "1", max_new_tokens=5, jit_compile=False)
    with run_server(tmp_path) as address, httpx.Client(base_url=address, timeout=300) as client:
        body = {"model": "whole", "prompt": "one two"}
        answer = client.post("/v1/completions", json={**body, "guided_regex": "[a-z]+"})
        assert answer.status_code == 422 and "follow" in answer.json()["error"]["message"]
        answer = client.post("/v1/completions", json={**body, "response_format": {"type": "text"}})
        assert answer.status_code == 200


def test_reading_a_large_grammar_holds_up_nobody():
    properties = {f"name{number}": {"type": "string", "maxLength": 50} for number in range(800)}
    grammar = json_grammar({"type": "object", "properties": properties})

    async def turns_meanwhile():
        reading = asyncio.create_task(structured_output.require_followable("schema", grammar))
        turns = 0
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        await reading
        return turns

    # two of them start the thread and end it
    assert asyncio.run(turns_meanwhile()) > 20


def test_refusals_hold_no_texts():
    for grammar in (f'start: "{SECRET}', json_grammar({"format": SECRET}), f"start: /{SECRET}(/"):
        with pytest.raises(Problem) as caught:
            asyncio.run(structured_output.require_followable("field", grammar))
        assert caught.value.status == 422 and caught.value.reason.startswith("field cannot be followed")
        assert SECRET not in caught.value.reason


def chained_rules(count):
    names = ["".join(chr(97 + number // 26**place % 26) for place in range(3)) for number in range(count + 1)]
    rules = [f"start: {names[0]}", *(f"{a}: {b}" for a, b in zip(names, names[1:], strict=False)), f'{names[-1]}: "a"']
    return "\n".join(rules)


def chained_schemas(count):
    named = {f"a{k}": {"properties": {"x": {"$ref": f"#/$defs/a{k + 1}"}}} for k in range(count)}
    return json_grammar({"$defs": {**named, f"a{count}": {"type": "integer"}}, "$ref": "#/$defs/a0"})


@pytest.mark.parametrize("grammar", [chained_rules(4000), chained_schemas(900)], ids=["rules", "schemas"])
def test_rules_that_refer_to_each_other_by_the_thousand_end_no_process(grammar):
    """With a usual stack, reading one of these is a segmentation fault."""
    assert len(grammar) < structured_output.MOST_CHARACTERS
    asyncio.run(structured_output.require_followable("field", grammar))
