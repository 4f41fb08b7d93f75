"""Recurrent encoder-decoders: layers, attention window, readout and scheduled sampling."""

from layers.recurrent.decoder import RecurrentDecoder
from layers.recurrent.encoder import RecurrentEncoder
from layers.recurrent.layer import RecurrentLayer
from layers.recurrent.readout import RecurrentReadout
from layers.recurrent.sampling import ScheduledSampling
from layers.recurrent.window import AttentionWindow

__all__ = [
    "AttentionWindow",
    "RecurrentDecoder",
    "RecurrentEncoder",
    "RecurrentLayer",
    "RecurrentReadout",
    "ScheduledSampling",
]
