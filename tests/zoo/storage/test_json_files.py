"""JSON from outside: size, depth and types are bounded, and errors are short and name file and key."""

import dataclasses
import json
import math
from typing import Any, Literal

import pytest

from zoo.storage import errors_of_file, json_files, parse_json, quote, quote_key, read_json, require_type, to_dataclass


@dataclasses.dataclass
class Inner:
    number: int
    rate: float = 0.5


@dataclasses.dataclass
class Outer:
    inner: Inner
    flag: bool = False
    names: list[str] = dataclasses.field(default_factory=list)
    ids: dict[str, int] = dataclasses.field(default_factory=dict)
    pair: tuple[str, float] | None = None
    kind: Literal["a", "b"] = "a"
    entries: list[Inner] = dataclasses.field(default_factory=list)
    anything: Any = None


def test_files(tmp_path):
    path = tmp_path / "config.json"
    with pytest.raises(FileNotFoundError, match="There is no file .*config.json"):
        read_json(path)
    path.write_text('{"a": [1, 2.5, null, true, "\\u00e9\\ud83d\\ude00"]}')
    assert read_json(path) == {"a": [1, 2.5, None, True, "\u00e9\U0001f600"]}
    with pytest.raises(ValueError, match=r"config.json must have at most 10 bytes, got \d+"):
        read_json(path, most_bytes=10)
    assert read_json(path, most_bytes=path.stat().st_size)
    for text in ("[]", "null", "3", '"x"'):
        path.write_text(text)
        with pytest.raises(ValueError, match="config.json must be an object, got "):
            read_json(path)
    with pytest.raises(ValueError, match="must be an ordinary file"):
        read_json(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "c.json is not valid JSON: Expecting value: line 1 column 1"),
        (b'{"a": 1,}', "c.json is not valid JSON: .*line 1 column 9"),
        (b'{"a": "\xff"}', "c.json is not valid JSON: .*utf-8.* in position 7"),
        (b"\xef\xbb\xbf{}", "c.json is not valid JSON: .*BOM"),
        (b'{"a": {"b": [1, NaN]}}', r"c.json: a.b\[1\] must be a finite number, got nan"),
        (b'{"a": [-Infinity]}', r"c.json: a\[0\] must be a finite number, got -inf"),
        (b'{"a": 1e999}', "c.json: a must be a finite number, got inf"),
        (b'{"a": {"b": 1, "c": 2, "b": 3}}', "c.json.*: the key 'b' occurs twice in one object"),
        (b'{"a": ["x", "\\ud800"]}', r"c.json: a\[1\] must be Unicode, got half of a surrogate pair"),
        (b'{"a": {"\\udc00": 1}}', "c.json: a key of a must be Unicode"),
        (b'{"a": {"b": ' + b"9" * 5001 + b"}}", "c.json: b must have at most 1000 digits, got 5001"),
    ],
)
def test_what_is_not_plain(content, message):
    with pytest.raises(ValueError, match=message) as caught:
        parse_json(content, "c.json")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("opening, closing", [(b"[", b"]"), (b'{"x":', b"}")])
def test_depth(opening, closing):
    def nested(depth):
        return b'{"a": 1, "deep": ' + opening * (depth - 1) + b"1" + closing * (depth - 1) + b"}"

    assert parse_json(nested(json_files.MOST_DEPTH), "c.json")["a"] == 1
    # the parser of Python ends in a RecursionError at the deepest of these
    for depth in (json_files.MOST_DEPTH + 1, 500, 100_000):
        with pytest.raises(ValueError, match="c.json: .*must be nested at most 32 deep") as caught:
            parse_json(nested(depth), "c.json")
        assert len(str(caught.value)) < 500 and ("deep" in str(caught.value).split("must")[0] or opening != b"[")


def test_number_of_values(monkeypatch):
    monkeypatch.setattr(json_files, "MOST_CONTAINERS", 10)
    monkeypatch.setattr(json_files, "MOST_VALUES", 20)
    assert len(parse_json(b"[" + b"[]," * 8 + b"1]", "c.json")) == 9
    for content in (b"[" + b"[]," * 10 + b"1]", b"[" + b"1," * 21 + b"1]"):
        with pytest.raises(ValueError, match="c.json must hold at most 20 values and 10 lists and objects"):
            parse_json(content, "c.json")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "c.json must be an object, got []"),
        ({}, "c.json: inner is missing."),
        ({"inner": None}, "c.json: inner must be an object, got None."),
        ({"inner": {}}, "c.json: inner.number is missing."),
        ({"inner": {"number": "3"}}, "c.json: inner.number must be an integer, got '3'."),
        ({"inner": {"number": True}}, "c.json: inner.number must be an integer, got True."),
        ({"inner": {"number": 3.0}}, "c.json: inner.number must be an integer, got 3.0."),
        ({"inner": {"number": 3, "rate": "x"}}, "c.json: inner.rate must be a number, got 'x'."),
        ({"flag": 1}, "c.json: flag must be true or false, got 1."),
        ({"names": "abc"}, "c.json: names must be a list of a text, got 'abc'."),
        ({"names": ["a", 3]}, "c.json: names[1] must be a text, got 3."),
        ({"ids": {"x": "1"}}, "c.json: ids.x must be an integer, got '1'."),
        ({"ids": []}, "c.json: ids must be an object, got []."),
        ({"pair": ["a"]}, "c.json: pair must be a list of a text, a number, got ['a']."),
        ({"pair": ["a", "b"]}, "c.json: pair[1] must be a number, got 'b'."),
        ({"kind": "c"}, "c.json: kind must be one of ('a', 'b'), got 'c'."),
        ({"kind": ["a"]}, "c.json: kind must be one of ('a', 'b'), got ['a']."),
        ({"entries": [{"number": 1}, {"nmber": 1}]}, "c.json: entries[1].nmber is not known. Did you mean 'number'?"),
        ({"inne": 1}, "c.json: inne is not known. Did you mean 'inner'?"),
    ],
)
def test_types_and_paths_of_keys(values, message):
    if isinstance(values, dict) and len(values.keys() - {"inner", "inne"}):
        values = {"inner": {"number": 1}, **values}
    with pytest.raises(ValueError) as caught:
        to_dataclass(Outer, values, "c.json")
    assert str(caught.value).startswith(message)


