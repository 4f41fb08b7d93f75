"""Which tokens merging reaches, against plain merging; and that joined texts then merge as pairs do."""

import itertools
import random

import pytest

from zoo.tokenizers import merge_ranks
from zoo.tokenizers.merge_ranks import merge_scores


def merge(text, ranks):
    """Byte pair encoding as its paper describes it, by ranks of pairs or of joined texts.

    Returns the parts and the rank of the last merge.
    """
    parts, last = list(text), None
    while len(parts) > 1:
        pairs = itertools.pairwise(parts)
        found = [ranks.get(pair, ranks.get("".join(pair), float("inf"))) for pair in pairs]
        best = min(found)
        if best == float("inf"):
            break
        place, last = found.index(best), best
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return parts, last


def random_merges(generator):
    tokens, merges = list("abc"[: generator.choice([1, 2, 3])]), []
    for _ in range(generator.randrange(1, 14)):
        pair = (generator.choice(tokens), generator.choice(tokens))
        if len("".join(pair)) <= 8:
            merges.append(pair)
            tokens += {"".join(pair)} - set(tokens)
    if generator.random() < 0.4:
        generator.shuffle(merges)  # tables that no training gives: parts that come after their whole
    return tokens, merges


@pytest.mark.parametrize("seed", range(8))
def test_random_tables(seed):
    generator = random.Random(seed)
    for _ in range(40):
        tokens, merges = random_merges(generator)
        ranks = {pair: rank for rank, pair in enumerate(dict.fromkeys(merges))}
        scores = merge_scores(set(tokens), merges)
        expected = {}
        for token in tokens:
            parts, last = merge(token, ranks)
            if len(token) > 1 and parts == [token]:
                expected[token] = last
        assert scores == expected, merges
        for _ in range(10):
            text = "".join(generator.choices("abc", k=generator.randrange(1, 16)))
            by_pair, _ = merge(text, ranks)
            by_text, _ = merge(text, scores)
            assert by_text == by_pair, (merges, text)


def test_a_token_that_its_own_characters_do_not_reach():
    # b + c comes first, so that "abc" becomes a, bc and never ab, c
    assert merge_scores({"a", "b", "c", "bc", "ab", "abc"}, [("b", "c"), ("a", "b"), ("ab", "c")]) == {"bc": 0, "ab": 1}


def test_tokens_that_are_merged_one_by_one_are_bounded(monkeypatch):
    tokens = ["a" * length for length in range(1, 200)]
    merges = [("a" * length, "a") for length in range(1, 199)][::-1]
    assert merge_scores(set(tokens), merges)["aa"] == 197
    monkeypatch.setattr(merge_ranks, "_MOST_CHARACTERS", 10_000)
    with pytest.raises(ValueError, match="merges must come after those that make their parts, .* got 19.*; the first"):
        merge_scores(set(tokens), merges)
