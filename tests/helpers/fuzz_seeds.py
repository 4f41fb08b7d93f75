"""Small files of every kind that a model is read from, to be mutated by `tests/fuzz.py`."""

import dataclasses
import json
import random
import shutil
import struct
import warnings
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).resolve().parents[1] / "reference" / "huggingface"
TASKS = {
    "bert_classifier": "TextClassifier",
    "bert_token_classifier": "TokenClassifier",
    "bert_masked_lm": "MaskedLM",
    "roberta_classifier": "TextClassifier",
    "bart": "Seq2SeqLM",
    "t5": "Seq2SeqLM",
    "gpt2": "CausalLM",
    "llama": "CausalLM",
    "llama_dynamic": "CausalLM",
    "gemma2": "CausalLM",
    "qwen2": "CausalLM",
    "modernbert_classifier": "TextClassifier",
    "distilbert_classifier": "TextClassifier",
    "longformer_masked_lm": "MaskedLM",
    "esm_masked_lm": "MaskedLM",
    "roformer_masked_lm": "MaskedLM",
    "rembert_masked_lm": "MaskedLM",
    "mamba2": "CausalLM",
    "bamba": "CausalLM",
    "lfm2": "CausalLM",
    "qwen3_next": "CausalLM",
    "deepseek_v2": "CausalLM",
    "deepseek_v3": "CausalLM",
}
# llama.cpp's names of their architectures
GGUF = {
    "llama": "llama",
    "falcon": "falcon",
    "qwen3_moe": "qwen3moe",
    "granitemoe": "granitemoe",
    "gpt_oss": "gpt-oss",
    "deepseek_v3": "deepseek2",
}
# for models that stay as they are
ADAPTERS = {"llama": "CausalLM", "roberta_classifier": "TextClassifier"}
GENERATION = {"max_length": 20, "eos_token_id": 2}


def make_seeds(folder: Path) -> list[dict[str, Any]]:
    """Writes the files that are mutated; returns what each is and how it is loaded.

    Args:
        folder: Where to write them.

    Returns:
        For each file its `folder`, its path in it (`file`), the `kind` of the folder and, for models, the `task`.
    """
    import keras

    keras.utils.set_random_seed(0)
    seeds: list[dict[str, Any]] = []

    def add(name: str, kind: str, **options: Any) -> None:
        for path in sorted((folder / name).rglob("*")):
            if path.is_file():
                seeds.append({"folder": name, "file": str(path.relative_to(folder / name)), "kind": kind, **options})

    _write_references(folder, add)
    tokenizers = _write_tokenizers(folder, add)
    _write_models(folder, add, tokenizers)
    _write_gguf(folder, add, tokenizers["bytes"])
    (folder / "llama2c").mkdir()
    header = (8, 16, 2, 2, 2, 20, 12)
    numbers = 20 * 8 + 2 * (2 * 8 + 4 * 64 + 3 * 8 * 16) + 8 + 12 * 4
    (folder / "llama2c" / "model.bin").write_bytes(struct.pack("<7i", *header) + bytes(4 * numbers))
    add("llama2c", "llama2c")
    return seeds


def _write_references(folder: Path, add) -> None:
    """Checkpoints of the Transformers library, without tokenizers, and adapters of the PEFT library."""
    for name, task in TASKS.items():
        shutil.copytree(REFERENCE / name, folder / name)
        (folder / name / "golden.npz").unlink()
        (folder / name / "generation_config.json").write_text(json.dumps(GENERATION))
        add(name, "checkpoint", task=task)
    for name, task in ADAPTERS.items():
        shutil.copytree(REFERENCE.parent / "adapters" / name, folder / f"adapter_{name}")
        (folder / f"adapter_{name}" / "golden.npz").unlink()
        add(f"adapter_{name}", "adapter", task=task, model=str(REFERENCE / name))


def _write_gguf(folder: Path, add, tokenizer: Any) -> None:
    """Files of llama.cpp, as its converter writes them; of DeepSeek an older one, too."""
    from gguf_files import TOKENS, write_gguf

    import zoo
    from zoo.huggingface import read_config

    merged = {"tokens": [*TOKENS[:46], TOKENS[0] + TOKENS[1], "<end>"], "merges": [f"{TOKENS[0]} {TOKENS[1]}"]}
    for name, architecture in GGUF.items():
        (folder / f"gguf_{name}").mkdir()
        write_gguf(REFERENCE / name, folder / f"gguf_{name}" / "model.gguf", architecture, tokenizer=merged)
    (folder / "gguf_older").mkdir()
    write_gguf(
        REFERENCE / "deepseek_v3", folder / "gguf_older" / "model.gguf", "deepseek2", tokenizer=merged, older=True
    )
    config = read_config(REFERENCE / "lfm2")
    mixer = dataclasses.replace(config.mixer, use_bias=False)
    config = dataclasses.replace(config, mixer=mixer, vocabulary_size=tokenizer.vocabulary_size)
    (folder / "gguf_lfm2").mkdir()
    model = zoo.CausalLM(zoo.Backbone.from_config(config), tokenizer)
    zoo.gguf.write_gguf(model, folder / "gguf_lfm2" / "model.gguf", "float32")
    for name in (*GGUF, "older", "lfm2"):
        add(f"gguf_{name}", "gguf", task="CausalLM")


