"""Models as SavedModels: strings in, strings out."""

from zoo.export.seq2seq import export_seq2seq

__all__ = ["export_seq2seq"]
