"""Masks of tokens: a token is allowed where, and only where, some text of the grammar goes on with it."""

import itertools
import re

import numpy as np
import pytest

pytest.importorskip("llguidance", reason="the extra structured is not installed")

from zoo.generation import Choice, Grammar, Regex, TokenMasks, token_masks  # noqa: E402
from zoo.generation.token_masks import bits, spellings_of  # noqa: E402

END = 0


def allowed_ids(mask):
    """The tokens of a mask, read bit by bit."""
    return {32 * word + bit for word, value in enumerate(mask.allowed) for bit in range(32) if int(value) >> bit & 1}


# letters, tokens of several letters, one twice, and parts of characters: "é" is c3 a9, "你" e4 bd a0
SPELLINGS = [
    b"",
    b"a",
    b"b",
    b"ab",
    b"ba",
    b"aab",
    b"a",
    b"",
    b"\xc3",
    b"\xa9",
    "é".encode(),
    b"\xe4\xbd",
    b"\xa0",
    b"bb",
]
EXPRESSIONS = ["a*b", "(ab|ba){1,2}", "a{2,3}b?", "(a|é)b+", "(你|ab)a", "b{0,3}", "(aab|bé)*"]


@pytest.mark.parametrize("pattern", EXPRESSIONS)
def test_tokens_are_those_of_some_text(pattern):
    letters, longest = ["a", "b", "é", "你"], 6
    every = ("".join(some) for count in range(longest + 1) for some in itertools.product(letters, repeat=count))
    texts = [text.encode() for text in every if re.fullmatch(pattern, text)]
    masks = TokenMasks(SPELLINGS)
    seen, waiting = 0, [(b"", masks.begin(Regex(pattern).lark, [END]), ())]
    while waiting:
        before, mask, tokens = waiting.pop()
        if len(before) > 3:  # what goes on with these is among the texts
            continue
        seen += 1
        expected = {
            index
            for index, spelling in enumerate(SPELLINGS)
            if spelling and any(text.startswith(before + spelling) for text in texts)
        }
        is_text = before in texts
        assert allowed_ids(mask) == expected | ({END} if is_text else set()), (pattern, before)
        assert (mask.may_end, mask.must_end) == (is_text, not expected)
        for token in expected:
            mask = masks.begin(Regex(pattern).lark, [END])
            for each in (*tokens, token):
                mask.accept(each)
            waiting.append((before + SPELLINGS[token], mask, (*tokens, token)))
    assert seen >= 5


