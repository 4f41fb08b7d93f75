"""Models that the Transformers library saved, with what it computes: see tests/reference/huggingface.py."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

REFERENCE = Path(__file__).parents[2] / "reference" / "huggingface"
CASES = sorted(path.name for path in REFERENCE.iterdir())
# "dynamic" there depends on the text at hand, here on max_length: that of the text
OVERRIDES = {"llama_dynamic": {"max_length": 9}}


@pytest.fixture(scope="session")
def reference():
    """The folder of the cases."""
    return REFERENCE


@pytest.fixture(scope="session")
def golden():
    """`golden(case)`: our inputs and the expected outputs by name."""

    def read(case):
        with np.load(REFERENCE / case / "golden.npz") as file:
            arrays = dict(file)
        if "decoder_input_ids" in arrays:
            inputs = {
                "encoder_token_ids": arrays["input_ids"],
                "encoder_padding_mask": arrays["attention_mask"] > 0,
                "decoder_token_ids": arrays["decoder_input_ids"],
                "decoder_padding_mask": arrays["decoder_attention_mask"] > 0,
            }
        else:
            inputs = {"token_ids": arrays["input_ids"], "padding_mask": arrays["attention_mask"] > 0}
            if "token_type_ids" in arrays:
                inputs["segment_ids"] = arrays["token_type_ids"]
        if "global_attention_mask" in arrays:
            side = "encoder_" if "encoder_token_ids" in inputs else ""
            inputs[f"{side}global_mask"] = arrays["global_attention_mask"] > 0
        return inputs, arrays

    return read


@pytest.fixture
def copy(tmp_path):
    """`copy(case, **changes)`: a copy of a case whose config.json has other values; None removes a key."""

    def make(case, **changes):
        folder = tmp_path / case
        shutil.copytree(REFERENCE / case, folder)
        values = {**json.loads((folder / "config.json").read_text()), **changes}
        values = {key: value for key, value in values.items() if value is not None or key not in changes}
        (folder / "config.json").write_text(json.dumps(values))
        return folder

    return make
