"""Files that this library writes for Transformers, against the `tokenizers` library that reads them."""

import json

import pytest
import tokenizers

from zoo.tokenizers import ByteLevelBPETokenizer, SentencePieceTokenizer, load_huggingface, save_huggingface


def library_of(directory):
    library = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    library.encode_special_tokens = True  # so that text which spells a special token stays text, as ours
    return library


def ids_of(library, texts):
    return [encoding.ids for encoding in library.encode_batch(texts, add_special_tokens=False)]


def assert_same_settings(loaded, tokenizer):
    # a special token with a role is listed once or twice; files say what is put around a text
    facts = {"adds_start": loaded.adds_start, "adds_end": loaded.adds_end}
    assert None not in facts.values()
    settings = [{**one.get_config(), "special_tokens": one.special_tokens, **facts} for one in (loaded, tokenizer)]
    assert settings[0] == settings[1]


BYTE_LEVEL = {
    "gpt2": {},
    "roberta": {"add_prefix_space": True, "strip_left": ["<|im_start|>"]},
    "llama3": {"split": "llama3", "whole_words_first": True},
    "qwen2": {"split": "qwen2", "normalization": "NFC"},
    "gpt4o": {"split": "gpt4o"},
    "smollm": {"split": ("digits", "gpt2")},
}


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_byte_level_bpe(byte_level, odd_texts, tmp_path, name):
    config = {key: value for key, value in byte_level.get_config().items() if key != "files"}
    config |= {**BYTE_LEVEL[name], "special_tokens": ["<|im_start|>"], "added_tokens": ["<|im_end|>"]}
    tokenizer = ByteLevelBPETokenizer(byte_level.get_vocabulary(), byte_level.merges, **config)
    save_huggingface(tokenizer, tmp_path, max_length=77)
    texts = [*odd_texts, "two<|im_end|> three"]
    expected = tokenizer.tokenize(texts).to_list()
    library = library_of(tmp_path)
    assert ids_of(library, texts) == expected
    loaded = load_huggingface(tmp_path)
    assert loaded.tokenize(texts).to_list() == expected
    assert_same_settings(loaded, tokenizer)
    # special tokens that a text spells, with the white space that they swallow
    spelled = ["a <|im_start|> dog<|endoftext|>"]
    library.encode_special_tokens = False
    assert ids_of(library, spelled) == loaded.tokenize(spelled, special_tokens=True).to_list()
    assert library.decode_batch(expected[:200]) == [
        text.decode() for text in tokenizer.detokenize(expected[:200]).numpy()
    ]
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 77 and settings["eos_token"] == "<|endoftext|>"


def test_wordpiece(wordpiece, odd_texts, tmp_path):
    save_huggingface(wordpiece, tmp_path, before=["[CLS]"], after=["[SEP]"])
    expected = wordpiece.tokenize(odd_texts).to_list()
    library = library_of(tmp_path)
    assert ids_of(library, odd_texts) == expected
    loaded = load_huggingface(tmp_path)
    assert loaded.tokenize(odd_texts).to_list() == expected
    assert_same_settings(loaded, wordpiece)
    pair = library.encode("the dog", "two men")
    first, second = wordpiece.tokenize(["the dog", "two men"]).to_list()
    start, end = wordpiece.start_id, wordpiece.end_id
    assert pair.ids == [start, *first, end, *second, end]
    assert pair.type_ids == [0] * (len(first) + 2) + [1] * (len(second) + 1)


def test_two_separators_and_roles(byte_level, tmp_path):
    tokenizer = ByteLevelBPETokenizer(
        byte_level.get_vocabulary(),
        byte_level.merges,
        start_token="<|im_start|>",
        end_token="<|im_end|>",
        special_tokens=["<|endoftext|>"],
    )
    save_huggingface(tokenizer, tmp_path, before=["<|im_start|>"], after=["<|im_end|>"], pair_separators=2)
    library = library_of(tmp_path)
    first, second = tokenizer.tokenize(["the dog", "two men"]).to_list()
    start, end = tokenizer.start_id, tokenizer.end_id
    assert library.encode("the dog", "two men").ids == [start, *first, end, end, *second, end]
    loaded = load_huggingface(tmp_path)
    assert (loaded.start_id, loaded.end_id, loaded.pad_id) == (start, end, None)
    # a start token that stands before no text is none
    save_huggingface(tokenizer, tmp_path, after=["<|im_end|>"])
    assert (load_huggingface(tmp_path).start_id, load_huggingface(tmp_path).end_id) == (None, end)


@pytest.mark.parametrize("keeps_spaces", [True, False])
def test_unigram(trained, sentences, odd_texts, tmp_path, keeps_spaces):
    tokenizer = trained["unigram"]
    if keeps_spaces:
        tokenizer = SentencePieceTokenizer.train(
            sentences, 330, byte_fallback=True, normalization="identity", remove_extra_whitespaces=False
        )
    save_huggingface(tokenizer, tmp_path, before=["<sos>"], after=["<eos>"])
    some = [*sentences, "  a dog  ", "", "   ", "two\tmen ", "a\n  dog"]
    expected = tokenizer.tokenize(some).to_list()
    library = library_of(tmp_path)
    assert ids_of(library, some) == expected
    loaded = load_huggingface(tmp_path)
    # a token that is user-defined swallows no space in SentencePiece; the library's normalization differs in more
    usual = [text for text in odd_texts if "<mask>" not in text]
    assert loaded.tokenize(usual).to_list() == tokenizer.tokenize(usual).to_list()
    assert (loaded.start_id, loaded.end_id, loaded.pad_id, loaded.unknown_id) == (1, 2, 0, 3)
    assert library.encode("the dog").ids == [1, *tokenizer.tokenize("the dog").numpy().tolist(), 2]
    assert library.decode(expected[0]) == tokenizer.detokenize(expected[0]).numpy().decode()
    if keeps_spaces:
        assert ids_of(library, usual) == loaded.tokenize(usual).to_list()


def test_bpe_with_bytes(trained, odd_texts, tmp_path):
    tokenizer = trained["bytes"]
    save_huggingface(tokenizer, tmp_path, before=["<sos>"])
    expected = tokenizer.tokenize(odd_texts).to_list()
    assert ids_of(library_of(tmp_path), odd_texts) == expected
    loaded = load_huggingface(tmp_path)
    assert loaded.tokenize(odd_texts).to_list() == expected
    assert (loaded.start_id, loaded.end_id) == (1, 2)
    assert (tmp_path / "tokenizer.model").read_bytes() == tokenizer.proto


def test_a_model_that_has_no_equal(trained, odd_texts, tmp_path):
    with pytest.warns(UserWarning, match="has no equal in a tokenizer.json"):
        save_huggingface(trained["bpe"], tmp_path)
    assert not (tmp_path / "tokenizer.json").exists()
    assert load_huggingface(tmp_path).tokenize(odd_texts).to_list() == trained["bpe"].tokenize(odd_texts).to_list()


def test_what_the_library_can_not_do(byte_level, tmp_path):
    config = {key: value for key, value in byte_level.get_config().items() if key != "files"}
    config |= {"split": ["llama3"], "add_prefix_space": True}
    tokenizer = ByteLevelBPETokenizer(byte_level.get_vocabulary(), byte_level.merges, **config)
    with pytest.raises(ValueError, match=r"add_prefix_space=True with split=\['llama3'\] can't be written"):
        save_huggingface(tokenizer, tmp_path / "new")
    assert not (tmp_path / "new").exists()
