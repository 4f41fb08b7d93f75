"""Copying and reversing: the data, and a run of a few steps."""

import json

import numpy as np
import pytest

from recipes import copy_and_reverse
from recipes.common.config import parse
from recipes.common.errors import ConfigError


def test_data():
    config = copy_and_reverse.CopyConfig(longest=5, symbols=4)
    inputs, labels, weights = copy_and_reverse.make_batch(np.random.default_rng(0), "reverse", [3, 5], config)
    for row, length in enumerate((3, 5)):
        source, target = inputs["encoder_token_ids"][row], labels[row]
        assert source[:length].tolist() == target[:length][::-1].tolist()
        assert source[length] == target[length] == copy_and_reverse.END
        assert inputs["decoder_token_ids"][row, : length + 1].tolist() == [1, *target[:length]]
        assert weights[row].tolist() == [1.0] * (length + 1) + [0.0] * (5 - length)
        assert set(source[:length]) <= {3, 4, 5, 6}


@pytest.mark.slow
def test_a_short_run(tmp_path, monkeypatch):
    monkeypatch.delitem(copy_and_reverse.MODELS, "fixed context")
    options = ["--tasks", "reverse", "--longest", "3", "--symbols", "2", "--examples", "32", "--epochs", "1"]
    options += ["--width", "4", "--test_sequences", "4", "--run_folder", str(tmp_path / "run")]
    shares = copy_and_reverse.main(parse(copy_and_reverse.CopyConfig, options))
    written = json.loads((tmp_path / "run" / "copy_and_reverse.json").read_text())
    assert list(written["reverse"]) == ["attention"] == list(shares["reverse"])
    assert list(written["reverse"]["attention"]) == ["1", "2", "3"]
    assert (tmp_path / "run" / "reverse_attention.png").exists()


def test_unknown_task():
    with pytest.raises(ConfigError, match="tasks must be of copy, reverse, got 'sort'"):
        copy_and_reverse.main(parse(copy_and_reverse.CopyConfig, ["--tasks", "sort"]))
