"""Recurrent encoder-decoders in their published sizes."""

from zoo.config import RecurrentConfig
from zoo.presets.catalogue import register_listed

register_listed(
    "rnn_fixed_context",
    RecurrentConfig(
        vocabulary_size=15000,
        embedding_dim=100,
        hidden_dim=1000,
        reset_after=False,
        bidirectional=False,
        bridge="context",
        context_input=True,
        readout="maxout",
        readout_dim=500,
    ),
)
register_listed(
    "lstm_fixed_context",
    RecurrentConfig(
        vocabulary_size=80000,
        embedding_dim=1000,
        hidden_dim=1000,
        num_layers=4,
        cell="lstm",
        bidirectional=False,
        reverse_source=True,
        bridge="copy",
    ),
)
register_listed(
    "rnnsearch",
    RecurrentConfig(
        vocabulary_size=30000,
        embedding_dim=620,
        hidden_dim=1000,
        max_length=50,
        reset_after=False,
        bridge="backward",
        attention="previous_state",
        readout="maxout",
        readout_dim=500,
    ),
)
LUONG = {
    "vocabulary_size": 50000,
    "embedding_dim": 1000,
    "hidden_dim": 1000,
    "num_layers": 4,
    "max_length": 50,
    "cell": "lstm",
    "bidirectional": False,
    "reverse_source": True,
    "bridge": "copy",
    "attention": "current_state",
    "input_feeding": True,
    "readout": "attentional",
    "dropout": 0.2,
}
register_listed("luong_global", RecurrentConfig(score="dot", **LUONG))
register_listed("luong_local", RecurrentConfig(score="bilinear", window=10, window_center="predicted", **LUONG))
