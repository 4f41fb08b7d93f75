"""Decoding: one loop for all models, samplers, beam search, logit processors, log-likelihoods."""

from zoo.generation.beam import Beam
from zoo.generation.compiled_functions import compiled, next_power_of_two, pad_batch
from zoo.generation.constraints import (
    BannedFirstTokens,
    BannedTokens,
    ForcedFirstToken,
    ForcedLastToken,
    ForcedTokens,
    MinimumLength,
    NoRepeatNGram,
)
from zoo.generation.contrastive import Contrastive
from zoo.generation.decode import decode
from zoo.generation.defaults import GenerationDefaults
from zoo.generation.engine import Engine
from zoo.generation.filters import MinP, Normalized, Temperature, TopK, TopP, TypicalP
from zoo.generation.grammars import Choice, Grammar, JSONSchema, Regex
from zoo.generation.graph import GraphGenerator
from zoo.generation.penalties import FrequencyPenalty, LogitBias, PresencePenalty, RepetitionPenalty
from zoo.generation.processors import Context, LogitProcessor, get_processors, register_processor
from zoo.generation.prompt_lookup import PromptLookup
from zoo.generation.request import GenerationCache, GenerationOptions
from zoo.generation.samplers import Greedy, Sample, Sampler, get_sampler, register_sampler
from zoo.generation.score import TextScorer, score
from zoo.generation.session import Session
from zoo.generation.speculative import SpeculativeDecoding
from zoo.generation.text_generator import TextGenerator
from zoo.generation.token_masks import TextMask, TokenMasks

__all__ = [
    "BannedFirstTokens",
    "BannedTokens",
    "Beam",
    "Choice",
    "Context",
    "Contrastive",
    "Engine",
    "ForcedFirstToken",
    "ForcedLastToken",
    "ForcedTokens",
    "FrequencyPenalty",
    "GenerationCache",
    "GenerationDefaults",
    "GenerationOptions",
    "Grammar",
    "GraphGenerator",
    "Greedy",
    "JSONSchema",
    "LogitBias",
    "LogitProcessor",
    "MinP",
    "MinimumLength",
    "NoRepeatNGram",
    "Normalized",
    "PresencePenalty",
    "PromptLookup",
    "Regex",
    "RepetitionPenalty",
    "Sample",
    "Sampler",
    "Session",
    "SpeculativeDecoding",
    "Temperature",
    "TextGenerator",
    "TextMask",
    "TextScorer",
    "TokenMasks",
    "TopK",
    "TopP",
    "TypicalP",
    "compiled",
    "decode",
    "get_processors",
    "get_sampler",
    "next_power_of_two",
    "pad_batch",
    "register_processor",
    "register_sampler",
    "score",
]
