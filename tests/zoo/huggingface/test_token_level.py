"""Models whose tokenizer is not wanted, or not read."""

import pytest

import zoo


def test_without_the_tokenizer_of_the_folder(copy, tmp_path):
    folder = copy("bert_masked_lm")
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n" + "".join(f"a{n}\n" for n in range(300)))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "EsmTokenizer"}')
    with pytest.raises(ValueError, match="tokenizer_class must not be 'EsmTokenizer'.*tokenizer=None"):
        zoo.MaskedLM.from_preset(folder)
    model = zoo.MaskedLM.from_preset(folder, tokenizer=None)
    assert model.tokenizer is None
    model.save_to_preset(tmp_path / "saved")
    assert zoo.MaskedLM.from_preset(tmp_path / "saved", tokenizer=None).tokenizer is None
    with pytest.raises(ValueError, match="tokenizer must be a tokenizer .* got 'vocab.txt'"):
        zoo.MaskedLM.from_preset(folder, tokenizer="vocab.txt")


def test_a_saved_model_keeps_its_tokenizer(untrained, tmp_path):
    untrained.save_to_preset(tmp_path)
    with pytest.raises(ValueError, match=r"got \['tokenizer'\] too"):
        zoo.Seq2SeqLM.from_preset(tmp_path, tokenizer=None)
