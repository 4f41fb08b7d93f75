"""Two options of attention at a time, against one slow formula."""

import attention_cases
import pytest
from pairwise import pairwise
from tensorflow_backend import require_tensorflow

CASES = pairwise(attention_cases.OPTIONS, attention_cases.is_valid)


def test_each_valid_pair_of_values_is_there():
    found = {(name, value) for case in CASES for name, value in case.items()}
    assert found == {(name, value) for name, values in attention_cases.OPTIONS.items() for value in values}
    for one, other in (("sinks", "path"), ("position", "cache"), ("dtype", "run"), ("mask", "order")):
        values = {(case[one], case[other]) for case in CASES}
        missing = len(attention_cases.OPTIONS[one]) * len(attention_cases.OPTIONS[other]) - len(values)
        assert missing == (2 if one == "mask" else 0)  # a prefix needs the causal order


@pytest.mark.sampled(12)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_pairs(number):
    require_tensorflow()
    case = CASES[number]
    assert attention_cases.error(case) < attention_cases.tolerance(case), str(case)
