"""Tasks: a backbone with its tokenizer for one job on texts."""

from zoo.tasks import adapter_reader as _adapter_reader  # noqa: F401  (registers itself)
from zoo.tasks import preset_reader as _preset_reader  # noqa: F401  (registers its readers)
from zoo.tasks.causal_lm import CausalLM
from zoo.tasks.encoder_task import EncoderTask
from zoo.tasks.masked_lm import MaskedLM
from zoo.tasks.question_answerer import QuestionAnswerer
from zoo.tasks.registry import register_tasks
from zoo.tasks.replaced_tokens import ReplacedTokenDetector
from zoo.tasks.seq2seq_lm import Seq2SeqLM
from zoo.tasks.students import every_other, keep_layers
from zoo.tasks.task import Task
from zoo.tasks.text_classifier import TextClassifier
from zoo.tasks.text_embedder import TextEmbedder
from zoo.tasks.token_classifier import TokenClassifier

register_tasks(
    CausalLM,
    MaskedLM,
    QuestionAnswerer,
    ReplacedTokenDetector,
    Seq2SeqLM,
    TextClassifier,
    TextEmbedder,
    TokenClassifier,
)

__all__ = [
    "CausalLM",
    "EncoderTask",
    "MaskedLM",
    "QuestionAnswerer",
    "ReplacedTokenDetector",
    "Seq2SeqLM",
    "Task",
    "TextClassifier",
    "TextEmbedder",
    "TokenClassifier",
    "every_other",
    "keep_layers",
    "register_tasks",
]
