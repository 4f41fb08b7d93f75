"""From strings to token-level batches and back: the same eagerly, in `tf.data` and in a SavedModel."""

from zoo.preprocessing.causal_lm import CausalLMPreprocessor
from zoo.preprocessing.encoder import EncoderPreprocessor
from zoo.preprocessing.examples import Examples
from zoo.preprocessing.masked_lm import MaskedLMPreprocessor, chosen_positions, mask_tokens
from zoo.preprocessing.preprocessor import EVALUATION_SEED, Preprocessor
from zoo.preprocessing.question_answerer import QuestionAnswererPreprocessor
from zoo.preprocessing.replaced_tokens import ReplacedTokenDetectorPreprocessor
from zoo.preprocessing.seq2seq_lm import Seq2SeqLMPreprocessor
from zoo.preprocessing.tags import Entity, decode_tags, encode_bio, span_tags
from zoo.preprocessing.text_classifier import TextClassifierPreprocessor
from zoo.preprocessing.text_embedder import TextEmbedderPreprocessor
from zoo.preprocessing.token_classifier import TokenClassifierPreprocessor
from zoo.preprocessing.token_rows import add_start_end, added_count, map_by_length, padded_length
from zoo.preprocessing.words import lacks_spaces, split_words, words_of

__all__ = [
    "EVALUATION_SEED",
    "CausalLMPreprocessor",
    "EncoderPreprocessor",
    "Entity",
    "Examples",
    "MaskedLMPreprocessor",
    "Preprocessor",
    "QuestionAnswererPreprocessor",
    "ReplacedTokenDetectorPreprocessor",
    "Seq2SeqLMPreprocessor",
    "TextClassifierPreprocessor",
    "TextEmbedderPreprocessor",
    "TokenClassifierPreprocessor",
    "add_start_end",
    "added_count",
    "chosen_positions",
    "decode_tags",
    "encode_bio",
    "lacks_spaces",
    "map_by_length",
    "mask_tokens",
    "padded_length",
    "span_tags",
    "split_words",
    "words_of",
]
