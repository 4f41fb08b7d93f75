"""Generated texts that follow grammars, looked at by the standard library and by `jsonschema`."""

import dataclasses
import functools
import json
import re

import numpy as np
import pytest
from random_schemas import faults, make_schemas
from small_writer import make_writer

pytest.importorskip("llguidance", reason="the extra structured is not installed")

import zoo  # noqa: E402
from zoo.generation import BannedTokens, Choice, Grammar, JSONSchema, NoRepeatNGram, Regex  # noqa: E402

PROMPTS = ["hello who", "你好", "नमस्ते, how are", "مرحبا"]
DRAWN = {"sampler": {"name": "sample", "temperature": 1.2}, "seed": 3}
# every byte, so that nothing is left out
ANYTHING = Grammar('%llguidance {"allow_invalid_utf8": true}\nstart: /(?s-u:.)*/')


@pytest.fixture(scope="module")
def model():
    return make_writer()


def write(model, prompts, grammar, **options):
    return model.generate(prompts, **{"grammar": grammar, "strip_prompt": True, "max_new_tokens": 200, **options})


@pytest.mark.parametrize(
    "pattern",
    [
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
        "(ja|nein), (你好|สวัสดี|नमस्ते)!",
        r"/\*.{0,9}\*/",
        r"[\u0600-\u06ff]{1,5}",
        r'"\\\\[a-z/]{3}"',
        "[^\x00-\x7f]{2,4}",
    ],
)
def test_expressions_match_the_whole_text(model, pattern):
    for options in ({}, DRAWN):
        texts = write(model, PROMPTS, Regex(pattern), **options)
        assert all(re.fullmatch(pattern, text) for text in texts), texts


def test_choices_and_grammars(model):
    choices = ["yes", "no", "yes, of course", "😀\n\t\"'\x7f\x1b", "ไม่"]
    drawn = model.generate(
        "hello", grammar=Choice(choices), sampler="sample", num_results=30, strip_prompt=True, max_new_tokens=40
    )
    assert set(drawn) <= set(choices) and len(set(drawn)) > 1
    lark = 'start: greeting (", " greeting){2}\ngreeting: "hello" | "你好"'
    gbnf = 'root ::= greeting (", " greeting){2}\ngreeting ::= "hello" | "你好"'
    for text in (lark, gbnf):
        assert re.fullmatch("(hello|你好)(, (hello|你好)){2}", write(model, "a", Grammar(text)))


def test_random_schemas(model):
    """`python tests/many_schemas.py` does it for a thousand."""
    for number, schema in enumerate(make_schemas(seed=1, count=24)):
        options = {"sampler": "sample", "seed": number, "num_results": 2, "max_new_tokens": 900}
        for text in write(model, "hello", JSONSchema(schema), **options):
            assert not faults(text, schema), (schema, text)


def test_any_object_is_valid_as_far_as_it_comes(model):
    for text in write(model, PROMPTS, JSONSchema(), max_new_tokens=150, **DRAWN):
        try:
            assert isinstance(json.loads(text), dict)
        except json.JSONDecodeError as error:  # cut, and not wrong at an earlier place
            assert error.pos >= len(text) - 1 or "Unterminated" in error.msg, text


def test_references_as_pydantic_writes_them(model):
    pydantic = pytest.importorskip("pydantic", reason="the extra serve is not installed")

    class Place(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=4)
        height: int = pydantic.Field(ge=-9, le=99)

    class Journey(pydantic.BaseModel):
        places: list[Place] = pydantic.Field(min_length=1, max_length=2)
        last: Place | None

    for text in write(model, PROMPTS, JSONSchema(Journey.model_json_schema()), max_new_tokens=600, **DRAWN):
        assert 1 <= len(Journey.model_validate_json(text).places) <= 2


def test_conversations(model):
    talk = [{"role": "user", "content": "你好, who are you?"}]
    text = model.generate(talk, grammar=Regex("(I am|我是) [a-z]{3}[.]"), max_new_tokens=60)
    assert re.fullmatch("(I am|我是) [a-z]{3}[.]", text)
    several = model.generate([talk, talk], grammar=Choice(["a", "b"]), max_new_tokens=60)
    assert len(several) == 2 and set(several) <= {"a", "b"}


