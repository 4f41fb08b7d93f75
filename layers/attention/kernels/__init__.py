"""Ways to compute attention: equal results, different time and memory."""

from layers.attention.kernels.dispatch import PathChoice, attend, choose_path, path_up_to
from layers.attention.kernels.fused import has_cudnn

__all__ = ["PathChoice", "attend", "choose_path", "has_cudnn", "path_up_to"]
