"""The models, inputs and tokenizers with which `family_trials.py` tries what works for each family."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

REFERENCE = Path(__file__).parents[1] / "tests" / "reference" / "huggingface"
# what the tokenizers of the published models are
WORD_PIECE, BYTE_LEVEL, UNIGRAM, BPE = "WordPiece", "byte-level BPE", "SentencePiece unigram", "SentencePiece BPE"
TWO_MODELS = "SentencePiece unigram, a model per side"
KINDS = {
    **dict.fromkeys(("bert", "distilbert", "electra", "mpnet", "nomic_bert", "esm", "roformer"), WORD_PIECE),
    **dict.fromkeys(
        ("xlm-roberta", "camembert", "albert", "rembert", "deberta-v2", "t5", "mt5", "umt5", "mbart", "pegasus"),
        UNIGRAM,
    ),
    "marian": TWO_MODELS,
    **dict.fromkeys(
        ("mistral", "mixtral", "gemma", "gemma2", "gemma3_text", "phi3", "llama", "m2m_100", "ernie4_5"), BPE
    ),
}
# kinds of tokenizers of published models that are not read
UNREAD = {
    "m2m_100": "BPE of characters, without bytes; the model works on token level",
    "esm": "a token for each amino acid; the model works on token level",
    "roformer": "WordPiece of words that jieba finds; the model works on token level",
    "falcon": "byte-level BPE that splits at punctuation first; the model works on token level",
}
TEXTS = ["a small dog runs", "two men play"]
MESSAGES = [{"role": "system", "content": "two men"}, {"role": "user", "content": "a small dog runs"}]
PROMPTS = [[5, 6, 7, 8], [9, 10]]
# how the models that have a head are called
ENDINGS = {
    **{"MaskedLM": "_masked_lm", "TextClassifier": "_classifier", "TokenClassifier": "_token_classifier"},
    **{"QuestionAnswerer": "_question_answerer", "CausalLM": "", "Seq2SeqLM": ""},
}
TASKS = {"encoder": "TextEmbedder", "decoder": "CausalLM", "encoder_decoder": "Seq2SeqLM"}


@functools.cache
def families() -> dict[str, tuple[Path, ...]]:
    """The models of each family, one of its base class or of a language model first."""
    from zoo.huggingface.family import all_families

    # one may be registered from elsewhere
    own = [family.model_type for family in all_families() if family.read.__module__.startswith("zoo.")]
    found: dict[str, list[Path]] = {name: [] for name in own}
    for path in sorted(REFERENCE.iterdir(), key=lambda path: (len(path.name), path.name)):
        found[json.loads((path / "config.json").read_text())["model_type"]].append(path)
    return {name: tuple(paths) for name, paths in found.items()}


def array(x: Any) -> np.ndarray:
    return ops.convert_to_numpy(x)


def assert_close(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(array(found), expected, rtol=0, atol=tolerance * np.abs(expected).max())


def golden(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Our inputs of a model, and what Transformers computed."""
    with np.load(path / "golden.npz") as file:
        arrays = dict(file)
    names = {"input_ids": "token_ids", "attention_mask": "padding_mask", "token_type_ids": "segment_ids"}
    names["global_attention_mask"] = "global_mask"
    if "decoder_input_ids" in arrays:
        names = {
            f"{side}{theirs}": f"{side or 'encoder_'}{names[theirs]}" for side in ("", "decoder_") for theirs in names
        }
    inputs = {ours: arrays[theirs] for theirs, ours in names.items() if theirs in arrays}
    return {name: value > 0 if name.endswith("mask") else value for name, value in inputs.items()}, arrays


def task_of(name: str, backbone: Any, **options: Any) -> Any:
    """The task that texts go into: a language model, or one that embeds."""
    import zoo

    return getattr(zoo, TASKS[backbone.config.architecture])(backbone, **options)


