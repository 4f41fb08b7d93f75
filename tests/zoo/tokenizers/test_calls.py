"""The calls that a model writes: whole replies, pieces at every place, and what only looks like a call."""

import dataclasses
import json
import random
import re
import time

import pytest

from zoo.tokenizers import CHAT_FORMATS, TOOL_STYLES
from zoo.tokenizers.chat import ReplyReader

NAMES = ["get_weather", "search"]
TOOLS = [{"type": "function", "function": {"name": name}} for name in NAMES]
CITIES = [
    "Z\u00fcrich",
    "\u4eac\u90fd",
    "\u0627\u0644\u0642\u0627\u0647\u0631\u0629",
    "\u0e01\u0e23\u0e38\u0e07\u0e40\u0e17\u0e1e",
    "\u0926\u093f\u0932\u094d\u0932\u0940",
]


def tagged(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


def bare(name, **arguments):
    return json.dumps({"name": name, "parameters": arguments}, ensure_ascii=False)


WEATHER = tagged("get_weather", city=CITIES[1])
WEATHER_CALL = ("get_weather", {"city": CITIES[1]})
NO_VALUES = ["NaN", "[-Infinity]", "1e999", '"\\ud800"', f"{'[' * 10_000}{']' * 10_000}"]
# the reply, its words, and names and arguments of its calls
CASES = {
    "hermes": [
        ("Just words. ", "Just words. ", []),
        (WEATHER, "", [("get_weather", {"city": CITIES[1]})]),
        (f"One moment.\n{WEATHER}\n", "One moment.", [("get_weather", {"city": CITIES[1]})]),
        (
            "\n".join(tagged("search", words=city) for city in CITIES),
            "",
            [("search", {"words": city}) for city in CITIES],
        ),
        # models write spaces as they like, and may leave out the end
        ('<tool_call>{"arguments": {}, "name": "search"}', "", [("search", {})]),
        ('<tool_call>{"name": "search"}</tool_call>', "", [("search", {})]),
        # a call of nothing, a broken one, one that is cut, one without an object
        ("<tool_call>\n</tool_call> a", "<tool_call>\n</tool_call> a", []),
        ("a\n<tool_call>{name: search}</tool_call>\nb", "a\n<tool_call>{name: search}</tool_call>\nb", []),
        ('b\n <tool_call>\n{"name": "search", "arg', 'b\n <tool_call>\n{"name": "search", "arg', []),
        ('<tool_call>{"name": "search", "arguments": [1]}</tool_call>',) * 2 + ([],),
        # a text in a call may spell its end
        (tagged("search", words="a</tool_call>b"), "", [("search", {"words": "a</tool_call>b"})]),
        # thoughts are words, whatever stands in them
        (f"<think>\nI could {WEATHER}\n</think>\n\nNo.", f"<think>\nI could {WEATHER}\n</think>\n\nNo.", []),
        (f"<think>\nHm\n</think>\n\n{WEATHER}", "<think>\nHm\n</think>", [("get_weather", {"city": CITIES[1]})]),
        (f"<think>\nI could {WEATHER}", f"<think>\nI could {WEATHER}", []),
        ("a <", "a <", []),
        # a tool that was not offered, whatever its texts hold; alone, beside a call, and where the end is cut off
        (tagged("delete", words=CITIES[2]), tagged("delete", words=CITIES[2]), []),
        (
            f"So: {tagged('delete')}\n{WEATHER}\n{tagged('drop')}",
            f"So: {tagged('delete')}\n{tagged('drop')}",
            [WEATHER_CALL],
        ),
        (tagged("delete", words=WEATHER), tagged("delete", words=WEATHER), []),
        (tagged("delete", words=WEATHER)[:-12], tagged("delete", words=WEATHER)[:-12], []),
        # an open text in a call takes no later call along; line breaks in texts stand as they are
        (f'<tool_call>{{"x": "5}}}}</tool_call>\n{WEATHER}', '<tool_call>{"x": "5}}</tool_call>', [WEATHER_CALL]),
        (
            f'<tool_call>{{"x": "5</tool_call>\n{WEATHER} </tool_call>',
            '<tool_call>{"x": "5</tool_call> </tool_call>',
            [WEATHER_CALL],
        ),
        (f"<tool_call>\\</tool_call>{WEATHER}", "<tool_call>\\</tool_call>", [WEATHER_CALL]),
        (tagged("search", words="a\nb").replace("\\n", "\n"), "", [("search", {"words": "a\nb"})]),
        (tagged("search", words='"\\"</tool_call>\\'), "", [("search", {"words": '"\\"</tool_call>\\'})]),
        # values that JSON or UTF-8 do not have
        *((text, text, []) for text in (tagged("search").replace("{}", f'{{"a": {value}}}') for value in NO_VALUES)),
    ],
    "llama3": [
        ("Just words. ", "Just words. ", []),
        (bare("search", words=CITIES[2]), "", [("search", {"words": CITIES[2]})]),
        (f"{bare('search', words='a')}; {bare('search', words='b')}", "", [("search", {"words": w}) for w in "ab"]),
        (json.dumps({"type": "function", "name": "search", "parameters": {}}), "", [("search", {})]),
        # JSON that is no call, a tool that is not known, a call with words behind it, a call that is cut
        ('{"name": 7}', '{"name": 7}', []),
        (bare("delete"), bare("delete"), []),
        (f"{bare('search')} Well", f"{bare('search')} Well", []),
        ('{"name": "search", "par', '{"name": "search", "par', []),
        (f"Call {bare('search')}", f"Call {bare('search')}", []),
    ],
    "mistral": [
        ("[1] is a note", "[1] is a note", []),
        (' [{"name": "search", "arguments": {"words": "a"}}]', "", [("search", {"words": "a"})]),
        (
            '[{"name": "search", "arguments": {}, "id": "abcDEF123"}, {"name": "get_weather", "arguments": {}}]',
            "",
            [("search", {}), ("get_weather", {})],
        ),
        ('[{"name": "search"}, 7]', '[{"name": "search"}, 7]', []),
        *(
            (text, text, [])
            for text in (f'[{{"name": "search", "arguments": {{"a": {value}}}}}]' for value in NO_VALUES)
        ),
    ],
}


def told(calls):
    return [(call.name, json.loads(call.arguments)) for call in calls]


@pytest.mark.parametrize("style", CASES)
def test_replies_and_their_pieces(style):
    for reply, words, expected in CASES[style]:
        found, calls = ReplyReader(TOOL_STYLES[style], NAMES).read(reply)
        assert (found, told(calls)) == (words, expected), reply
        for seed in range(8):
            # at each place, and in random pieces
            draw = random.Random(seed)
            cuts = range(len(reply)) if seed == 0 else sorted(draw.sample(range(len(reply)), min(3, len(reply))))
            borders = [0, *cuts, len(reply)]
            reader = ReplyReader(TOOL_STYLES[style], NAMES)
            parts = [reader.add(reply[a:b]) for a, b in zip(borders, borders[1:], strict=False)] + [reader.finish()]
            assert "".join(part[0] for part in parts) == words, reply
            assert told([call for part in parts for call in part[1]]) == expected


def test_words_come_at_once_and_calls_when_they_are_complete():
    reader = ReplyReader(TOOL_STYLES["hermes"], NAMES)
    assert reader.add("One moment.\n<tool") == ("One moment.", [])
    assert reader.add('_call>\n{"name": "search", "arguments": {}}') == ("", [])
    words, [call] = reader.add("\n</tool_call>")
    assert words == "" and call.name == "search" and re.fullmatch("[A-Za-z0-9]{9}", call.number)
    reader = ReplyReader(TOOL_STYLES["llama3"], NAMES)
    assert reader.add("Words ") == ("Words ", []) and reader.add('{"name": "search"}') == ('{"name": "search"}', [])


@pytest.mark.parametrize("piece", ["</tool_call>", '<tool_call>\\"</tool_call>', '<tool_call>""</tool_call>', "\\"])
def test_hostile_replies_take_time_in_proportion(piece):
    reader = ReplyReader(TOOL_STYLES["hermes"], NAMES)
    reply = ['<tool_call>{"x": "', *[piece] * 4000]
    began = time.process_time()
    parts = [*map(reader.add, reply), reader.finish()]
    # those of squares take a minute and more
    assert time.process_time() - began < 5
    assert "".join(words for words, _ in parts) == "".join(reply) and not any(calls for _, calls in parts)


def test_thoughts_that_the_prompt_begins():
    for style, call in (("hermes", tagged("search")), ("llama3", bare("search")), ("mistral", '[{"name": "search"}]')):
        chat_format = CHAT_FORMATS["llama3"].with_tools(style)
        thinking = dataclasses.replace(chat_format, reply=f"{chat_format.reply}<think>\n")
        message = thinking.read_reply(f"I could {call}\n</think>\n\n{call}", TOOLS)
        assert message["content"] == f"I could {call}\n</think>" and len(message["tool_calls"]) == 1
        assert thinking.read_reply(f"I could {call}", TOOLS) == {"role": "assistant", "content": f"I could {call}"}
        closed = dataclasses.replace(chat_format, reply=f"{chat_format.reply}<think>\n\n</think>\n\n")
        assert closed.read_reply(call, TOOLS)["content"] is None


def test_at_most_so_many_calls():
    reply = "\n".join(tagged("search", words=word) for word in "abc")
    _, calls = ReplyReader(TOOL_STYLES["hermes"], NAMES, most=1).read(reply)
    assert told(calls) == [("search", {"words": "a"})]


def test_replies_as_messages():
    chat_format = CHAT_FORMATS["chatml"].with_tools("hermes")
    message = chat_format.read_reply(f"One moment.\n{WEATHER}", TOOLS)
    assert message["content"] == "One moment." and message["tool_calls"][0]["type"] == "function"
    assert message["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": f'{{"city": "{CITIES[1]}"}}'}
    # written back they are what the model wrote
    talk = [{"role": "user", "content": "Where?"}, message]
    assert f"One moment.\n{WEATHER}<|im_end|>" in chat_format.render(talk, add_reply=False)
    assert chat_format.read_reply("Words", TOOLS) == {"role": "assistant", "content": "Words"}
    assert chat_format.read_reply(WEATHER, TOOLS)["content"] is None
    assert chat_format.read_reply(WEATHER, None)["content"] is None
    assert chat_format.read_reply(WEATHER, TOOLS[:0]) == {"role": "assistant", "content": WEATHER}
    assert CHAT_FORMATS["chatml"].with_tools("llama3").read_reply(bare("search"), None)["content"] == bare("search")
    with pytest.raises(ValueError, match="reading a reply needs a style of tools"):
        CHAT_FORMATS["chatml"].read_reply("Words", None)
