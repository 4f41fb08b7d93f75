"""The public interface as programs of users have it: mypy checks that its types are what they should be, not `Any`."""

from collections.abc import Iterator
from pathlib import Path
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

translator = zoo.Seq2SeqLM.from_preset("t5_small", load_weights=False)
assert_type(translator, zoo.Seq2SeqLM)
translator.generate(["translate English to German: a text"], sampler=zoo.Beam(num_beams=4), max_new_tokens=8)
translator.generate(["a text"], num_beams=4)  # type: ignore[call-arg]
biased = [zoo.generation.BannedTokens([3, [4, 5]]), zoo.generation.LogitBias({17: -2.0})]
translator.generate(["a text"], processors=biased)
assert_type(translator.generation_defaults.max_length, int | None)

classifier = zoo.TextClassifier.from_preset("bert_tiny", labels=["bad", "good"])
assert_type(classifier, zoo.TextClassifier)
classifier.enable_lora(8, alpha=16.0)
classifier.enable_lora("8")  # type: ignore[arg-type]
classifier.export("export")
classifier.save_to_preset("saved")
assert_type(classifier.endpoints()["serve"].inputs, tuple[zoo.export.Field, ...])
assert_type(language_model.endpoints(sampler="greedy", max_new_tokens=8), dict[str, zoo.export.Endpoint])

tagger = zoo.TokenClassifier.from_preset("bert_tiny", labels=["other", "name"])
assert_type(tagger, zoo.TokenClassifier)
assert_type(tagger.tag(["a text"], batch_size=8), list[Any])
answerer = zoo.QuestionAnswerer.from_preset("bert_tiny", stride=16)
assert_type(answerer, zoo.QuestionAnswerer)
answerer.answer("What?", "A text.", top_k=3)
answerer.answer("What?")  # type: ignore[call-arg]

found = language_model.inspect("Once upon", top_k=3)
assert_type(found, zoo.inspect.Inspection)
assert_type(found.attention, np.ndarray | None)
assert_type(found.top(-1), list[tuple[str, float]])
assert_type(found.save_html(Path("page.html")), Path)
with zoo.inspect.Capture() as captured:
    language_model.generate("Once upon", max_new_tokens=1)
assert_type(captured, zoo.inspect.Capture)
assert_type(captured["decoder.hidden"], list[Any])

embedder = zoo.TextEmbedder.from_preset("bert_tiny")
assert_type(embedder.embed(["a text"]), np.ndarray)

tokenizer = zoo.tokenizers.SentencePieceTokenizer.train(["some text"], vocabulary_size=32)
assert_type(tokenizer, zoo.tokenizers.SentencePieceTokenizer)
assert_type(tokenizer.vocabulary_size, int)
assert_type(zoo.tokenizers.WordPieceTokenizer.from_preset("saved"), zoo.tokenizers.WordPieceTokenizer)

schedule = zoo.training.WarmupLinear(1e-3, warmup_steps=10, total_steps=100)
assert_type(schedule.peak, float)
assert_type(zoo.training.InverseSquareRoot.from_model_dim(512, 4000), zoo.training.InverseSquareRoot)
zoo.training.PerUpdate(zoo.training.WithWarmup(1e-3, 10), gradient_accumulation_steps=4)
zoo.training.WarmupStableDecay(1e-3, 10, 80)  # type: ignore[call-arg]
samples = zoo.training.SampleOutputs(lambda: ["a text"], "samples")
assert_type(samples.directory, Path | None)


def train(data: zoo.training.ResumableData) -> None:
    state = zoo.training.TrainingState("state", data, callbacks=[samples, zoo.training.Throughput()])
    assert_type(state.best_weights_path, Path)
    assert_type(state.directory, Path)


block = layers.TransformerBlock(
    layers.MultiHeadAttention(4, 8, causal=True, position=layers.RotaryEmbedding(8)),
    layers.FeedForward(64),
    norm=layers.RMSNorm(),
    placement="pre",
)
layers.FeedForward("64")  # type: ignore[arg-type]
assert_type(layers.SinusoidalPositionEncoding(64).compute_output_shape((None, 7)), tuple[int | None, ...])
layers.LearnedPositionEmbedding(128, dim="64")  # type: ignore[arg-type]
assert_type(layers.RotaryEmbedding(8, scaling={"kind": "linear", "factor": 2.0}).depends_on_length, bool)
assert_type(layers.MultiHeadAttention(4, 8).compute_output_shape((None, 7, 32)), tuple[int | None, ...])
