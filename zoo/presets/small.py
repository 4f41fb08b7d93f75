"""Small models to train from scratch within minutes: an older and a modern design of equal size each."""

from zoo.presets.decoders import gpt2_config, llama_config
from zoo.presets.encoders import bert_config, modernbert_config
from zoo.presets.registry import register_preset

NANOGPT = "Karpathy 2022, nanoGPT, train_shakespeare_char on a CPU"
LLAMA = 'Touvron et al. 2023, "LLaMA", section 2.2'

register_preset(
    "gpt_shakespeare",
    gpt2_config(65, 128, 4, 4, 64, activation="gelu", use_bias=False, dropout=0.0),
    "A GPT without biases for the 65 characters of tiny Shakespeare.",
    NANOGPT,
    804_096,
)
register_preset(
    "llama_shakespeare",
    llama_config(65, 128, 344, 4, 4, 4, 64, tie_output=True),
    "A Llama of the size of gpt_shakespeare.",
    LLAMA,
    800_000,
)
register_preset(
    "gpt_tiny",
    gpt2_config(8192, 256, 6, 4, 256),
    "A GPT-2 for corpora of a few megabytes.",
    'Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"',
    6_901_760,
)
register_preset(
    "llama_tiny",
    llama_config(8192, 256, 688, 6, 4, 2, 256, tie_output=True, dropout=0.1),
    "A Llama of about the size of gpt_tiny.",
    LLAMA,
    6_450_432,
)
register_preset(
    "encoder_tiny",
    bert_config(8192, 256, 4, 4, max_length=256, pooler=False),
    "A BERT for corpora of a few megabytes.",
    "Devlin et al. 2019",
    5_322_752,
)
register_preset(
    "modern_encoder_tiny",
    modernbert_config(8192, 256, 688, 4, 4, 256, dropout=0.1),
    "A ModernBERT of about the size of encoder_tiny.",
    'Warner et al. 2024, "ModernBERT"',
    5_261_568,
)