def _write_tokenizers(folder: Path, add) -> dict[str, Any]:
    from zoo.tokenizers import ByteLevelBPETokenizer, SentencePieceTokenizer, WordPieceTokenizer, save_huggingface

    rng = random.Random(0)
    words = ["".join(rng.choice("abcdefghij") for _ in range(rng.randint(2, 8))) for _ in range(200)]
    texts = [" ".join(rng.choice(words) for _ in range(8)) for _ in range(300)]
    tokenizers = {
        "unigram": SentencePieceTokenizer.train(texts, 120),
        "bpe": SentencePieceTokenizer.train(texts, 400, model_type="bpe", byte_fallback=True, normalization="identity"),
        "nfkc": SentencePieceTokenizer.train(texts, 100, normalization="nfkc_cf"),
        "wordpiece": WordPieceTokenizer.train(texts, 120, lowercase=True),
        "bytes": ByteLevelBPETokenizer.train(texts, 400),
    }
    for name, tokenizer in tokenizers.items():
        tokenizer.save(folder / f"own_{name}")
        add(f"own_{name}", "tokenizer")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            save_huggingface(tokenizer, folder / f"hf_{name}", before=[], after=[])
        add(f"hf_{name}", "huggingface_tokenizer")
        if name in ("unigram", "nfkc", "bpe"):
            (folder / f"sp_{name}").mkdir()
            (folder / f"sp_{name}" / "spiece.model").write_bytes(tokenizer.proto)
            (folder / f"sp_{name}" / "tokenizer_config.json").write_text('{"extra_ids": 3, "eos_token": "<eos>"}')
            add(f"sp_{name}", "huggingface_tokenizer")
    lines = folder / "lines_wordpiece"
    lines.mkdir()
    (lines / "vocab.txt").write_text("".join(f"{token}\n" for token in tokenizers["wordpiece"].get_vocabulary()))
    (lines / "tokenizer_config.json").write_text('{"do_lower_case": true, "strip_accents": null}')
    (lines / "special_tokens_map.json").write_text('{"unk_token": "[UNK]", "pad_token": {"content": "[PAD]"}}')
    add("lines_wordpiece", "huggingface_tokenizer")
    lines = folder / "lines_bytes"
    lines.mkdir()
    for name, content in tokenizers["bytes"]._files().items():
        (lines / name).write_bytes(content)
    (lines / "special_tokens_map.json").write_text('{"eos_token": "<|endoftext|>"}')
    (lines / "tokenizer_config.json").write_text('{"add_prefix_space": false, "model_max_length": 1024}')
    add("lines_bytes", "huggingface_tokenizer")
    return tokenizers


def _write_models(folder: Path, add, tokenizers: dict[str, Any]) -> None:
    """Presets, and checkpoints with tokenizers."""
    from zoo import Backbone, CausalLM, Seq2SeqLM, TextClassifier, TextEmbedder, TransformerConfig
    from zoo.config import AttentionConfig, EmbeddingConfig, FeedForwardConfig, NormConfig, PositionConfig

    small = {"hidden_dim": 16, "num_layers": 1, "max_length": 32, "dropout": 0.0}
    attention, feed_forward = AttentionConfig(num_heads=2), FeedForwardConfig(24)

    def backbone(architecture: str, tokenizer: Any, **options: Any) -> Any:
        options = {"attention": attention, "feed_forward": feed_forward, **small, **options}
        return Backbone.from_config(TransformerConfig(architecture, tokenizer.vocabulary_size, **options))

    unigram, words, of_bytes = (tokenizers[name] for name in ("unigram", "wordpiece", "bytes"))
    learned = {"position": PositionConfig("learned"), "embedding": EmbeddingConfig(num_segments=2)}
    relative = {"position": PositionConfig("relative_bias")}
    made = {
        "preset_classifier": TextClassifier(backbone("encoder", unigram, **learned), unigram, labels=["bad", "good"]),
        "preset_embedder": TextEmbedder(backbone("encoder", unigram, **learned), unigram),
        "preset_lm": CausalLM(backbone("decoder", unigram, position=PositionConfig("rotary")), unigram),
        "preset_translation": Seq2SeqLM(backbone("encoder_decoder", unigram, **relative), unigram),
    }
    for name, task in made.items():
        task.save_to_preset(folder / name)
        add(name, "preset", task=type(task).__name__)
    bert = {**learned, "norm": NormConfig("layer", "post", epsilon=1e-12, embedding=True), "pooler": True}
    sentences = TextEmbedder(backbone("encoder", words, **{**bert, "pooler": False}), words, sequence_length=20)
    sentences.save_to_huggingface(folder / "sentence")
    add("sentence", "from_preset", task="TextEmbedder")
    classifier = TextClassifier(
        backbone("encoder", words, **bert),
        words,
        labels=["bad", "fair", "good"],
        pooling="pooler",
        hidden_activation=None,
    )
    classifier.save_to_huggingface(folder / "review", model_type="bert")
    add("review", "from_preset", task="TextClassifier")
    llama = {
        "position": PositionConfig("rotary"),
        "norm": NormConfig("rms", "pre"),
        "attention": AttentionConfig(2, use_bias=False),
        "feed_forward": FeedForwardConfig(24, "silu", gated=True, use_bias=False),
    }
    model = CausalLM(backbone("decoder", of_bytes, **llama), of_bytes)
    model.save_to_huggingface(folder / "story", model_type="llama")
    (folder / "story" / "generation_config.json").write_text(json.dumps(GENERATION))
    add("story", "from_preset", task="CausalLM")
