"""Small models to train from scratch within minutes: an older and a modern design of equal size each."""

from zoo.presets.catalogue import register_listed
from zoo.presets.decoders import gpt2_config, llama_config
from zoo.presets.encoders import bert_config, modernbert_config

register_listed("gpt_shakespeare", gpt2_config(65, 128, 4, 4, 64, activation="gelu", use_bias=False, dropout=0.0))
register_listed("llama_shakespeare", llama_config(65, 128, 344, 4, 4, 4, 64, tie_output=True))
register_listed("gpt_tiny", gpt2_config(8192, 256, 6, 4, 256))
register_listed("llama_tiny", llama_config(8192, 256, 688, 6, 4, 2, 256, tie_output=True, dropout=0.1))
register_listed("encoder_tiny", bert_config(8192, 256, 4, 4, max_length=256, pooler=False))
register_listed("modern_encoder_tiny", modernbert_config(8192, 256, 688, 4, 4, 256, dropout=0.1))
