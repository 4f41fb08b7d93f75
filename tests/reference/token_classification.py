"""Writes token_classification/: tiny taggers, and the entities that Transformers finds in texts of many scripts.

Run it where `transformers` and `tokenizers` are installed (xlm-roberta made with transformers 5.24.0, the others with
5.23.0; tokenizers 0.23.3):

    python tests/reference/token_classification.py

Cases whose folder is there stay as they are.
"""

import json
import sys
import warnings
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.remove(str(FOLDER))  # a file here has the name of a library

import tokenizers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
STRATEGIES = ["none", "simple", "first", "average", "max"]
TEXTS = [
    "我住在北京。他去上海！",
    "ฉันอยู่ที่กรุงเทพ",
    "Ada Lovelace lives in London, near the U.S. embassy's gardens.",
    "Мама мыла раму в Москве",
    "नमस्ते दुनिया, مرحبا بالعالم",
    "  Otto met unaffordable 東京タワー in Lovelace-gardens ",
]
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 130,
    "id2label": dict(enumerate(LABELS)),
    "label2id": {label: number for number, label in enumerate(LABELS)},
}


def wordpiece() -> tuple:
    library = tokenizers.BertWordPieceTokenizer(lowercase=False)
    library.train_from_iterator(TEXTS, vocab_size=140, min_frequency=1, show_progress=False)
    # a character that the tokenizer does not know
    vocabulary = [token for token in sorted(library.get_vocab(), key=library.get_vocab().get) if "\u6d77" not in token]
    vocabulary = {token: number for number, token in enumerate(vocabulary)}
    return transformers.BertTokenizer(vocab=vocabulary, do_lower_case=False), "BertForTokenClassification", "BertConfig"


def byte_level() -> tuple:
    library = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    library.train_from_iterator(TEXTS, vocab_size=300, special_tokens=special, show_progress=False)
    content = json.loads(library.to_str())["model"]
    merges = [tuple(pair) for pair in content["merges"]]
    tokenizer = transformers.RobertaTokenizer(vocab=content["vocab"], merges=merges)
    return tokenizer, "RobertaForTokenClassification", "RobertaConfig"


def unigram() -> tuple:
    trainer = tokenizers.trainers.UnigramTrainer(vocab_size=150, show_progress=False, unk_token="<unk>")
    library = tokenizers.Tokenizer(tokenizers.models.Unigram())
    library.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    # as whole texts without spaces, of which no beginning is a token with the space before it
    library.train_from_iterator([*TEXTS, *(word for text in TEXTS for word in text)] * 8, trainer)
    learned = [tuple(entry) for entry in json.loads(library.to_str())["model"]["vocab"]]
    learned = [entry for entry in learned if entry[0] != "<unk>" and "\u6d77" not in entry[0]]
    first, last = ([(token, 0.0) for token in part] for part in (["<s>", "<pad>", "</s>", "<unk>"], ["<mask>"]))
    tokenizer = transformers.XLMRobertaTokenizer(vocab=[*first, *learned, *last])
    return tokenizer, "XLMRobertaForTokenClassification", "XLMRobertaConfig"


def write(name: str, tokenizer: transformers.PreTrainedTokenizerBase, model_class: str, config_class: str) -> None:
    options = {"pad_token_id": tokenizer.pad_token_id, "vocab_size": len(tokenizer)}
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**SIZES, **options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape), alpha=0.5)
        # all labels occur
        logits = [model(**tokenizer(text, return_tensors="pt"))["logits"][0] for text in TEXTS]
        model.classifier.bias.sub_(torch.cat(logits).mean(0))
    folder = FOLDER / "token_classification" / name
    if folder.exists():
        return
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    tokenizer.model_max_length = 128
    tagger = transformers.pipeline("token-classification", model=model, tokenizer=tokenizer, device="cpu")
    golden = {"texts": TEXTS, "entities": {}}
    for strategy in STRATEGIES:
        golden["entities"][strategy] = [
            [
                [
                    each.get("entity_group", each.get("entity")),
                    each["start"],
                    each["end"],
                    round(float(each["score"]), 6),
                ]
                for each in tagger(text, aggregation_strategy=strategy)
            ]
            for text in TEXTS
        ]
        print(name, strategy, sum(map(len, golden["entities"][strategy])))
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    write("bert", *wordpiece())
    write("roberta", *byte_level())
    write("xlm-roberta", *unigram())
