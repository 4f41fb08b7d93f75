"""Vocabularies in files of other forms than `tokenizer.json`: the same ids as the tokenizers that Transformers saved.

The models are those of `tests/reference/tokenizers`, whose golden ids Transformers gave; see its script.
"""

import json
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")

from zoo.tokenizers import load_huggingface  # noqa: E402

REFERENCE = Path(__file__).parents[2] / "reference" / "tokenizers"


def reference(case):
    folder = REFERENCE / case
    content, golden = (json.loads((folder / name).read_text("utf-8")) for name in ("tokenizer.json", "golden.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    return content, golden, config


def sentencepiece_file(content, path):
    """Writes a Unigram model as SentencePiece stores one."""
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()
    special = {token["content"] for token in content["added_tokens"]}
    kinds = model.SentencePiece
    for index, (piece, score) in enumerate(content["model"]["vocab"]):
        is_unknown = index == content["model"]["unk_id"]
        kind = kinds.UNKNOWN if is_unknown else kinds.CONTROL if piece in special else kinds.NORMAL
        model.pieces.add(piece=piece, score=score, type=kind)
    model.trainer_spec.model_type = model.trainer_spec.UNIGRAM
    model.trainer_spec.unk_piece = content["model"]["vocab"][content["model"]["unk_id"]][0]
    model.normalizer_spec.name = "identity"
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("case", "file", "config"),
    [
        ("albert", "spiece.model", {"tokenizer_class": "AlbertTokenizer", "do_lower_case": True}),
        ("albert_cased", "spiece.model", {"do_lower_case": False, "keep_accents": True}),
        ("deberta", "spm.model", {"tokenizer_class": "DebertaV2Tokenizer", "do_lower_case": False}),
        ("deberta_lower", "spm.model", {"tokenizer_class": "DebertaV2Tokenizer", "do_lower_case": True}),
    ],
)
def test_sentencepiece_models(case, file, config, tmp_path):
    content, golden, saved = reference(case)
    sentencepiece_file(content, tmp_path / file)
    config = {"tokenizer_class": "AlbertTokenizer", **config}
    roles = {name: value for name, value in saved.items() if name.endswith("_token")}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**roles, **config}))
    tokenizer = load_huggingface(tmp_path)
    # what becomes of other white space, and of accents that stand alone in DeBERTa, is a matter of the normalizer of a
    # model file, and not of its pieces
    odd = "\n\t\r\u00a0\u3000\u2581" + "\u0301" * case.startswith("deberta")
    rows = [
        row
        for row in zip(*(golden[key] for key in ("texts", "plain", "ids")), strict=True)
        if not set(row[0]) & set(odd)
    ]
    assert len(rows) > 6
    for text, plain, ids in rows:
        assert tokenizer.tokenize([text]).to_list() == [plain], text
        assert [tokenizer.start_id, *plain, tokenizer.end_id] == ids


def test_vocabulary_and_merges_of_opt(tmp_path):
    content, golden, _ = reference("opt")
    (tmp_path / "vocab.json").write_text(json.dumps(content["model"]["vocab"]))
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in content["model"]["merges"]]
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n", "utf-8")
    # as the published ones say it
    roles = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
    entry = {"__type": "AddedToken", "normalized": True, "lstrip": False, "rstrip": False, "single_word": False}
    roles = {name: token if name == "pad_token" else {**entry, "content": token} for name, token in roles.items()}
    config = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "add_prefix_space": False, "errors": "replace"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, **roles}))
    tokenizer = load_huggingface(tmp_path)
    assert tokenizer.tokenize(golden["texts"]).to_list() == golden["plain"]
    assert (tokenizer.adds_start, tokenizer.adds_end) == (True, False)
    assert [[tokenizer.start_id, *row] for row in golden["plain"]] == golden["ids"]
