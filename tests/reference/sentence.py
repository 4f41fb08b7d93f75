"""Writes sentence/<case>/: tiny models as Sentence Transformers saves them, and what it makes of texts.

Run it where `sentence_transformers` and `transformers` are installed (made with sentence-transformers 6.2.0,
transformers 5.24.0):

    python tests/reference/sentence.py

With a folder behind it, nothing is written: the library loads the models that this one wrote to folders in it, and
gives the vectors or scores that `expected.json` next to them holds. Such folders are left by

    pytest tests/zoo/huggingface/test_sentence.py --basetemp FOLDER
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.remove(str(FOLDER))  # a file here has the name of a library

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from sentence_transformers import CrossEncoder, SentenceTransformer  # noqa: E402
from sentence_transformers.base.modules import Dense, Normalize, Transformer  # noqa: E402
from sentence_transformers.sentence_transformer.modules import Pooling  # noqa: E402
from torch import nn  # noqa: E402

WORDS = "the a red blue fox dog runs sleeps fast slow in on house river of stone find :".split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
TEXTS = ["the red fox runs", "A dog sleeps in the house", "stone", "", "the river of the blue stone runs fast " * 3]
PAIRS = [["the red fox", "a dog runs"], ["stone", "the blue stone of the river"], ["find a house", "slow"]]
LONGEST = 24
SIZES = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": LONGEST,
}
PROMPTS = {"query": "find : ", "document": ""}
# pooling, modules after it, arguments of the model, longest text
EMBEDDERS = {
    "mean": ("mean", lambda: [Normalize()], {"prompts": PROMPTS, "default_prompt_name": "query"}, 10),
    "cls": ("cls", lambda: [Dense(8, 5)], {}, LONGEST),
    "max": ("max", list, {}, LONGEST),
    "sqrt": ("mean_sqrt_len_tokens", lambda: [_linear(8, 12), _linear(12, 6), Normalize()], {}, LONGEST),
    "weighted": ("weightedmean", lambda: [Dense(8, 4, activation_function=nn.GELU())], {}, LONGEST),
    "last": ("lasttoken", lambda: [Normalize()], {}, LONGEST),
}
SCORERS = {"sigmoid": (nn.Sigmoid(), 1), "identity": (nn.Identity(), 1), "classes": (nn.Identity(), 3)}


def _linear(inputs: int, outputs: int) -> Dense:
    return Dense(inputs, outputs, bias=False, activation_function=nn.Identity())


def _base(folder: Path, model_class: type, **options: int) -> None:
    model = model_class(transformers.BertConfig(**SIZES, **options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape), alpha=0.3)
    model.save_pretrained(folder)
    vocabulary = {token: number for number, token in enumerate(VOCABULARY)}
    transformers.BertTokenizer(vocab=vocabulary).save_pretrained(folder)


def _save(model: SentenceTransformer | CrossEncoder, name: str, golden: dict) -> None:
    folder = FOLDER / "sentence" / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save(str(folder), create_model_card=False)
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


def embedder(name: str) -> None:
    pooling, modules, options, longest = EMBEDDERS[name]
    with tempfile.TemporaryDirectory() as folder:
        _base(Path(folder), transformers.BertModel)
        transformer = Transformer(folder, processor_kwargs={"model_max_length": longest})
        model = SentenceTransformer(modules=[transformer, Pooling(8, pooling), *modules()], device="cpu", **options)
    golden = {"texts": TEXTS, "vectors": model.encode(TEXTS).tolist()}
    if options:
        golden["documents"] = model.encode(TEXTS, prompt_name="document").tolist()
    _save(model, name, golden)


def scorer(name: str) -> None:
    activation, labels = SCORERS[name]
    with tempfile.TemporaryDirectory() as folder:
        _base(Path(folder), transformers.BertForSequenceClassification, num_labels=labels)
        model = CrossEncoder(folder, activation_fn=activation, device="cpu")
    _save(model, name, {"pairs": PAIRS, "scores": model.predict(PAIRS).tolist()})


def check(folder: Path) -> None:
    for file in sorted(folder.rglob("expected.json")):
        expected, written = json.loads(file.read_text()), str(file.parent / "model")
        if "pairs" in expected:
            model = CrossEncoder(written, device="cpu")
            got, wanted = model.predict(expected["pairs"]), expected["scores"]
        else:
            model = SentenceTransformer(written, device="cpu")
            got, wanted = model.encode(expected["texts"]), expected["vectors"]
            if "documents" in expected:
                got = np.concatenate([got, model.encode(expected["texts"], prompt_name="document")])
                wanted = wanted + expected["documents"]
        print(file.parent.name, np.abs(got - np.array(wanted)).max())
        np.testing.assert_allclose(got, np.array(wanted), rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        check(Path(sys.argv[1]))
    else:
        torch.manual_seed(0)
        for case in EMBEDDERS:
            embedder(case)
        for case in SCORERS:
            scorer(case)
