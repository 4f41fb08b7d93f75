"""Decoding: one loop for all models, samplers, beam search, log-likelihoods."""

from zoo.generation.compile import compiled, next_power_of_two, pad_batch, pad_length
from zoo.generation.decode import decode
from zoo.generation.samplers import Beam, Greedy, Sample, Sampler, get_sampler
from zoo.generation.score import score

__all__ = [
    "Beam",
    "Greedy",
    "Sample",
    "Sampler",
    "compiled",
    "decode",
    "get_sampler",
    "next_power_of_two",
    "pad_batch",
    "pad_length",
    "score",
]
