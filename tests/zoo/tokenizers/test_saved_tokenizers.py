"""Tokenizers as the classes of the Transformers library save them: see tests/reference/tokenizers.py."""

import json
from pathlib import Path

import pytest

from zoo.preprocessing import CausalLMPreprocessor, TextClassifierPreprocessor, TextEmbedderPreprocessor
from zoo.tokenizers import Tokenizer, load_huggingface

REFERENCE = Path(__file__).parents[2] / "reference" / "tokenizers"
CASES = sorted(path.parent.name for path in REFERENCE.glob("*/golden.json") if path.parent.name != "bart")


def golden_of(case):
    return json.loads((REFERENCE / case / "golden.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES)
def test_ids(case):
    golden, tokenizer = golden_of(case), load_huggingface(REFERENCE / case)
    for text, one, other in zip(
        golden["texts"], tokenizer.tokenize(golden["texts"]).to_list(), golden["plain"], strict=True
    ):
        assert one == other, repr(text)


def test_several_tokens_on_one_side_are_named():
    with pytest.warns(UserWarning, match=r"post_processor puts \[\] before and \['</s>', 'en_XX'\] .* \['en_XX'\]"):
        load_huggingface(REFERENCE / "mbart")


@pytest.mark.parametrize("case", [case for case in CASES if case != "mbart"])  # two tokens behind a text
def test_tokens_around_a_text_are_a_fact(case, tmp_path):
    golden, tokenizer = golden_of(case), load_huggingface(REFERENCE / case)
    tokenizer.save(tmp_path)
    texts = golden["texts"]
    for each in (tokenizer, Tokenizer.load(tmp_path)):
        for kind in (TextClassifierPreprocessor, TextEmbedderPreprocessor):
            options = {"labels": 2} if kind is TextClassifierPreprocessor else {}
            special = kind(each, **options).special_tokens()
            start, end = ([] if index is None else [index] for index in (special["start_id"], special["end_id"]))
            assert [start + row + end for row in golden["plain"]] == golden["ids"]
    if case in ("gpt2", "gpt2_start", "opt", "qwen2"):
        prompts = CausalLMPreprocessor(tokenizer).text_ids(texts, end=False).to_list()
        assert prompts == golden["ids"]
        assert (prompts[4] != []) is (case in ("gpt2_start", "opt"))


def test_offsets_of_a_space_that_is_put_before_a_word():
    """The space of a token, or a token of it alone, is not that of the text: it is the word's first character."""
    golden = golden_of("xlm_roberta")
    ids, *places = load_huggingface(REFERENCE / "xlm_roberta").tokenize_with_offsets(golden["texts"])
    assert ids.to_list() == golden["plain"]
    rows = zip(*(part.to_list() for part in places), strict=True)
    assert [[[*each] for each in zip(*row, strict=True)] for row in rows] == golden["offsets"]
