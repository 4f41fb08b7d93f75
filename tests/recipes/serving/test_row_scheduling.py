"""Which text is written next, on texts with lengths and times that are given."""

import types

import pytest

from recipes.serving.row_scheduling import SHORTER, TOKENS_OF_A_SECOND, by_urgency, text_that_gives_way


def text(left, since=0.0, aside=0.0):
    return types.SimpleNamespace(left=left, waits_since=since, seconds_aside=aside)


def left(text):
    return text.left


def test_the_shortest_is_first_unless_another_has_waited():
    short, long = text(8, since=10.0), text(1000, since=10.0)
    assert by_urgency([long, short], left, now=10.0) == [short, long]
    # 8 and 1000 tokens are equal when the long one has waited for 992 / 50 seconds more
    seconds = 992 / TOKENS_OF_A_SECOND
    for more, first in ((0.1, long), (-0.1, short)):
        waiting = [text(1000, since=0.0), text(8, since=seconds + more)]
        assert by_urgency(waiting, left, now=50.0)[0].left == first.left
        waiting = [text(1000, since=40.0, aside=seconds + more), text(8, since=40.0)]
        assert by_urgency(waiting, left, now=50.0)[0].left == first.left
    # of equal texts the one that came first
    one, two = text(5, since=1.0), text(5, since=2.0)
    assert by_urgency([two, one], left, now=3.0) == [one, two]


@pytest.mark.parametrize(("tokens", "gives_way"), [(25, True), (26, False), (8, True), (2, True)])
def test_the_longest_gives_way_to_what_is_much_shorter(tokens, gives_way):
    longest = text(SHORTER * 25)
    found = text_that_gives_way([text(30), longest, text(60)], text(tokens), left, steps=8)
    assert found is (longest if gives_way else None)


def test_turns_and_seconds_aside_count():
    # what is shorter than a turn takes as long as one
    assert text_that_gives_way([text(SHORTER * 8)], text(1), left, steps=8) is not None
    assert text_that_gives_way([text(SHORTER * 8 - 1)], text(1), left, steps=8) is None
    # a text that has been put aside for long keeps its row, and another one gives way
    tired, other = text(1000, aside=990 / TOKENS_OF_A_SECOND), text(500)
    assert text_that_gives_way([tired, other], text(8), left, steps=8) is other
    assert text_that_gives_way([tired], text(8), left, steps=8) is None
    assert text_that_gives_way([], text(8), left, steps=8) is None
