"""Writes generation.json: what models of huggingface/ generate with settings of the Transformers library.

Each entry has the settings, as `generation_config.json` or as keys of `config.json`, prompts or sources, and the tokens
that `generate` of the library writes for each, with their end. Run it where `torch` and `transformers` are installed
(made with torch 2.13.0, transformers 5.23.0):

    python -P tests/reference/generation.py  # tokenizers.py next to it is not the library of this name
"""

import json
import shutil
import tempfile
from pathlib import Path

import torch
import transformers

FOLDER = Path(__file__).with_name("huggingface")
PROMPTS = [[1, 5, 9, 12], [7], [1, 20, 33, 4, 8, 40, 11]]
SOURCES = [[0, 5, 9, 12, 2], [0, 33, 2], [0, 20, 33, 4, 8, 40, 11, 9, 17, 2]]
FORCED = {"decoder_start_token_id": 2, "forced_bos_token_id": 0, "forced_eos_token_id": 2, "eos_token_id": 2}
T5 = {"decoder_start_token_id": 0, "pad_token_id": 0}

# name: (model, file of the settings, settings)
CASES = {
    "ends": ("llama", "generation_config.json", {"eos_token_id": [2, 27, 31], "max_new_tokens": 64}),
    "no end": ("llama", "generation_config.json", {"max_length": 64}),
    "penalties": (
        "llama",
        "generation_config.json",
        {
            "eos_token_id": [2, 27],
            "max_length": 64,
            "min_length": 12,
            "no_repeat_ngram_size": 2,
            "repetition_penalty": 1.3,
        },
    ),
    "bans": (
        "qwen3",
        "config.json",
        {
            "bad_words_ids": [[2], [13], [44, 30], [5, 9, 7]],
            "begin_suppress_tokens": [40, 41, 42],
            "eos_token_id": 2,
            "forced_bos_token_id": 6,
            "forced_eos_token_id": [3, 4],
            "max_length": 30,
            "min_new_tokens": 3,
            "no_repeat_ngram_size": 3,
            "suppress_tokens": [17, 21],
        },
    ),
    "beams": (
        "llama",
        "generation_config.json",
        {"eos_token_id": [2, 27, 31], "max_new_tokens": 24, "num_beams": 3, "length_penalty": 0.7},
    ),
    "beams, all finished": (
        "qwen3",
        "generation_config.json",
        {
            "early_stopping": True,
            "eos_token_id": [2, 9, 27],
            "length_penalty": 2.0,
            "max_new_tokens": 24,
            "no_repeat_ngram_size": 2,
            "num_beams": 4,
        },
    ),
    "beams, exact": (
        "qwen3",
        "generation_config.json",
        {
            "bad_words_ids": [[13], [44, 30]],
            "early_stopping": "never",
            "eos_token_id": [2, 9],
            "forced_eos_token_id": 2,
            "length_penalty": 0.5,
            "max_length": 20,
            "num_beams": 3,
            "renormalize_logits": True,
        },
    ),
    "beams, short texts": (
        "llama",
        "generation_config.json",
        {
            "eos_token_id": [2, 27],
            "length_penalty": -0.5,
            "max_new_tokens": 12,
            "num_beams": 2,
            "repetition_penalty": 1.2,
        },
    ),
    "sequence to sequence": ("bart", "generation_config.json", {**FORCED, "max_length": 20, "min_length": 6}),
    "sequence to sequence, beams": (
        "bart",
        "config.json",
        {
            **FORCED,
            "begin_suppress_tokens": [7, 30],
            "early_stopping": True,
            "length_penalty": 2.0,
            "max_length": 18,
            "min_length": 6,
            "no_repeat_ngram_size": 2,
            "num_beams": 3,
        },
    ),
    "sequence to sequence, penalties": (
        "t5",
        "generation_config.json",
        {**T5, "eos_token_id": 1, "max_new_tokens": 64, "no_repeat_ngram_size": 3, "repetition_penalty": 1.5},
    ),
    "sequence to sequence, heuristic": (
        "t5",
        "generation_config.json",
        {**T5, "eos_token_id": [1, 11], "max_length": 20, "num_beams": 3, "repetition_penalty": 1.2, "min_length": 3},
    ),
}


def generate(case: str, file: str, settings: dict) -> list[list[int]]:
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for path in (FOLDER / case).iterdir():
            shutil.copy(path, folder)
        before = json.loads((folder / file).read_text()) if file == "config.json" else {}
        (folder / file).write_text(json.dumps({**before, **settings}))
        config = transformers.AutoConfig.from_pretrained(folder)
        kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
        model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    texts = []
    for row in SOURCES if config.is_encoder_decoder else PROMPTS:
        ids = torch.tensor([row])
        output = model.generate(ids, attention_mask=torch.ones_like(ids), use_cache=True)[0].tolist()
        texts.append(output[1 if config.is_encoder_decoder else len(row) :])
    return texts


def main() -> None:
    written = {}
    for name, (model, file, settings) in CASES.items():
        tokens = generate(model, file, settings)
        inputs = SOURCES if model in ("bart", "t5") else PROMPTS
        written[name] = {"model": model, "file": file, "settings": settings, "inputs": inputs, "tokens": tokens}
        print(name, *tokens, sep="\n  ")
    lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in written.items()]
    Path(__file__).with_suffix(".json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
