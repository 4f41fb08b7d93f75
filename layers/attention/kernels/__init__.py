"""Ways to compute attention: equal results, different time and memory."""

from layers.attention.kernels.dispatch import attend, choose_path

__all__ = ["attend", "choose_path"]
