"""Arrays as text for a page: in few bits, compressed, in base64."""

import base64
import zlib
from typing import Any

import numpy as np

# Weights in 16 bits; more of them get 8 at most.
MOST_FINE_WEIGHTS = 1 << 19
# Steps of a row in 8 bits at least: then one that attends to many tokens still has shades, and compresses well.
LEAST_STEPS = 31


def packed(array: Any) -> dict[str, Any]:
    """Returns an array in float32.

    Args:
        array: Numbers.
    """
    array = np.ascontiguousarray(array, "<f4")
    return {"type": "float32", "shape": list(array.shape), "data": _text(array.tobytes())}


def packed_weights(weights: np.ndarray) -> dict[str, Any]:
    """Returns attention weights as steps of the largest of each row.

    A weight is `step * largest / steps`, off by at most half a step. The number of `steps` is `most`: 65535, or 32767
    where there are negative weights. In 8 bits it is `255 * largest`, rounded up, from `least`, 31, to `most`, 255: a
    weight below 1 is then off by at most a 510th, and by at most a 62nd of the largest of its row.

    Args:
        weights: `(layers, heads, queries, keys)`.

    Example:

    >>> packed_weights(np.full((1, 1, 2, 2), 0.5, "float32"))["type"]
    'uint16'
    """
    weights = np.asarray(weights, "float32")
    if (weights < 0).any():  # also beside a NaN
        kind, most = "int16", 32767
    elif weights.size <= MOST_FINE_WEIGHTS:
        kind, most = "uint16", 65535
    else:
        kind, most = "uint8", 255
    largest = np.abs(weights).max(axis=-1)
    least = LEAST_STEPS if kind == "uint8" else most
    # in float64, as scripts count
    count = np.clip(np.ceil(largest.astype("float64") * 255), least, most)
    # a row with a NaN has NaN as its largest, and is NaN in the page
    steps = np.nan_to_num(weights / np.where(largest > 0, largest, 1)[..., None] * count[..., None])
    data = {"largest": _text(largest.astype("<f4").tobytes()), "data": _text(_integers(steps, kind))}
    return {"type": kind, "least": least, "most": most, "shape": list(weights.shape), **data}


def _integers(steps: np.ndarray, kind: str) -> bytes:
    return np.round(steps).astype(np.dtype(kind).newbyteorder("<")).tobytes()


def _text(data: bytes) -> str:
    # runs alone compress most weights better than all repetitions do
    found = [_compressed(data, strategy) for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_RLE)]
    return base64.b64encode(min(found, key=len)).decode("ascii")


def _compressed(data: bytes, strategy: int) -> bytes:
    stream = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, 9, strategy)
    return stream.compress(data) + stream.flush()
