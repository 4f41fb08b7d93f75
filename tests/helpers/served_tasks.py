"""Small models of every kind of task, with random weights, as exports in a folder that a server takes."""

from pathlib import Path
from typing import Any

import keras

import zoo

WORDS = "Ada Lovelace lives in London, wörld of שלום and 你好. <script>alert(1)</script> who are you today?"
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def make_tokenizer() -> Any:
    """A tokenizer that knows the characters of `WORDS` and a mask."""
    texts = [WORDS, "English text to translate", "one two three four five six seven eight nine ten"] * 9
    train = zoo.tokenizers.SentencePieceTokenizer.train
    proto = train(texts, vocabulary_size=64, special_tokens=["<mask>"]).proto
    return zoo.tokenizers.SentencePieceTokenizer(proto, mask_token="<mask>")


def make_backbone(architecture: str, tokenizer: Any, seed: int) -> zoo.Backbone:
    """A backbone of two layers with two heads; its weights are large, so that texts differ."""
    keras.utils.set_random_seed(seed)
    config = zoo.TransformerConfig(
        architecture,
        vocabulary_size=tokenizer.vocabulary_size,
        hidden_dim=16,
        num_layers=2,
        max_length=96,
        attention=zoo.AttentionConfig(num_heads=2),
        feed_forward=zoo.FeedForwardConfig(16),
        dropout=0.0,
        initializer_range=0.7,
    )
    return zoo.Backbone.from_config(config)


def make_tasks() -> dict[str, Any]:
    """A task of each kind but language models, by the names of their exports."""
    tokenizer = make_tokenizer()
    encoders = [make_backbone("encoder", tokenizer, seed) for seed in range(5)]
    labels = ["bad", "<b>good</b>", "mäßig"]
    return {
        "answers": zoo.QuestionAnswerer(encoders[0], tokenizer),
        "labels": zoo.TextClassifier(encoders[1], tokenizer, labels=labels),
        "masks": zoo.MaskedLM(encoders[2], tokenizer),
        "names": zoo.TokenClassifier(encoders[3], tokenizer, labels=TAGS),
        "translations": zoo.Seq2SeqLM(make_backbone("encoder_decoder", tokenizer, 5), tokenizer),
        "vectors": zoo.TextEmbedder(encoders[4], tokenizer, prompts={"query": "query: "}),
    }


def make_rerankers() -> dict[str, Any]:
    """Classifiers of pairs with a probability and with a number, by the names of their exports."""
    tokenizer = make_tokenizer()
    problems = {"relevant": "multi_label", "relevance": "regression"}
    return {
        name: zoo.TextClassifier(
            make_backbone("encoder", tokenizer, seed), tokenizer, labels=[name], problem=problem, pairs=True
        )
        for seed, (name, problem) in enumerate(problems.items(), 6)
    }


def export_tasks(folder: Path) -> None:
    """Writes the tasks to a folder; two of them say what they attend to."""
    for name, task in make_tasks().items():
        options = {"max_new_tokens": 20, "jit_compile": False} if name == "translations" else {}
        task.export(folder / name / "1", attention=name in ("names", "translations"), **options)
