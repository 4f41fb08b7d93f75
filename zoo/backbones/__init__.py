"""Models from token ids to hidden states."""

from zoo.backbones.backbone import Backbone
from zoo.backbones.recurrent import RecurrentSeq2Seq
from zoo.backbones.stack import TransformerStack
from zoo.backbones.transformer import Transformer

__all__ = ["Backbone", "RecurrentSeq2Seq", "Transformer", "TransformerStack"]
