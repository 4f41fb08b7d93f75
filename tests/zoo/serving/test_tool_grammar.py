"""Grammars of answers that must call tools: what they allow and forbid, in each style."""

import json

import pytest

llguidance = pytest.importorskip("llguidance", reason="the extra structured is not installed")

from zoo.serving.tool_grammar import call_grammar  # noqa: E402
from zoo.tokenizers import TOOL_STYLES  # noqa: E402
from zoo.tokenizers.chat import ReplyReader  # noqa: E402

PLACE = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTIONS = [
    {
        "name": "weather",
        "parameters": {
            "type": "object",
            # as pydantic writes models within models: references from the top of the schema
            "$defs": {"Place": PLACE},
            "properties": {"place": {"$ref": "#/$defs/Place"}, "days": {"type": "integer"}},
            "required": ["place", "days"],
            "additionalProperties": False,
        },
    },
    {"name": "now"},
]
CITIES = [
    "Z\u00fcrich",
    "\u4eac\u90fd",
    "\u0627\u0644\u0642\u0627\u0647\u0631\u0629",
    "\u0e01\u0e23\u0e38\u0e07\u0e40\u0e17\u0e1e",
]
CITIES.append('\u0926\u093f\u0932\u094d\u0932\u0940 "\\</tool_call>')


def follows(grammar, text):
    """Whether a text is one of a grammar, and may end there."""
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), grammar)
    assert not matcher.is_error(), matcher.get_error()
    return matcher.try_consume_tokens(list(text.encode())) == len(text.encode()) and matcher.is_accepting()


def written(style, name, **arguments):
    return style.call(name, json.dumps(arguments, ensure_ascii=False)).replace(', "id": ""', "")


@pytest.mark.parametrize("name", TOOL_STYLES)
def test_calls_follow_the_grammar_and_are_read(name):
    style = TOOL_STYLES[name]
    grammar = call_grammar(style.to_dict(), FUNCTIONS)
    for city in CITIES:
        calls = [("weather", {"place": {"city": city}, "days": 2}), ("now", {})]
        for chosen in (calls, calls[:1]):
            text = style.calls([written(style, each, **arguments) for each, arguments in chosen])
            assert follows(grammar, text)
            words, found = ReplyReader(style, ["weather", "now"]).read(text)
            assert not words and [(call.name, json.loads(call.arguments)) for call in found] == chosen
    days = style.calls([written(style, "weather", place={"city": "a"}, days=2)])
    for wrong in (
        "",
        "Words",
        f"Words {days}",
        f"{days} ",
        days.replace("weather", "whether"),
        days.replace(": 2}", ': "2"}'),
        days.replace(', "days": 2', ""),
        days.replace('"city"', '"town"'),
    ):
        assert not follows(grammar, wrong), wrong


def test_one_call_and_one_function():
    style = TOOL_STYLES["hermes"]
    now, days = written(style, "now"), written(style, "weather", place={"city": "a"}, days=2)
    assert follows(call_grammar(style.to_dict(), FUNCTIONS), f"{now}\n{days}")
    assert not follows(call_grammar(style.to_dict(), FUNCTIONS, most=1), f"{now}\n{days}")
    named = call_grammar(style.to_dict(), FUNCTIONS[1:], most=1)
    assert follows(named, now) and not follows(named, days)


@pytest.mark.parametrize("name", TOOL_STYLES)
def test_words_or_calls(name):
    style = TOOL_STYLES[name]
    grammar = call_grammar(style.to_dict(), FUNCTIONS, words="")
    days = style.calls([written(style, "weather", place={"city": CITIES[1]}, days=2)])
    for text in ("", "Words.", f" {CITIES[2]} <tool {{ [", "\u0928\u092e\u0938\u094d\u0924\u0947", days):
        assert follows(grammar, text), text
    for wrong in (days.replace("weather", "whether"), days.replace(": 2}", ': "2"}'), days[:-4]):
        assert not follows(grammar, wrong), wrong
    if style.call_begin:
        assert follows(grammar, f"One moment.\n{days}\n{days}")
        assert not follows(grammar, "One moment.\n<tool_call> is a sign")


def test_arguments_are_objects_whatever_the_schema_says():
    functions = [{"name": "now", "parameters": {"type": "string"}}]
    grammar = call_grammar({"call_begin": "<call>", "call_end": "</call>"}, functions, most=1)
    assert '"type": "object"' in grammar and "string" not in grammar


def test_calls_or_what_answers_must_be():
    style = TOOL_STYLES["hermes"]
    grammar = call_grammar(style.to_dict(), FUNCTIONS, words='%json {"type": "array", "items": {"type": "integer"}}')
    assert follows(grammar, "[1,2]") and follows(grammar, written(style, "now"))
    assert not follows(grammar, "Words") and not follows(grammar, "[1,2]" + written(style, "now"))


@pytest.mark.parametrize(
    ("more", "may_invent"), [({}, False), ({"additionalProperties": True}, True), ({"anyOf": [{}]}, True)]
)
def test_no_arguments_are_invented(more, may_invent):
    function = {"name": "weather", "parameters": {**PLACE, **more}}
    style = TOOL_STYLES["hermes"]
    grammar = call_grammar(style.to_dict(), [function])
    assert follows(grammar, style.calls([written(style, "weather", city="a")]))
    assert follows(grammar, style.calls([written(style, "weather", city="a", sea="b")])) is may_invent