@pytest.mark.parametrize("count", [31, 32, 33, 64, 70])
def test_words_of_vocabularies_of_all_sizes(count):
    spellings = [b""] * (count - 2) + [b"x", b"y"]
    mask = TokenMasks(spellings).begin(Choice(["yx", "x"]).lark, [0, 5])
    assert mask.allowed.dtype == np.int32 and mask.allowed.shape == (-(-count // 32),)
    assert allowed_ids(mask) == {count - 2, count - 1} and not mask.may_end
    mask.accept(count - 2)
    assert allowed_ids(mask) == {0, 5} and mask.may_end and mask.must_end


def test_texts_of_one_grammar_do_not_share_what_they_have():
    masks = TokenMasks(SPELLINGS)
    one, other = (masks.begin(Regex("ab?").lark) for _ in range(2))
    one.accept(1)
    assert allowed_ids(one) == {2} and allowed_ids(other) == {1, 3, 6}
    # the same grammar with other ends, and without
    assert END not in allowed_ids(one) and one.may_end


def test_special_tokens_are_in_no_text():
    """A grammar may name tokens by their numbers: those that spell nothing are not written."""
    mask = TokenMasks([*SPELLINGS, b"\xff", b"["]).begin('start: "a" (<[0]> | "b")', [END])
    mask.accept(1)
    assert allowed_ids(mask) == {2}


@pytest.mark.parametrize(
    "grammar", ['start: "c"', "start: <[7]>", 'start: a\na: a "x"', "start: <tool>", "start: nothing"]
)
def test_grammars_without_a_text_of_these_tokens(grammar):
    with pytest.raises(ValueError, match="^grammar "):
        TokenMasks(SPELLINGS).begin(grammar)


def test_a_place_where_no_token_fits():
    """The vocabulary has no token for the last letter."""
    mask = TokenMasks(SPELLINGS).begin(Grammar('start: "ax"').lark, [END])
    assert allowed_ids(mask) == {1, 6}
    mask.accept(1)
    assert allowed_ids(mask) == set() and mask.must_end and not mask.may_end


def test_an_automaton_of_very_many_states_is_an_error():
    """It is not built to its end, which would take gigabytes."""
    generator = np.random.default_rng(1)
    many = [bytes(generator.choice([97, 98], size=64).tolist()) for _ in range(300)]
    mask = TokenMasks([b"", b"c", *many]).begin(Regex("c[ab]*a[ab]{18}c").lark, [END])
    with pytest.raises(ValueError, match=r"^grammar cannot be followed: [^\n<]*too many[^\n<]*$"):
        mask.accept(1)


def test_texts_have_states_that_others_have_used_up(monkeypatch):
    """Of an automaton with few; each text alone finds enough, at its beginning and in the midst of it."""
    monkeypatch.setattr(token_masks, "_MOST_STATES", 60)
    spellings = [b"", b"a", b"b", b"ab", b"ba", b"aab"]
    grammar = Regex("[ab]*a[ab]{12}").lark
    masks, generator = TokenMasks(spellings), np.random.default_rng(0)
    for tokens in generator.choice([1, 2], size=(12, 9)).tolist():
        mask, alone = (each.begin(grammar, [END]) for each in (masks, TokenMasks(spellings)))
        for token in tokens:
            assert allowed_ids(mask) == allowed_ids(alone)
            mask.accept(token)
            alone.accept(token)
    # one that needs more than there are is refused, and takes nothing from the next
    with pytest.raises(ValueError, match="too many"):
        mask = masks.begin(grammar, [END])
        for token in generator.choice([1, 2], size=200).tolist():
            mask.accept(token)
    masks.begin(grammar, [END]).accept(1)


def test_a_token_that_is_not_allowed_is_an_error():
    mask = TokenMasks(SPELLINGS).begin(Regex("ab").lark, [END])
    with pytest.raises(ValueError, match="^grammar cannot be followed: .*doesn't satisfy the grammar"):
        mask.accept(2)


def test_ends_that_spell_something_are_no_part_of_a_text():
    """Such as a token that a user's tokenizer does not leave out of texts."""
    masks = TokenMasks(SPELLINGS)
    mask = masks.begin(Regex("ab?").lark, [END, 2])
    assert allowed_ids(mask) == {1, 3, 6} and not mask.may_end
    mask.accept(1)
    assert allowed_ids(mask) == {END, 2} and mask.may_end and mask.must_end
    assert allowed_ids(masks.begin(Regex("b").lark)) == {2}


def test_bits():
    flags = np.random.default_rng(0).random(75) < 0.5
    words = bits(flags)
    assert [int(words[index // 32]) >> (index % 32) & 1 for index in range(75)] == flags.astype(int).tolist()
    assert words.shape == (3,) and int(words[2]) & 0xFFFFFFFF < 2**11


def test_models_with_more_or_fewer_tokens_than_the_tokenizer():
    class Three:
        spellings = (b"a", b"b", b"c")

    assert spellings_of(Three, 5) == [b"a", b"b", b"c", b"", b""]
    assert spellings_of(Three, 2) == [b"a", b"b"]


def test_rules_that_refer_to_each_other_by_the_thousand():
    """With a usual stack, reading them is a segmentation fault."""
    names = ["".join(chr(97 + number // 26**place % 26) for place in range(3)) for number in range(4001)]
    rules = [f"start: {names[0]}", *(f"{a}: {b}" for a, b in zip(names, names[1:], strict=False)), f'{names[-1]}: "a"']
    mask = TokenMasks([b"", b"a", b"b"]).begin("\n".join(rules))
    assert mask.allowed.tolist() == [0b10]


def test_what_cannot_be_followed_is_found_out_once(monkeypatch):
    masks, asked = TokenMasks([b"", b"a"]), []
    matcher = masks._matcher
    monkeypatch.setattr(masks, "_matcher", lambda grammar: asked.append(grammar) or matcher(grammar))
    for _ in range(2):
        with pytest.raises(ValueError, match="grammar cannot be followed"):
            masks.begin("start: /(?=a)b/")
    assert len(asked) == 1


def test_errors_of_a_grammar_do_not_grow():
    masks, lengths = TokenMasks([b"a", b"b"]), []
    for _ in range(5):
        with pytest.raises(ValueError) as caught:
            masks.begin("start: nosuch(")
        lengths.append(len(caught.traceback))
    assert len(set(lengths[1:])) == 1
