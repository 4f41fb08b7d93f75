"""Each recipe with a few steps of a tiny model, on sentences in Chinese, Russian, Arabic, Hindi and Thai."""

import importlib
import json
from types import SimpleNamespace

from recipes.common.config import parse

# of each script: sentences with a name in the middle, good ones and bad ones
SENTENCES = {
    "zh": ("{}喜欢这部电影。", "{}不喜欢这本书。", ("李明", "王芳", "北京", "小红")),
    "ru": ("{} любит этот фильм.", "{} ругает эту книгу.", ("Иван", "Мария", "Москва", "Ольга")),
    "ar": ("{} يحب هذا الفيلم.", "{} يكره هذا الكتاب.", ("أحمد", "مريم", "القاهرة", "خالد")),
    "hi": ("{} को यह फ़िल्म पसंद है।", "{} को यह किताब नापसंद है।", ("राम", "सीता", "दिल्ली", "मोहन")),
    "th": ("{}ชอบหนังเรื่องนี้", "{}เกลียดหนังสือเล่มนี้", ("สมชาย", "มาลี", "กรุงเทพ", "วิชัย")),
}
ROWS = [
    SimpleNamespace(text=form.format(name), name=name, label=label, script=script)
    for script, (good, bad, names) in SENTENCES.items()
    for name in names
    for form, label in ((good, "好"), (bad, "плохо"))
]
TINY = '{"num_layers": 1, "hidden_dim": 16, "feed_forward": {"intermediate_dim": 16}, "attention": {"num_heads": 2}}'
ENCODER = [
    *("--model.preset", "modern_encoder_tiny", "--model.options", TINY, "--tokenizer.vocabulary_size", "260"),
    *("--training.batch_size", "20", "--training.epochs", "1"),
]
DECODER = [
    *(
        "--model.preset",
        "llama_shakespeare",
        "--model.options",
        '{"num_layers": 1, "hidden_dim": 16, "max_length": 160}',
    ),
    *("--training.batch_size", "20", "--training.epochs", "1", "--training.warmup_steps", "1"),
]
SEQ2SEQ = [
    *("--model.options", '{"num_layers": 1, "hidden_dim": 16, "max_length": 96}', "--data.max_length", "96"),
    *("--tokenizer.vocabulary_size", "160", "--training.tokens_per_batch", "2048", "--training.epochs", "1"),
    *("--training.warmup_steps", "1", "--training.samples", "1", "--training.number_of_buckets", "1"),
]


def jsonl(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def spans(row):
    return [{"start": row.text.index(row.name), "end": row.text.index(row.name) + len(row.name), "label": "имя"}]


def answered(row):
    start = row.text.index(row.name)
    return {"question": "谁？", "context": row.text, "answers": [{"text": row.name, "answer_start": start}]}


def said(row):
    talk = [{"role": "user", "content": row.text}, {"role": "assistant", "content": row.name}]
    return {"messages": talk}


def preferred(row):
    return {"prompt": row.text, "chosen": row.name, "rejected": row.label}


# for each recipe its data, their suffix and its options
RECIPES = {
    "classify": ("".join(f"{row.text}\t{row.label}\n" for row in ROWS), "tsv", ENCODER),
    "tag": (jsonl({"text": row.text, "spans": spans(row)} for row in ROWS), "jsonl", ENCODER),
    "answer": (jsonl(map(answered, ROWS)), "jsonl", ENCODER),
    "embed": (
        "".join(f"{row.name}\t{row.text}\n" for row in ROWS[::2]),
        "tsv",
        [*ENCODER, "--objective.name", "in_batch_negatives"],
    ),
    "rerank": (
        "".join(f"{row.name}\t{row.text}\n" for row in ROWS[::2]),
        "tsv",
        [*ENCODER, "--data.negatives", "1", "--evaluation.candidates", "4"],
    ),
    "pretrain_masked_lm": (
        "".join(f"{row.text}\n" for row in ROWS),
        "txt",
        [*ENCODER, "--data.unit", "line", "--masking.whole_words", "true"],
    ),
    "language_model": (
        "".join(f"{row.text}\n" for row in ROWS),
        "txt",
        [*DECODER, "--training.batches_per_epoch", "2", "--training.length", "24", "--new_tokens", "4"],
    ),
    "finetune": (
        jsonl(map(said, ROWS)),
        "jsonl",
        [*DECODER, "--tokenizer.vocabulary_size", "400", "--new_tokens", "4", "--training.samples", "1"],
    ),
    "translate": ("".join(f"{row.text}\t{row.name}\n" for row in ROWS), "tsv", SEQ2SEQ),
    "summarize": (
        jsonl({"source": row.text, "target": row.name} for row in ROWS),
        "jsonl",
        [
            *(word.replace("data.max_length", "data.max_text_length") for word in SEQ2SEQ),
            *("--data.max_summary_length", "12", "--sampler", '{"name": "greedy"}'),
        ],
    ),
}


# recipes that begin with a model: the key that names it, and the same
STARTED = {
    "prefer": (
        "model.start_from",
        jsonl(map(preferred, ROWS)),
        "jsonl",
        [*("--training.batch_size", "20", "--training.epochs", "1", "--training.samples", "1", "--new_tokens", "4")],
    ),
    "distill": (
        "teacher.start_from",
        "".join(f"{row.text}\n" for row in ROWS),
        "txt",
        [
            *("--data.unit", "line", "--training.length", "24", "--training.batches_per_epoch", "2"),
            *("--training.batch_size", "4", "--training.epochs", "1"),
        ],
    ),
}


def run(recipe, folder, *more):
    """The results of a recipe whose training data are its test data."""
    module = importlib.import_module(f"recipes.{recipe}")
    (config_class,) = [
        kind for key, kind in vars(module).items() if key.endswith("Config") and hasattr(kind, "run_folder")
    ]
    text, suffix, options = RECIPES[recipe] if recipe in RECIPES else STARTED[recipe][1:]
    path = folder / f"data.{suffix}"
    path.write_text(text, encoding="utf-8")
    files = ["--data.train", str(path), "--data.validation", str(path)]
    where = ["--run_folder", str(folder / "run"), "--export", "false"]
    return module.main(parse(config_class, [*files, *options, *where, *more]))
