import json
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def golden():
    """What the Transformers library computes, see tests/reference/positions.py."""
    arrays = dict(np.load(Path(__file__).parents[2] / "reference" / "positions.npz"))
    arrays["cases"] = json.loads(str(arrays["cases"]))
    return arrays


@pytest.fixture
def numbers():
    return np.random.default_rng(7)
