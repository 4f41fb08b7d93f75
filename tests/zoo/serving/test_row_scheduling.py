"""Which text is written next, on texts with lengths and times that are given."""

import types

import pytest

from zoo.serving.row_scheduling import SHORTER, TOKENS_OF_A_SECOND, by_urgency, text_that_gives_way, that_gives_place

# of one client
ROWS = {"a": 3}


def text(left, since=0.0, aside=0.0, client="a"):
    return types.SimpleNamespace(left=left, waits_since=since, seconds_aside=aside, client=client)


def left(text):
    return text.left


def test_the_shortest_is_first_unless_another_has_waited():
    short, long = text(8, since=10.0), text(1000, since=10.0)
    assert by_urgency([long, short], left, now=10.0, rows={}) == [short, long]
    # 8 and 1000 tokens are equal when the long one has waited for 992 / 50 seconds more
    seconds = 992 / TOKENS_OF_A_SECOND
    for more, first in ((0.1, long), (-0.1, short)):
        waiting = [text(1000, since=0.0), text(8, since=seconds + more)]
        assert by_urgency(waiting, left, now=50.0, rows={})[0].left == first.left
        waiting = [text(1000, since=40.0, aside=seconds + more), text(8, since=40.0)]
        assert by_urgency(waiting, left, now=50.0, rows={})[0].left == first.left
    # of equal texts the one that came first
    one, two = text(5, since=1.0), text(5, since=2.0)
    assert by_urgency([two, one], left, now=3.0, rows={}) == [one, two]


@pytest.mark.parametrize(("tokens", "gives_way"), [(25, True), (26, False), (8, True), (2, True)])
def test_the_longest_gives_way_to_what_is_much_shorter(tokens, gives_way):
    longest = text(SHORTER * 25)
    found = text_that_gives_way([text(30), longest, text(60)], text(tokens), left, steps=8, rows=ROWS)
    assert found is (longest if gives_way else None)


def test_turns_and_seconds_aside_count():
    # what is shorter than a turn takes as long as one
    assert text_that_gives_way([text(SHORTER * 8)], text(1), left, steps=8, rows=ROWS) is not None
    assert text_that_gives_way([text(SHORTER * 8 - 1)], text(1), left, steps=8, rows=ROWS) is None
    # a text that has been put aside for long keeps its row, and another one gives way
    tired, other = text(1000, aside=990 / TOKENS_OF_A_SECOND), text(500)
    assert text_that_gives_way([tired, other], text(8), left, steps=8, rows=ROWS) is other
    assert text_that_gives_way([tired], text(8), left, steps=8, rows=ROWS) is None
    assert text_that_gives_way([], text(8), left, steps=8, rows=ROWS) is None


def test_the_client_with_the_fewest_rows_is_first():
    many, few, none = text(1, client="many"), text(50, client="few"), text(100, client="none")
    assert by_urgency([many, few, none], left, now=0.0, rows={"many": 3, "few": 1}) == [none, few, many]


def test_clients_share_rows():
    written = [text(40, client="many"), text(90, client="many"), text(500, client="few")]
    longest = written[1]
    # two rows more: also for a longer text; one more: as among texts of one client
    assert text_that_gives_way(written, text(900, client="none"), left, 8, {"many": 2, "few": 1}) is longest
    assert text_that_gives_way(written, text(900, client="few"), left, 8, {"many": 3, "few": 1}) is longest
    assert text_that_gives_way(written, text(900, client="few"), left, 8, {"many": 2, "few": 1}) is None
    assert text_that_gives_way(written[:1], text(10, client="none"), left, 8, {"many": 1}) is written[0]
    # who has more rows takes none of a client with fewer, however long
    assert text_that_gives_way(written, text(25, client="many"), left, 8, {"many": 2, "few": 1}) is None
    assert text_that_gives_way(written, text(20, client="many"), left, 8, {"many": 2, "few": 1}) is longest


@pytest.mark.parametrize(
    ("waiting", "client", "place"),
    [
        ("aaa", "a", None),
        ("aaa", "b", 2),
        ("aab", "b", 1),
        ("baa", "c", 2),
        # as many as the client with the most
        ("ab", "a", None),
        ("abab", "b", None),
        # of several clients with as many, the newest
        ("abba", "c", 3),
        ("aabb", "c", 3),
        ("", "a", None),
    ],
)
def test_the_client_with_the_most_gives_a_place(waiting, client, place):
    texts = [text(8, client=each) for each in waiting]
    assert that_gives_place(texts, client) is (None if place is None else texts[place])
