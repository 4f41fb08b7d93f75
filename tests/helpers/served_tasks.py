"""Small models of every kind of task, with random weights, exported to a folder that a server takes."""

from pathlib import Path

import keras
import numpy as np

WORDS = "Ada Lovelace lives in London, wörld of שלום and 你好. <script>alert(1)</script> who are you today?"
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def export_tasks(folder: Path) -> None:
    """Writes exports named after their tasks to a folder."""
    import zoo
    from zoo.tokenizers import SentencePieceTokenizer

    texts = [WORDS, "English text to translate", "one two three four five six seven eight nine ten"] * 9
    proto = SentencePieceTokenizer.train(texts, vocabulary_size=64, special_tokens=["<mask>"]).proto
    tokenizer = SentencePieceTokenizer(proto, mask_token="<mask>")

    def backbone(architecture: str, seed: int) -> zoo.Backbone:
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

    tasks = {
        "answers": zoo.QuestionAnswerer(backbone("encoder", 1), tokenizer),
        "labels": zoo.TextClassifier(backbone("encoder", 2), tokenizer, labels=["bad", "<b>good</b>", "mäßig"]),
        "names": zoo.TokenClassifier(backbone("encoder", 3), tokenizer, labels=TAGS),
        "translations": zoo.Seq2SeqLM(backbone("encoder_decoder", 4), tokenizer),
        "vectors": zoo.TextEmbedder(backbone("encoder", 5), tokenizer, prompts={"query": "query: "}),
        "masks": zoo.MaskedLM(backbone("encoder", 6), tokenizer),
    }
    for name, task in tasks.items():
        options = {"max_new_tokens": 20, "jit_compile": False} if name == "translations" else {}
        task.export(folder / name / "1", attention=name in ("names", "translations", "answers"), **options)