@pytest.mark.parametrize(
    "options", [{}, {"sampler": {"name": "sample", "top_k": 9, "min_p": 0.01}}, {**DRAWN, "seed": 2**32 - 1}]
)
def test_a_grammar_of_all_texts_changes_nothing(model, options):
    options = {**options, "max_new_tokens": 40, "return_scores": True, "jit_compile": False}
    tokenizer = model.tokenizer
    # control tokens, those that the tokenizer lacks, and what is in no text of UTF-8
    silent = {tokenizer.token_to_id(token) for token in tokenizer.special_tokens} - {tokenizer.end_id}
    silent |= set(range(tokenizer.vocabulary_size, model.backbone.config.vocabulary_size))
    silent.add(tokenizer.spellings.index(b"\xff"))
    expected, scores = model.generate(PROMPTS, processors=[BannedTokens(sorted(silent))], **options)
    texts, same = model.generate(PROMPTS, grammar=ANYTHING, **options)
    assert texts == expected
    np.testing.assert_allclose(same, scores, rtol=1e-3)


def test_long_texts_and_many_rows(model):
    """Caches grow, and rows end at places of their own."""
    texts = write(model, PROMPTS * 2 + ["hello"], Regex("([a-z]{2} ){100,130}[.]"), max_new_tokens=700, batch_size=9)
    assert len(texts) == 9 and all(re.fullmatch("([a-z]{2} ){100,130}[.]", text) for text in texts)


def test_texts_are_cut_at_the_most_tokens_and_at_stops(model):
    text = write(model, "hello", Regex("[a-m]{50}"), max_new_tokens=7)
    assert re.fullmatch("[a-m]{1,49}", text) and len(model.tokenizer.tokenize(text)) <= 7
    whole = write(model, "hello", Regex("[a-m]{50}"), **DRAWN)
    stop = whole[20]
    assert write(model, "hello", Regex("[a-m]{50}"), stop=stop, **DRAWN) == whole[: whole.index(stop)]


def test_pieces_are_those_of_the_text(model):
    options = {"grammar": Regex("(你好|[a-z]{3}, ){6}"), "max_new_tokens": 90, "strip_prompt": True, **DRAWN}
    pieces = list(model.stream(PROMPTS, **options))
    assert len(pieces) > 2
    assert ["".join(parts) for parts in zip(*pieces, strict=True)] == model.generate(PROMPTS, **options)


def test_weights_that_change_between_two_pieces_are_an_error(model):
    pieces = model.stream("hello", grammar=Regex("[a-z]{60}"), max_new_tokens=60)
    next(pieces), next(pieces)
    weights = model.backbone.trainable_variables[0]
    before = weights.numpy()
    try:
        weights.assign(2 * before)
        with pytest.raises(RuntimeError, match="weights of the model must not change"):
            next(pieces)
    finally:
        weights.assign(before)


def test_the_empty_text(model):
    assert write(model, "hello", Choice([""])) == ""


