"""What the model does not see of texts that are cut, and what it sees of windows."""

from types import SimpleNamespace

import numpy as np
import pytest

from recipes import tag
from recipes.common.batching import ExampleBatches
from recipes.common.data.tagged_words import TaggedWords
from recipes.common.evaluation.evaluation import Evaluation
from recipes.common.training.encoder_recipe import print_cut
from recipes.common.training.windowed import count_cut, seen_words
from zoo.preprocessing import TextClassifierPreprocessor, TokenClassifierPreprocessor

LABELS = ["B-N", "O"]


@pytest.fixture(scope="module")
def lengths(tiny_tokenizer):
    """The length that three words take."""
    return {
        "sequence_length": int(TextClassifierPreprocessor(tiny_tokenizer, labels=2).lengths(["alpha beta iota"])[0])
    }


def test_words_that_are_cut_off(tiny_tokenizer, lengths, capsys):
    rows = [["alpha"] * 5, ["beta"], ["iota", "\x01", "beta", "gamma", "kappa"]]
    cut = TokenClassifierPreprocessor(tiny_tokenizer, labels=LABELS, truncate=True, **lengths)
    seen = seen_words(cut, rows)
    assert seen[:6].tolist() == [True] * 3 + [False] * 2 + [True] and not seen[7] and not seen[-1]
    whole = TokenClassifierPreprocessor(tiny_tokenizer, labels=LABELS, stride=1, **lengths)
    assert seen_words(whole, rows).tolist() == [True] * 7 + [False] + [True] * 3
    batches = ExampleBatches(cut, rows[:2], [["O"] * 5, ["O"]], batch_size=2)
    assert (batches.number_cut, batches.number_of_rows) == (1, 2)
    assert ExampleBatches(whole, rows[:2], [["O"] * 5, ["O"]], batch_size=2).number_cut == 0
    print_cut("training", 1, 2, "examples", cut)
    print_cut("validation", 0, 2, "examples", cut)
    said = f"training: 1 of 2 examples (50.0%) are cut at {cut.sequence_length} tokens; model.stride reads long texts"
    assert capsys.readouterr().out.startswith(said)


def test_texts_that_are_cut(tiny_tokenizer, lengths, capsys):
    texts = ["alpha beta", "alpha beta iota kappa"]
    cut = TextClassifierPreprocessor(tiny_tokenizer, labels=2, truncate=True, **lengths)
    assert count_cut("test", cut, texts) == 1 and "test: 1 of 2 examples" in capsys.readouterr().out
    pairs = cut.replace(pairs=True)
    assert count_cut("test", pairs, (texts, texts)) == 2 and "stride" not in capsys.readouterr().out
    assert count_cut("test", cut.replace(truncate=False, stride=1), texts) == 0


def test_errors_at_words_that_are_not_seen_are_not_sure(monkeypatch):
    listed = []
    monkeypatch.setattr(tag, "write_errors", lambda run, columns, rows: listed.extend(rows))
    rows = [TaggedWords(["a", "b"], ["B-N", "B-N"], "x:1"), TaggedWords(["c"], ["B-N"], "x:4")]
    values = [np.array([[0.4, 0.6], [0.0, 1.0]]), np.array([[0.9, 0.1]])]
    evaluation = Evaluation([], [["O", "O"], ["B-N"]], predictions=values)
    tag.list_errors(None, SimpleNamespace(labels=LABELS), rows, evaluation, np.array([True, False, True]))
    assert [row[0] for row in listed] == [0.6, 0.0]
