"""Ways to compute attention: equal results, different time and memory."""

from layers.attention.kernels.dispatch import PathChoice, attend, choose_path, path_up_to
from layers.attention.kernels.with_global import Projected, attend_with_global

__all__ = ["PathChoice", "Projected", "attend", "attend_with_global", "choose_path", "path_up_to"]
