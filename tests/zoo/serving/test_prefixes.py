"""States of beginnings that are kept."""

import pytest
import tensorflow as tf

from zoo.serving.prefixes import Prefixes
from zoo.serving.row_states import StateFormat


def made(most_slots, axis="slots"):
    tensor = {"name": "cache", "shape": ["rows", axis], "dtype": "float32", "most_slots": most_slots}
    return Prefixes(StateFormat([tensor]), 2**20)


def state():
    return {"cache": tf.zeros((1, 4))}


@pytest.mark.parametrize("most_slots", [None, 3])
def test_what_two_requests_share_is_kept(most_slots):
    """The second one does not feed it again, also where the first has forgotten it: caches of a window of 3."""
    prefixes = made(most_slots)
    prefixes.keep([1, 2], state())
    prefixes.keep([1, 2, 3, 4, 5], state())
    assert prefixes.find([1, 2, 7, 8])[0] == 2
    prefixes.keep([1, 2, 7, 8, 9], state())
    assert prefixes.find([1, 2, 3, 4, 5, 6])[0] == 5
    assert prefixes.find([1, 2, 6])[0] == 2


def test_a_state_without_slots_serves_whole_beginnings_alone():
    prefixes = made(None, axis=4)
    prefixes.keep([1, 2], state())
    prefixes.keep([1, 2, 3], state())
    assert [prefixes.find(tokens)[0] for tokens in ([1, 5], [1, 2, 5], [1, 2, 3, 4])] == [0, 2, 3]
    assert StateFormat([{"name": "a", "shape": ["rows", 4], "dtype": "float32", "most_slots": None}]).size(3, 9) == 48


def test_a_state_takes_the_place_of_its_beginnings():
    prefixes = made(None)
    for length in range(1, 5):
        prefixes.keep(range(length), state())
    assert prefixes.bytes == 16
    rolling = made(3)
    for _ in range(3):
        rolling.keep([1, 2, 3, 4, 5], state())
    assert rolling.bytes == 16
