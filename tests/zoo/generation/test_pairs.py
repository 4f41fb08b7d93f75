"""Two options of generation at a time, against texts that are computed token by token in NumPy."""

import generation_cases
import pytest
from pairwise import pairwise

CASES = pairwise(generation_cases.OPTIONS, generation_cases.is_valid)


def test_values_of_all_options_meet():
    found = {(name, value) for case in CASES for name, value in case.items()}
    assert found == {(name, value) for name, values in generation_cases.OPTIONS.items() for value in values}
    for one, other, impossible in (("sampler", "processor", 0), ("draft", "sampler", 4), ("way", "sampler", 2)):
        values = {(case[one], case[other]) for case in CASES}
        assert len(values) == len(generation_cases.OPTIONS[one]) * len(generation_cases.OPTIONS[other]) - impossible


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_pairs(number):
    case = CASES[number]
    assert generation_cases.error(case) < generation_cases.tolerance(case), str(case)