def test_what_fits_becomes_the_dataclass():
    values = {
        "inner": {"number": 2, "rate": 1},
        "names": ["x"],
        "ids": {"y": 1},
        "pair": ["z", 2],
        "entries": [{"number": 3}],
        "anything": {"deep": [None]},
    }
    expected = Outer(Inner(2, 1), False, ["x"], {"y": 1}, ("z", 2), "a", [Inner(3)], {"deep": [None]})
    assert to_dataclass(Outer, values, "c.json") == expected
    assert to_dataclass(Outer, {**values, "other": 3}, "c.json", others=True) == expected
    with pytest.raises(ValueError, match=r"^c.json: model.vocab\[1\]\[0\] must be a text, got 3"):
        require_type([["a", 1.0], [3, 1.0]], list[tuple[str, float]], "c.json: model.vocab")


@pytest.mark.parametrize(
    "value",
    ["x" * 300_000, ["x" * 300_000], list(range(300_000)), {"x" * 300_000: 1}, 10**5000, b"\0" * 300_000],
    ids=["text", "list of a text", "list", "object", "number", "bytes"],
)
def test_messages_stay_short(value):
    assert len(quote(value)) < 300
    for values in ({"inner": [value]}, {"inner": {"number": [value]}}, {"inner": {"number": 1}, "names": [[value]]}):
        with pytest.raises(ValueError, match="^c.json: (inner|names)") as caught:
            to_dataclass(Outer, values, "c.json")
        assert len(str(caught.value)) < 400
    with pytest.raises(ValueError, match="^c.json: ") as caught:
        with errors_of_file("c.json"):
            raise ValueError("x" * 300_000)
    assert len(str(caught.value)) < 2000


def test_long_keys_are_cut():
    key = "k" * 300_000
    for content in ({key: {"a": math.nan}}, {"a": {key: [math.inf]}}):
        with pytest.raises(ValueError, match="^c.json: .*must be a finite number") as caught:
            parse_json(json.dumps(content).encode(), "c.json")
        assert len(str(caught.value)) < 400
    with pytest.raises(ValueError, match="c.json: inner.kkk.* is not known") as caught:
        to_dataclass(Outer, {"inner": {"number": 1, key: 1}}, "c.json")
    assert len(str(caught.value)) < 400
    with pytest.raises(ValueError, match="the key 'kkk.* occurs twice") as caught:
        parse_json(f'{{"{key}": 1, "{key}": 2}}'.encode(), "c.json")
    assert len(str(caught.value)) < 400


def test_quotes():
    assert quote("x" * 300_000, most=4) == "'xxx... (300000 characters)"
    assert quote("x" * 300) == f"'{'x' * 199}... (300 characters)"
    assert quote("abc") == "'abc'" and quote("abc", plain=True) == "abc"
    assert quote(list(range(300))) == "a list of 300 entries" and quote([1, 2]) == "[1, 2]"
    assert quote(10**5000) == "a int that is too long to be shown"


def test_keys_that_cannot_be_seen_have_quotation_marks():
    assert quote_key("model.norm.weight") == "model.norm.weight" and quote_key("two words") == "two words"
    assert quote_key("") == "''" and quote_key(" ") == "' '" and quote_key("a\0b") == "'a\\x00b'"
    assert quote_key("x" * 300, most=4) == "xxxx... (300 characters)"
    for content, place in ((b'{"": [NaN]}', r"''[0]"), (b'{"a": {"": NaN}}', "a.''"), (b'{"": {"": NaN}}', "''.''")):
        with pytest.raises(ValueError) as caught:
            parse_json(content, "c.json")
        assert str(caught.value) == f"c.json: {place} must be a finite number, got nan."
    for values, message in (
        ({"": 1, "inner": {"number": 1}}, "c.json: '' is not known."),
        ({"inner": {"number": 1, "": 3}}, "c.json: inner.'' is not known."),
        ({"inner": {"number": 1}, "ids": {"": "x"}}, "c.json: ids.'' must be an integer, got 'x'."),
    ):
        with pytest.raises(ValueError) as caught:
            to_dataclass(Outer, values, "c.json")
        assert str(caught.value).startswith(message)


def test_number_of_values_of_one_file(tmp_path):
    path = tmp_path / "c.json"
    path.write_text('{"labels": {"a": 1, "b": 2, "c": 3}}')
    assert read_json(path, most_values=2)["labels"]["c"] == 3
    with pytest.raises(ValueError, match="c.json must hold at most 1 values .*, got more at byte 26, after the key b"):
        read_json(path, most_values=1)
