"""Keys of config.json that no version of the library has are named once and left out; those that it has are not."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from zoo.huggingface import load_backbone
from zoo.huggingface.config_reader import NEUTRAL, ConfigReader
from zoo.huggingface.declared_keys import declared_keys, stray_keys
from zoo.huggingface.family import all_families

REFERENCE = Path(__file__).parents[2] / "reference" / "huggingface"
CASES = sorted(path.name for path in REFERENCE.iterdir())
# what other programs write
STRAYS = {
    "unsloth_version": "2025.3.1",
    "unsloth_fixed": True,
    "_model_name_or_path": "owner/name",
    "unk_token_id": 0,
    "quantized_by": "someone",
}


def test_all_families_have_a_list():
    known = declared_keys()
    assert set(known) == {family.model_type for family in all_families()}
    for model_type, keys in known.items():
        assert keys.isdisjoint(STRAYS), model_type
        # what every configuration has
        assert {"model_type", "architectures", "is_encoder_decoder", "id2label"} <= keys
        assert len(keys) > 120, model_type


@pytest.mark.parametrize("case", CASES)
def test_what_the_library_wrote_is_on_the_list(case):
    values = json.loads((REFERENCE / case / "config.json").read_text())
    # the script that wrote them gave an epsilon of this name to all decoders; published files of BLOOM have the length
    assert stray_keys(values["model_type"], set(values) - NEUTRAL) <= {"rms_norm_eps", "seq_length"}


@pytest.mark.parametrize("model_type", sorted(declared_keys()))
def test_stray_keys_are_named_and_declared_ones_refused(model_type):
    with pytest.warns(UserWarning, match="unk_token_id=0, unsloth_fixed=True") as caught:
        ConfigReader({"model_type": model_type, **STRAYS}).finish()
    assert len(caught) == 1
    unhandled = sorted(declared_keys()[model_type] - NEUTRAL - {"is_decoder", "is_encoder_decoder", "pruned_heads"})
    key = next(key for key in unhandled if not key.startswith("_") and "cross" not in key and "tie_" not in key)
    with pytest.raises(ValueError, match=f"keys that are not known here: {key}=7"):
        ConfigReader({"model_type": model_type, key: 7, **STRAYS}).finish()


def test_weights_that_another_program_has_made_smaller_are_refused():
    """No configuration class declares this key: the library reads it when it loads a model."""
    with pytest.raises(ValueError, match="quantization_config.*load_in_4bit"):
        ConfigReader({"model_type": "llama", "quantization_config": {"load_in_4bit": True}}).finish()


def test_no_list_no_strays():
    assert stray_keys("of_my_own", STRAYS) == set()
    with pytest.raises(ValueError, match="unsloth_fixed=True"):
        ConfigReader({"model_type": "of_my_own", **STRAYS}).finish()
    # code that comes with a model may read any key
    with pytest.raises(ValueError, match="unsloth_fixed=True"):
        reader = ConfigReader({"model_type": "llama", "auto_map": {"AutoModel": "modeling.Model"}, **STRAYS})
        reader.skip("auto_map")
        reader.finish()


def test_numbers_are_those_without_the_keys(copy, golden):
    inputs, arrays = golden("llama")
    with pytest.warns(UserWarning, match="unsloth_version") as caught:
        backbone = load_backbone(copy("llama", **STRAYS))
    assert len([one for one in caught if "unsloth" in str(one.message)]) == 1
    mask = inputs["padding_mask"]
    np.testing.assert_allclose(np.asarray(backbone(inputs))[mask], arrays["hidden"][mask], atol=2e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_backbone(REFERENCE / "llama")
