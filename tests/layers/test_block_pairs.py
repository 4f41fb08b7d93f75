"""Two options of a Transformer block at a time, its gradients too, against formulas in NumPy."""

import block_cases
import pytest
from pairwise import pairwise
from tensorflow_backend import require_tensorflow

CASES = pairwise(block_cases.OPTIONS, block_cases.is_valid)


def test_values_of_all_options_meet():
    found = {(name, value) for case in CASES for name, value in case.items()}
    assert found == {(name, value) for name, values in block_cases.OPTIONS.items() for value in values}
    for one, other, impossible in (("remat", "memory", 0), ("placement", "cache", 0), ("run", "dtype", 1)):
        values = {(case[one], case[other]) for case in CASES}
        assert len(values) == len(block_cases.OPTIONS[one]) * len(block_cases.OPTIONS[other]) - impossible


@pytest.mark.sampled(12)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_pairs(number):
    require_tensorflow()
    case = CASES[number]
    assert block_cases.error(case) < block_cases.tolerance(case), str(case)
