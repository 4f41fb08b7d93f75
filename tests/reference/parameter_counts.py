"""Writes parameter_counts.json: numbers of weights of published models, counted by the Transformers library.

The models are built on the "meta" device: nothing is allocated, and no weights are read. Run it where `torch` and
`transformers` are installed (made with torch 2.13.0, transformers 5.23.0):

    python tests/reference/parameter_counts.py
"""

import json
from pathlib import Path

import torch
import transformers


def bert(**choices):
    return transformers.BertModel, transformers.BertConfig(**choices)


def sized_bert(width, layers, **choices):
    return bert(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        **choices,
    )


def gpt2(width, layers, heads):
    return transformers.GPT2LMHeadModel, transformers.GPT2Config(n_embd=width, n_layer=layers, n_head=heads)


def decoder(name, vocabulary, width, inner, layers, heads, key_value_heads, **choices):
    config = getattr(transformers, f"{name}Config")(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        **choices,
    )
    return getattr(transformers, f"{name}ForCausalLM"), config


def t5(width, inner, layers, heads, **choices):
    return transformers.T5ForConditionalGeneration, transformers.T5Config(
        d_model=width, d_ff=inner, num_layers=layers, num_heads=heads, **choices
    )


TIED = {"tie_word_embeddings": True}
MODELS = {
    "bert_tiny_uncased": sized_bert(128, 2),
    "bert_mini_uncased": sized_bert(256, 4),
    "bert_small_uncased": sized_bert(512, 4),
    "bert_medium_uncased": sized_bert(512, 8),
    "bert_base_uncased": bert(),
    "bert_large_uncased": sized_bert(1024, 24),
    "bert_base_cased": bert(vocab_size=28996),
    "bert_large_cased": sized_bert(1024, 24, vocab_size=28996),
    "minilm_l6": bert(hidden_size=384, num_hidden_layers=6, intermediate_size=1536),
    "roberta_base": (
        transformers.RobertaModel,
        transformers.RobertaConfig(max_position_embeddings=514, type_vocab_size=1),
        {"add_pooling_layer": False},
    ),
    "distilbert_base_uncased": (transformers.DistilBertModel, transformers.DistilBertConfig()),
    "modernbert_base": (transformers.ModernBertModel, transformers.ModernBertConfig()),
    "gpt2_small": gpt2(768, 12, 12),
    "gpt2_medium": gpt2(1024, 24, 16),
    "gpt2_large": gpt2(1280, 36, 20),
    "gpt2_xl": gpt2(1600, 48, 25),
    "llama_3_8b": decoder("Llama", 128256, 4096, 14336, 32, 32, 8),
    "llama_3.2_1b": decoder("Llama", 128256, 2048, 8192, 16, 32, 8, head_dim=64, **TIED),
    "tinyllama_1.1b": decoder("Llama", 32000, 2048, 5632, 22, 32, 4),
    "smollm2_135m": decoder("Llama", 49152, 576, 1536, 30, 9, 3, **TIED),
    "qwen2.5_0.5b": decoder("Qwen2", 151936, 896, 4864, 24, 14, 2, **TIED),
    "qwen3_0.6b": decoder("Qwen3", 151936, 1024, 3072, 28, 16, 8, head_dim=128, **TIED),
    "gemma_2_2b": decoder("Gemma2", 256000, 2304, 9216, 26, 8, 4, head_dim=256),
    "t5_small": t5(512, 2048, 6, 8),
    "t5_base": t5(768, 3072, 12, 12),
    "flan_t5_small": t5(512, 1024, 8, 6, feed_forward_proj="gated-gelu"),
    "bart_base": (
        transformers.BartForConditionalGeneration,
        transformers.BartConfig(
            d_model=768,
            encoder_layers=6,
            decoder_layers=6,
            encoder_ffn_dim=3072,
            decoder_ffn_dim=3072,
            encoder_attention_heads=12,
            decoder_attention_heads=12,
        ),
    ),
}


def main() -> None:
    counts = {}
    for name, (model_class, config, *options) in MODELS.items():
        with torch.device("meta"):
            model = model_class(config, **(options[0] if options else {}))
            if name == "flan_t5_small":
                # the library ties the output until a file with weights of its own for it is loaded
                model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
        counts[name] = sum(parameter.numel() for parameter in model.parameters())  # shared ones once
    path = Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(counts, indent=2) + "\n")
    print(path.read_text())


if __name__ == "__main__":
    main()
