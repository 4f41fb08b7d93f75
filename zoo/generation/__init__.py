"""Decoding: one loop for all models, samplers, beam search, logit processors, log-likelihoods."""

from zoo.generation.compile import compiled, next_power_of_two, pad_batch, pad_length
from zoo.generation.decode import decode, loop_inputs, make_loop
from zoo.generation.generator import Generator
from zoo.generation.logit_processor import Context, LogitProcessor
from zoo.generation.options import GenerationCache, GenerationOptions
from zoo.generation.processors import (
    BannedTokens,
    ForcedTokens,
    MinimumLength,
    NoRepeatNGram,
    RepetitionPenalty,
    get_processors,
)
from zoo.generation.samplers import Beam, Contrastive, Greedy, Sample, Sampler, get_sampler
from zoo.generation.score import score
from zoo.generation.session import Session
from zoo.generation.speculative import SpeculativeDecoding

__all__ = [
    "BannedTokens",
    "Beam",
    "Context",
    "Contrastive",
    "ForcedTokens",
    "GenerationCache",
    "GenerationOptions",
    "Generator",
    "Greedy",
    "LogitProcessor",
    "MinimumLength",
    "NoRepeatNGram",
    "RepetitionPenalty",
    "Sample",
    "Sampler",
    "Session",
    "SpeculativeDecoding",
    "compiled",
    "decode",
    "get_processors",
    "get_sampler",
    "loop_inputs",
    "make_loop",
    "next_power_of_two",
    "pad_batch",
    "pad_length",
    "score",
]