def task_with_head(kind: Any, name: str) -> tuple[Any, dict[str, Any]]:
    """A task with a random head, of a model with what it needs, and its inputs."""
    import zoo
    from zoo.huggingface import load_task, read_config
    from zoo.huggingface.directory import head_layers

    # only models that have a pooler have its weights
    own = name + ENDINGS.get(kind.__name__, "")
    path = next((path for path in families()[name] if path.name == own), families()[name][0])
    config, inputs = read_config(path), golden(path)[0]
    if kind.__name__ != "Seq2SeqLM" and "encoder_token_ids" in inputs:
        # such a task takes rows that are padded on the right
        right = inputs["encoder_padding_mask"][:, 0]
        inputs = {key: inputs[f"encoder_{key}"][right] for key in ("token_ids", "padding_mask")}
    if config.architecture in kind.architectures:
        task = load_task(kind, path)
    else:
        # T5's encoder alone
        changes = {"architecture": "encoder", "num_decoder_layers": None, "embedding": zoo.EmbeddingConfig()}
        task = kind(zoo.Backbone.from_config(dataclasses.replace(config, **changes)), labels=2)
    generator = np.random.default_rng(0)
    for weight in [weight for layer in head_layers(task).values() for weight in layer.weights]:
        weight.assign(generator.normal(0, 0.3, weight.shape))
    return task, inputs


@functools.cache
def tokenizer_of(kind: str) -> Any:
    """A small tokenizer."""
    from zoo.tokenizers import ByteLevelBPETokenizer, MarianTokenizer, SentencePieceTokenizer, WordPieceTokenizer

    sentences, control = [*TEXTS, "small men", "a dog and two men run"] * 20, ["<|im_start|>", "<|im_end|>"]
    if kind == WORD_PIECE:
        return WordPieceTokenizer.train(sentences, 40, lowercase=True)
    if kind == BYTE_LEVEL:
        return ByteLevelBPETokenizer.train(sentences, 272, special_tokens=control)
    if kind == UNIGRAM:
        return SentencePieceTokenizer.train(sentences, 23, character_coverage=1.0)
    if kind == TWO_MODELS:
        pieces = tokenizer_of(UNIGRAM)
        return MarianTokenizer(["</s>", *pieces.get_vocabulary()[3:], "<pad>"], pieces.proto, pieces.proto)
    options = {"model_type": "bpe", "byte_fallback": True, "normalization": "identity", "special_tokens": control}
    return SentencePieceTokenizer.train(sentences, 300, remove_extra_whitespaces=False, **options)


def tokenizer_for(name: str) -> Any:
    """A small tokenizer of the kind that the published models of a family have."""
    from zoo.tokenizers import WordPieceTokenizer

    tokenizer = tokenizer_of(KINDS.get(name, BYTE_LEVEL))
    if name != "mpnet":
        return tokenizer
    # the model takes no other token for padding than the second one
    words = [token for token in tokenizer.get_vocabulary() if token not in ("[PAD]", "[CLS]", "[SEP]")]
    special = {"start_token": "<s>", "pad_token": "<pad>", "end_token": "</s>"}
    return WordPieceTokenizer([*special.values(), *words], lowercase=True, **special)


def with_tokenizer(name: str, **changes: Any) -> Any:
    """A task with random weights and a tokenizer; some choices of its configuration may be others."""
    import zoo
    from zoo.huggingface import read_config

    config, tokenizer = read_config(families()[name][0]), tokenizer_for(name)
    config = dataclasses.replace(config, vocabulary_size=max(48, tokenizer.vocabulary_size), **changes)
    if name in ("roberta", "xlm-roberta", "camembert", "data2vec-text", "longformer", "m2m_100"):
        # the first position comes after that of the padding token
        position = dataclasses.replace(config.position, offset=tokenizer.pad_id + 1)
        config = dataclasses.replace(config, position=position)
    options = {"decoder_start_token": "<pad>"} if name == "marian" else {}
    return task_of(name, zoo.Backbone.from_config(config), preprocessor=tokenizer, **options)
