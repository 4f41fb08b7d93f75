"""Recurrent encoder-decoders in their published sizes."""

from zoo.config import RecurrentConfig
from zoo.presets.registry import register_preset

register_preset(
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
    "The RNN encoder-decoder: the source in one vector, given to the decoder at each step.",
    'Cho et al. 2014, "Learning Phrase Representations using RNN Encoder-Decoder", section 4.1 and appendix A',
)
register_preset(
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
    "Deep LSTMs: the decoder continues from the last states of an encoder that reads the source backwards.",
    'Sutskever et al. 2014, "Sequence to Sequence Learning with Neural Networks", section 3.4',
)
register_preset(
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
    "RNNsearch-50: the first soft attention, additive, queried by the previous state.",
    'Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate", appendix A.2',
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
LUONG_PAPER = 'Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", section 4.1'
register_preset(
    "luong_global",
    RecurrentConfig(score="dot", **LUONG),
    "Attention after the cell over the whole source, inner product, input feeding.",
    LUONG_PAPER,
)
register_preset(
    "luong_local",
    RecurrentConfig(score="bilinear", window=10, window_center="predicted", **LUONG),
    "Attention after the cell to 10 positions on each side of a predicted one, bilinear, input feeding.",
    LUONG_PAPER,
)
