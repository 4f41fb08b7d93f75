"""The public interface as programs of users have it: mypy checks that its types are what they should be, not `Any`."""

from collections.abc import Iterator
from typing import Any, assert_type

import numpy as np

import layers
import zoo

config = zoo.TransformerConfig(
    "decoder",
    vocabulary_size=100,
    hidden_dim=32,
    attention=zoo.AttentionConfig(num_heads=4, num_key_value_heads=2),
    position=zoo.PositionConfig("rotary"),
    norm=zoo.NormConfig("rms", placement="pre"),
    feed_forward=zoo.FeedForwardConfig(64, "silu", gated=True),
)
assert_type(config.num_layers, int)
assert_type(config.attention, zoo.AttentionConfig)
assert_type(zoo.TransformerConfig.from_json("{}"), zoo.TransformerConfig)
assert_type(zoo.Backbone.from_config(config), zoo.Backbone)
assert_type(zoo.Backbone.from_preset("gpt2_small", load_weights=False), zoo.Backbone)
assert_type(zoo.preset_config("gpt2_small"), zoo.TransformerConfig)
assert_type(zoo.list_presets("gpt2")["gpt2_small"].parameter_count(), int)

language_model = zoo.CausalLM.from_preset("gpt2_small", load_weights=False)
assert_type(language_model, zoo.CausalLM)
language_model.generate(["Once upon"], max_length=64, sampler=zoo.Sample(top_k=5))
language_model.generate(["Once upon"], max_lenght=64)  # type: ignore[call-arg]
assert_type(language_model.stream("Once upon", chunk=8), Iterator[Any])
assert_type(language_model.generate_tokens([[1, 2, 3]], max_length=8), dict[str, Any])

classifier = zoo.TextClassifier.from_preset("bert_tiny", labels=["bad", "good"])
assert_type(classifier, zoo.TextClassifier)
classifier.enable_lora(8, alpha=16.0)
classifier.enable_lora("8")  # type: ignore[arg-type]
classifier.export("export")
classifier.save_to_preset("saved")

embedder = zoo.TextEmbedder.from_preset("bert_tiny")
assert_type(embedder.embed(["a text"]), np.ndarray)

tokenizer = zoo.tokenizers.SentencePieceTokenizer.train(["some text"], vocabulary_size=32)
assert_type(tokenizer, zoo.tokenizers.SentencePieceTokenizer)
assert_type(tokenizer.vocabulary_size, int)
assert_type(zoo.tokenizers.WordPieceTokenizer.from_preset("saved"), zoo.tokenizers.WordPieceTokenizer)

block = layers.TransformerBlock(
    layers.MultiHeadAttention(4, 8, causal=True, position=layers.RotaryEmbedding(8)),
    layers.FeedForward(64),
    norm=layers.RMSNorm(),
    placement="pre",
)
layers.FeedForward("64")  # type: ignore[arg-type]
