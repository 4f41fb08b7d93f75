"""Writes tokenizers/<case>/: tiny tokenizers in the files of the Transformers library, and what it makes of texts.

`bart` is as the published tokenizers of BART are. The others are as classes of that library save theirs, with
`golden.json`: texts, their ids, and those without the tokens around a text.

Run it where `transformers` and `tokenizers` are installed (bart made with transformers 5.23.0, the others with 5.24.0;
tokenizers 0.23.3):

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


SENTENCES = [
    "the dog runs over the grass.",
    "an old woman looks at a red ball!",
    "der B\u00e4cker l\u00e4uft \u00fcber die Stra\u00dfe 12",
    'The "child" sits near 7 Houses',
]
ODD = [
    *SENTENCES,
    "",
    " ",
    "a\nb\tc  d ",
    "  two  spaces\r\n",
    "trailing space ",
    "\u00a0no-break\u3000wide",
    "The \u00c4PFEL e\u0301 ``quoted'' \ufb01",
    "\u2581mark\u2581",
    "\u4f60\u597d \U0001f642",
]


def unigram_vocabulary(first: list[str], last: list[str]) -> list[tuple[str, float]]:
    trainer = tokenizers.trainers.UnigramTrainer(vocab_size=120, show_progress=False, unk_token="<unk>")
    library = tokenizers.Tokenizer(tokenizers.models.Unigram())
    library.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    library.train_from_iterator([*SENTENCES, *(text.lower() for text in SENTENCES)] * 8, trainer)
    learned = [tuple(entry) for entry in json.loads(library.to_str())["model"]["vocab"]]
    learned = [entry for entry in learned if entry[0] != "<unk>"]
    return [*((token, 0.0) for token in first), *learned, *((token, 0.0) for token in last)]


def byte_level(special: list[str]) -> dict:
    library = tokenizers.ByteLevelBPETokenizer()
    library.train_from_iterator(SENTENCES * 4, vocab_size=300, special_tokens=special, show_progress=False)
    model = json.loads(library.to_str())["model"]
    return {"vocab": model["vocab"], "merges": [tuple(pair) for pair in model["merges"]]}


def make_saved() -> None:
    usual = ["<s>", "<pad>", "</s>", "<unk>"]
    bert = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    codes = transformers.models.mbart.tokenization_mbart.FAIRSEQ_LANGUAGE_CODES
    gpt2 = byte_level(["<|endoftext|>"])
    opt = byte_level(["<s>", "<pad>", "</s>", "<unk>"])
    roles = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
    deberta = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made = {
        "albert": transformers.AlbertTokenizer(vocab=unigram_vocabulary(bert, [])),
        "albert_cased": transformers.AlbertTokenizer(
            vocab=unigram_vocabulary(bert, []), do_lower_case=False, keep_accents=True
        ),
        "deberta": transformers.DebertaV2Tokenizer(vocab=unigram_vocabulary(deberta, [])),
        "deberta_lower": transformers.DebertaV2Tokenizer(vocab=unigram_vocabulary(deberta, []), do_lower_case=True),
        "mbart": transformers.MBartTokenizer(vocab=unigram_vocabulary(usual, [*codes, "<mask>"])),
        "pegasus": transformers.PegasusTokenizer(
            vocab=unigram_vocabulary(["<pad>", "</s>", "<unk>", "<mask_1>", "<mask_2>"], []), offset=4
        ),
        "xlm_roberta": transformers.XLMRobertaTokenizer(vocab=unigram_vocabulary(usual, ["<mask>"])),
        "t5": transformers.T5Tokenizer(vocab=unigram_vocabulary(["<pad>", "</s>", "<unk>"], []), extra_ids=2),
        "gpt2": transformers.GPT2Tokenizer(**gpt2),
        "gpt2_start": transformers.GPT2Tokenizer(**gpt2, add_bos_token=True),
        "opt": transformers.GPT2Tokenizer(**opt, **roles, add_bos_token=True),
        "qwen2": transformers.Qwen2Tokenizer(**gpt2),
    }
    for name, tokenizer in made.items():
        folder = FOLDER / "tokenizers" / name
        tokenizer.save_pretrained(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        golden = {
            "texts": ODD,
            "ids": tokenizer(ODD)["input_ids"],
            "plain": tokenizer(ODD, add_special_tokens=False)["input_ids"],
        }
        if name == "xlm_roberta":
            golden["offsets"] = tokenizer(ODD, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        (folder / "golden.json").write_text(json.dumps(golden) + "\n")


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
        make_saved()