@pytest.mark.parametrize(
    ("make", "argument", "said"),
    [
        (lambda: Regex("(a"), "pattern", "unclosed group"),
        (lambda: Regex("(?=a)b"), "pattern", "look-ahead"),
        (lambda: Regex("a\\"), "pattern", "backslash"),
        (lambda: JSONSchema({"type": "text"}), "schema", "Invalid type"),
        (lambda: JSONSchema({"not": {"type": "string"}}), "schema", "Unimplemented keys"),
        (lambda: JSONSchema({"type": "string", "minLength": 5, "maxLength": 2}), "schema", "Unsatisfiable"),
        (lambda: JSONSchema({"const": float("nan")}), "schema", "JSON"),
        (lambda: JSONSchema(functools.reduce(lambda inner, _: {"items": inner}, range(10**5), {})), "schema", "JSON"),
        (lambda: Choice([]), "texts", "at least one"),
        (lambda: Grammar("start: nowhere"), "text", "nowhere"),
        (lambda: Grammar("root ::= ("), "text", "Expected"),
    ],
)
def test_what_cannot_be_followed_names_the_argument(make, argument, said):
    with pytest.raises(ValueError, match=f"^{argument} must (?s:.*){said}") as caught:
        make()
    assert "whitespace_pattern" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: Regex(b"a"), "pattern"),
        (lambda: Grammar(None), "text"),
        (lambda: JSONSchema('{"type": "object"}'), "schema"),
        (lambda: Choice("yes"), "texts"),
        (lambda: Choice(["yes", 1]), r"texts\[1\]"),
    ],
)
def test_types_of_arguments(make, argument):
    with pytest.raises(TypeError, match=f"^{argument} must be"):
        make()


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"sampler": "beam"}, "sampler"),
        ({"sampler": {"name": "sample", "typical_p": 0.5}}, "sampler"),
        ({"draft": "prompt_lookup"}, "draft"),
        ({"processors": [NoRepeatNGram(3)]}, "processors"),
        ({"stop": [[3, 4]]}, "stop"),
        ({"return_cache": True}, "cache"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**32}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"grammar": Grammar('start: <[0]> "a"')}, "grammar"),
    ],
)
def test_what_goes_with_no_grammar_is_refused_by_name(model, options, argument):
    with pytest.raises(ValueError, match=f"^{argument} must "):
        model.generate("hello", **{"grammar": ANYTHING, **options})


def test_settings_are_refused_where_there_is_no_text(model):
    for way in (model.generate, model.stream):
        with pytest.raises(ValueError, match="^stop must hold strings alone with a grammar"):
            way([], grammar=ANYTHING, stop=[[3, 4]])


def test_what_the_model_says_of_generation_can_be_left_out(model):
    """Nobody gave it, so the message says how to do without."""
    for generation, argument, other in (
        ({"processors": [{"name": "repetition_penalty", "penalty": 1.1}]}, "processors", []),
        ({"stop": [[3, 4]]}, "stop", []),
        ({"sampler": {"name": "beam", "num_beams": 2}}, "sampler", "greedy"),
    ):
        own = zoo.CausalLM(model.backbone, model.tokenizer, generation=generation)
        with pytest.raises(
            ValueError, match=f"^{argument} must .*{re.escape(f'pass {argument}={other!r}')}.*generation"
        ):
            write(own, "hello", Choice(["a", "b"]))
        assert write(own, "hello", Choice(["a", "b"]), **{argument: other}) in ("a", "b")


def test_other_objects_and_models(model):
    for given in ({"type": "object"}, "[a-z]+", JSONSchema):
        with pytest.raises(TypeError, match="^grammar must be one of zoo.generation"):
            model.generate("hello", grammar=given)
    config = dataclasses.replace(
        model.backbone.config, vocabulary_size=model.tokenizer.vocabulary_size, architecture="encoder_decoder"
    )
    other = zoo.Seq2SeqLM(zoo.Backbone.from_config(config), model.tokenizer)
    with pytest.raises(ValueError, match="^grammar must be None with this model"):
        other.generate("hello", grammar=ANYTHING)


def test_exports_have_none(model, tmp_path):
    with pytest.raises(TypeError, match="takes no grammar: use the server"):
        model.export(tmp_path / "export", grammar=ANYTHING)
    assert not (tmp_path / "export").exists()


def test_a_task_of_ones_own_may_have_an_option_of_this_name(model, tmp_path):
    class Own(zoo.CausalLM):
        def endpoints(self, *, grammar=None):
            raise LookupError(f"endpoints of {grammar}")

    own = Own(model.backbone, model.tokenizer)
    with pytest.raises(LookupError, match="^'?endpoints of mine"):
        own.export(tmp_path / "export", grammar="mine")
    with pytest.raises(TypeError, match="must be among .*grammar, got .*'other'"):
        own.export(tmp_path / "export", grammar="mine", other=1)
