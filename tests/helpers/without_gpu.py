"""JAX on a processor that believes it has cuDNN, to read its programs and to compute the same by XLA."""

import functools
import re

import jax
from jax._src.cudnn import fused_attention_stablehlo

from layers.attention import multi_head_attention
from layers.attention.kernels import dispatch, fused


def believe_in_cudnn(monkeypatch):
    """Makes attention choose as on an H100. Programs can be traced, but not run."""
    for module in (dispatch, fused, multi_head_attention):
        monkeypatch.setattr(module, "has_cudnn", lambda: True)
    monkeypatch.setattr(fused, "largest_head_dim", lambda: 256)
    monkeypatch.setattr(dispatch, "_on_jax_cpu", lambda: False)
    monkeypatch.setattr(dispatch, "has_accelerator", lambda: True)
    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91000)
    monkeypatch.setattr(fused_attention_stablehlo, "check_compute_capability", lambda capability: True)
    monkeypatch.setattr(fused_attention_stablehlo, "is_cuda_compute_capability_equal", lambda capability: False)


def compute_by_xla(monkeypatch):
    """Makes JAX compute what cuDNN is asked for by its own definition, in any type. Returns what was asked for."""
    believe_in_cudnn(monkeypatch)
    asked = []
    attention = jax.nn.dot_product_attention

    @functools.wraps(attention)
    def by_xla(*tensors, implementation, **options):
        assert implementation == "cudnn"
        asked.append({name: value for name, value in options.items() if value is not None and value is not False})
        return attention(*tensors, implementation="xla", **options)

    monkeypatch.setattr(jax.nn, "dot_product_attention", by_xla)
    monkeypatch.setattr(dispatch, "objection_of_cudnn", lambda *arguments: None)
    return asked


def squares_in(program, length):
    """Returns the tensors `(..., length, length)` that a program of JAX makes, inner programs included.

    No other size of the program may be `length`.
    """
    return re.findall(rf"\w+\[(?:\d+,)*{length},{length}\]", str(program))
