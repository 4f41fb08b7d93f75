"""Configurations of recurrent encoder-decoders: round trip, choices that do not go together."""

import pytest

from zoo.config import RecurrentConfig, config_from_dict

LUONG = {"attention": "current_state", "readout": "attentional"}


def test_round_trip():
    config = RecurrentConfig(100, encoder_dim=128, score="dot", window=3, feeding="free_running", **LUONG)
    assert RecurrentConfig.from_json(config.to_json()) == config
    assert config.to_dict()["kind"] == "recurrent"
    assert config_from_dict(config.to_dict()) == config
    with pytest.raises(ValueError, match="must be known ones, got 'hiden_dim'. Did you mean 'hidden_dim'"):
        RecurrentConfig.from_dict({"vocabulary_size": 10, "hiden_dim": 3})


def test_widths():
    assert RecurrentConfig(9, hidden_dim=8).memory_dim == 16
    assert RecurrentConfig(9, hidden_dim=8, encoder_dim=3, bidirectional=False).memory_dim == 3
    for options, width in (
        ({}, 8),
        ({"readout": "maxout", "readout_dim": 5}, 5),
        ({"readout": "concatenation"}, 8 + 4),
        ({"readout": "concatenation", "context_input": True}, 8 + 8 + 4),
        ({"readout": "concatenation", "attention": "previous_state"}, 8 + 16 + 4),
    ):
        assert RecurrentConfig(9, embedding_dim=4, hidden_dim=8, **options).readout_width == width


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cell": "elman"}, "cell must be one of .* got 'elman'"),
        ({"hidden_dim": 0}, "hidden_dim must be above 0, got 0"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        ({"bridge": "copy"}, "bridge must be another than 'copy' where the encoder's width, 512 for all directions"),
        ({"bridge": "backward", "bidirectional": False}, "bridge must be another than 'backward' with bidirectional="),
        ({"bridge": "context"}, "bridge must be another than 'context' with context_input=False"),
        ({"score": "dot", **LUONG}, "score must be 'additive' or 'bilinear' where the encoder's width, 512"),
        ({"score": "bilinear"}, "score must be 'additive' with attention='none', got 'bilinear'"),
        ({"score_units": 5, "score": "bilinear", **LUONG}, "score_units must be None unless score='additive'"),
        ({"window": 3}, "window must be None with attention='none', got 3"),
        ({"window_center": "monotonic", **LUONG}, "window_center must be 'predicted' without a window"),
        ({"input_feeding": True}, "input_feeding must be False with attention='none', got True"),
        ({"context_input": True, **LUONG}, "context_input must be False with attention='current_state'"),
        (
            {"input_feeding": True, "attention": "current_state"},
            "readout must be 'attentional' with input_feeding=True, got 'state'",
        ),
        ({"attention": "current_state"}, "readout must be another than 'state' with attention='current_state', whose"),
        ({"readout_dim": 3}, "readout_dim must be None with readout='state', got 3"),
        ({"reset_after": False, "cell": "lstm"}, "reset_after must be True with cell='lstm', got False"),
        ({"reverse_source": True}, "reverse_source must be False with bidirectional=True"),
        ({"tie_output": True, "embedding_dim": 3}, "tie_output must be False where the readout has the width 256"),
        ({"feeding_choice": "sample"}, "feeding_choice must be 'argmax' with feeding='teacher_forcing'"),
        ({"feeding": "scheduled_sampling"}, "schedule must be given with feeding='scheduled_sampling', got None"),
        ({"schedule": "linear"}, "schedule must be None with feeding='teacher_forcing', got 'linear'"),
        (
            {"feeding": "scheduled_sampling", "schedule": "inverse_sigmoid", "schedule_constant": 0.5},
            "constant must be at least 1 with schedule='inverse_sigmoid', got 0.5",
        ),
    ],
)
def test_choices_that_do_not_go_together(options, message):
    with pytest.raises(ValueError, match=message):
        RecurrentConfig(100, **options)
