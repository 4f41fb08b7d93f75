"""Tasks: a backbone with its tokenizer, doing one job on texts."""

from zoo.tasks.seq2seq_lm import Seq2SeqLM
from zoo.tasks.task import Task

__all__ = ["Seq2SeqLM", "Task"]
