"""Tokenizers in the files of Hugging Face: `tokenizer.json`, `vocab.txt`, `vocab.json` with `merges.txt`, `*.model`."""

from zoo.tokenizers.huggingface.directory import has_huggingface_tokenizer, load_huggingface
from zoo.tokenizers.huggingface.writing import save_huggingface

__all__ = ["has_huggingface_tokenizer", "load_huggingface", "save_huggingface"]
