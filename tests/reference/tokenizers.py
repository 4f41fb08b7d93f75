"""Writes tokenizers/bart/: a tiny tokenizer as the published ones of BART are, and what Transformers makes of texts.

Run it where `transformers` and `tokenizers` are installed (made with transformers 5.23.0, tokenizers 0.23.3):

    python tests/reference/tokenizers.py

With a folder behind it, nothing is written: `AutoTokenizer` loads the tokenizers that this library wrote to folders in
it, and gives the ids that `expected.json` next to them holds. Such folders are left by

    pytest tests/zoo/huggingface/test_tokenizers.py --basetemp FOLDER
"""

import json
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.remove(str(FOLDER))  # this file has the name of a library

import tokenizers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers.models.bart.modeling_bart import shift_tokens_right  # noqa: E402

TEXTS = ["A small dog runs.", "", " two  men play ", "Ein Hund l\u00e4uft \u00fcber 12 Wiesen! \U0001f642"]
TARGETS = ["a dog", "nothing", "two men", ""]


def make_bart() -> None:
    folder = FOLDER / "tokenizers" / "bart"
    folder.mkdir(parents=True, exist_ok=True)
    library = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    library.train_from_iterator(TEXTS * 4, vocab_size=300, special_tokens=special, show_progress=False)
    content = json.loads(library.to_str())
    merges = [tuple(pair) for pair in content["model"]["merges"]]
    tokenizer = transformers.BartTokenizer(vocab=content["model"]["vocab"], merges=merges)
    tokenizer.save_pretrained(folder)
    labels = tokenizer(text_target=TARGETS, padding=True, return_tensors="pt")["input_ids"]
    golden = {
        "texts": TEXTS,
        "ids": tokenizer(TEXTS)["input_ids"],
        "targets": TARGETS,
        "labels": labels.tolist(),
        "decoder_input_ids": shift_tokens_right(labels, tokenizer.pad_token_id, tokenizer.eos_token_id).tolist(),
    }
    (folder / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")


def check(root: Path) -> None:
    paths = sorted(path for path in root.rglob("expected.json") if not any(part.is_symlink() for part in path.parents))
    for path in paths:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent)
        for case in json.loads(path.read_text("utf-8")):
            ids = tokenizer(*case["texts"])["input_ids"]
            assert ids == case["ids"], (
                path,
                case,
                [row for row in zip(ids, case["ids"], strict=True) if row[0] != row[1]][:1],
            )
        print(f"{path.parent.name}: {type(tokenizer).__name__}, the same ids")
    assert paths, f"no expected.json in {root}"


if __name__ == "__main__":
    torch.manual_seed(0)
    if len(sys.argv) > 1:
        check(Path(sys.argv[1]))
    else:
        make_bart()
