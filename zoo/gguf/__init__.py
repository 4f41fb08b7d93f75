"""Models in GGUF files, which llama.cpp, Ollama and LM Studio read and write."""

from zoo.gguf.header import GGUFHeader, read_gguf
from zoo.gguf.writing import write_gguf

__all__ = ["GGUFHeader", "read_gguf", "write_gguf"]
