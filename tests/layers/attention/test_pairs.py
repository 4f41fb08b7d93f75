"""Two options of attention at a time, against one slow formula."""

import attention_cases
import numpy as np
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


@pytest.mark.parametrize("number", range(len(CASES)))
def test_pairs(number):
    require_tensorflow()
    case = CASES[number]
    layer = attention_cases.layer_of(case)
    # three products and rotations in bfloat16, of numbers up to some tens
    tolerance = 1e-4 if case["dtype"] == "float32" else 0.15
    if case["positions"] == "shifted" and case["dtype"] == "float32":
        tolerance = 5e-3  # angles of 3,000 in float32
    expected = attention_cases.expected(case, layer)
    actual = attention_cases.run(case, layer)
    np.testing.assert_allclose(actual, expected, atol=tolerance * max(1, np.abs(expected).max()), err_msg=str(case))
