"""A small language model that chats, with a window of attention."""

import keras


def make_chat_model():
    import zoo
    from zoo.tokenizers import ByteLevelBPETokenizer

    keras.utils.set_random_seed(0)
    tokens = ["<|im_start|>", "<|im_end|>"]
    words = "hello who are you today friend of mine, wörld and 你好"
    tokenizer = ByteLevelBPETokenizer.train([words] * 9, 290, end_token="<|endoftext|>", special_tokens=tokens)
    config = zoo.TransformerConfig(
        "decoder",
        tokenizer.vocabulary_size,
        hidden_dim=16,
        num_layers=2,
        max_length=160,
        attention=zoo.AttentionConfig(num_heads=2, window=(40, 0), window_layers=(True, False)),
        position=zoo.PositionConfig("rotary"),
        feed_forward=zoo.FeedForwardConfig(16),
        norm=zoo.NormConfig(placement="pre"),
        dropout=0.0,
        initializer_range=0.7,
    )
    return zoo.CausalLM(zoo.Backbone.from_config(config), tokenizer.with_chat_format("chatml"))
