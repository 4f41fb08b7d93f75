"""Decoding: one loop for all models, samplers, beam search, logit processors, log-likelihoods."""

from zoo.generation.compile import compiled, next_power_of_two, pad_batch, pad_length
from zoo.generation.decode import decode
from zoo.generation.engine import Engine
from zoo.generation.filters import MinP, Temperature, TopK, TopP, TypicalP
from zoo.generation.logit_processor import Context, LogitProcessor
from zoo.generation.options import GenerationCache, GenerationOptions
from zoo.generation.penalties import FrequencyPenalty, LogitBias, PresencePenalty, RepetitionPenalty
from zoo.generation.processors import BannedTokens, ForcedTokens, MinimumLength, NoRepeatNGram, get_processors
from zoo.generation.prompts import ContinuedTexts, MappedTexts
from zoo.generation.sampler import Sampler
from zoo.generation.samplers import Beam, Contrastive, Greedy, Sample, get_sampler
from zoo.generation.score import score
from zoo.generation.session import Session
from zoo.generation.speculative import SpeculativeDecoding
from zoo.generation.text_generator import TextGenerator
from zoo.generation.text_scorer import TextScorer

__all__ = [
    "BannedTokens",
    "Beam",
    "Context",
    "ContinuedTexts",
    "Contrastive",
    "Engine",
    "ForcedTokens",
    "FrequencyPenalty",
    "GenerationCache",
    "GenerationOptions",
    "Greedy",
    "LogitBias",
    "LogitProcessor",
    "MappedTexts",
    "MinP",
    "MinimumLength",
    "NoRepeatNGram",
    "PresencePenalty",
    "RepetitionPenalty",
    "Sample",
    "Sampler",
    "Session",
    "SpeculativeDecoding",
    "Temperature",
    "TextGenerator",
    "TextScorer",
    "TopK",
    "TopP",
    "TypicalP",
    "compiled",
    "decode",
    "get_processors",
    "get_sampler",
    "next_power_of_two",
    "pad_batch",
    "pad_length",
    "score",
]
