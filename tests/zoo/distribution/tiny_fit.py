"""Trains a tiny model in a process of its own, and writes what came out: `python tiny_fit.py OUT.npz '{...}'`.

Options: `shape` (decoder, encoder, encoder_decoder), `distribution` (as `zoo.distribution.use` takes it), `epochs`,
`texts`, `dropout`, `experts`, `accumulate` (batches of an update), and `devices` (logical processors of TensorFlow).
"""

import json
import os
import random
import sys

OUT, OPTIONS = sys.argv[1], json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}

import keras  # noqa: E402
import numpy as np  # noqa: E402

if OPTIONS.get("devices"):
    import tensorflow as tf

    processor = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * OPTIONS["devices"])

import zoo  # noqa: E402
from zoo import distribution  # noqa: E402
from zoo.tokenizers import SentencePieceTokenizer  # noqa: E402
from zoo.training import Perplexity, TokenAccuracy, TokenCount, TokenCrossEntropy  # noqa: E402

WORDS = "alpha beta gamma kappa iota lambda omega theta".split()
VOCABULARY = 26


def make_texts(number):
    generator = random.Random(0)
    return [" ".join(generator.choices(WORDS, k=generator.randint(1, 5))) for _ in range(number)]


def make_config(shape, dropout):
    rotary = {"position": zoo.PositionConfig("rotary")} if shape == "decoder" else {}
    return zoo.TransformerConfig(
        shape,
        VOCABULARY,
        hidden_dim=16,
        num_layers=2,
        max_length=32,
        attention=zoo.AttentionConfig(4, num_key_value_heads=2 if shape == "decoder" else 4),
        feed_forward=zoo.FeedForwardConfig(
            32, "silu", gated=shape == "decoder", num_experts=OPTIONS.get("experts"), experts_per_token=2
        ),
        embedding=zoo.EmbeddingConfig(tie_output=shape != "encoder_decoder"),
        norm=zoo.NormConfig(placement="pre"),
        dropout=dropout,
        **rotary,
    )


def make_model(shape, dropout=0.0):
    tokenizer = SentencePieceTokenizer.train(make_texts(200), vocabulary_size=VOCABULARY)
    keras.utils.set_random_seed(0)
    backbone = zoo.Backbone.from_config(make_config(shape, dropout))
    # a small bound, so that gradients are clipped in each update
    optimizer = keras.optimizers.AdamW(
        0.01, weight_decay=0.01, global_clipnorm=0.3, gradient_accumulation_steps=OPTIONS.get("accumulate")
    )
    options = {} if keras.backend.backend() == "jax" else {"jit_compile": False}
    if shape == "encoder":
        model = zoo.TextClassifier(backbone, tokenizer, labels=["few", "many"], head_dropout=dropout)
        model.compile(optimizer, weighted_metrics=["accuracy"], **options)
        return model
    kind = zoo.CausalLM if shape == "decoder" else zoo.Seq2SeqLM
    model = kind(backbone, tokenizer)
    metrics = [TokenAccuracy(), TokenCount(), Perplexity()]
    model.compile(optimizer, TokenCrossEntropy(0.1), weighted_metrics=metrics, **options)
    return model


def make_data(shape, number):
    texts = make_texts(number)
    if shape == "decoder":
        return (texts,)
    return texts, ([["few", "many"][len(text.split()) > 3] for text in texts] if shape == "encoder" else texts)


def main():
    shape = OPTIONS.get("shape", "decoder")
    distribution.use(OPTIONS.get("distribution"))
    with distribution.scope():
        model = make_model(shape, OPTIONS.get("dropout", 0.0))
    data = make_data(shape, OPTIONS.get("texts", 75))
    logs = model.fit(*data, batch_size=8, epochs=OPTIONS.get("epochs", 2), shuffle=False, verbose=0).history
    held_out = make_data(shape, 20)
    scores = model.evaluate(*held_out, batch_size=8, verbose=0, return_dict=True)
    values = distribution.whole_values({weight.path.partition("/")[2]: weight for weight in model.weights})
    if distribution.is_first_process():
        np.savez(
            OUT,
            **{f"weights/{name}": value for name, value in values.items()},
            **{f"history/{name}": np.asarray(column) for name, column in logs.items()},
            **{f"scores/{name}": np.asarray(value) for name, value in scores.items()},
        )
    layouts = {
        weight.path: str(getattr(getattr(weight.value, "sharding", None), "spec", "")) for weight in model.weights
    }
    print(json.dumps({"pid": os.getpid(), "layouts": layouts}))


if __name__ == "__main__":
    main()
