"""Ways to compute attention: equal results, different time and memory."""

from layers.attention.kernels.dispatch import PathChoice, attend, choose_path, path_up_to

__all__ = ["PathChoice", "attend", "choose_path", "path_up_to"]
