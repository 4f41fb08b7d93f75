"""A small language model with random weights that has a token for each byte, and some for more."""

import keras

import zoo
from zoo.tokenizers import ByteLevelBPETokenizer

TEXTS = ["hello who are you today, wörld and 你好", '{"name": "x", "years": [1, 2], "نعم": true, "नमस्ते": null}']


def make_writer() -> zoo.CausalLM:
    """The model, which continues texts and answers conversations of ChatML."""
    keras.utils.set_random_seed(0)
    tokens = ["<|im_start|>", "<|im_end|>"]
    tokenizer = ByteLevelBPETokenizer.train(TEXTS * 9, 320, end_token="<|endoftext|>", special_tokens=tokens)
    config = zoo.TransformerConfig(
        "decoder",
        # some more than the tokenizer has
        tokenizer.vocabulary_size + 5,
        hidden_dim=16,
        num_layers=1,
        max_length=1024,
        attention=zoo.AttentionConfig(num_heads=2),
        position=zoo.PositionConfig("rotary"),
        feed_forward=zoo.FeedForwardConfig(16),
        norm=zoo.NormConfig(placement="pre"),
        dropout=0.0,
        initializer_range=0.4,
    )
    return zoo.CausalLM(zoo.Backbone.from_config(config), tokenizer.with_chat_format("chatml"))
