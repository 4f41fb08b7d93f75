"""Small files that ask for much, or hold what no reader expects: a short error that names file and key, at once."""

import json
import time

import pytest
from safetensors.numpy import load_file, save_file

from zoo import TextClassifier
from zoo.config import (
    AttentionConfig,
    EmbeddingConfig,
    FeedForwardConfig,
    PositionConfig,
    RecurrentConfig,
    TransformerConfig,
    minimum_weight_counts,
    require_weights,
)
from zoo.config.checks import ChoiceError
from zoo.config.names import renamed, renamed_in_errors
from zoo.huggingface import is_huggingface, load_backbone, load_task
from zoo.tokenizers import load_huggingface


@pytest.fixture(autouse=True)
def soon():
    """What is refused is refused before anything is built."""
    start = time.process_time()
    yield
    assert time.process_time() - start < 5


LAYERS, WIDTH = "num_hidden_layers must be an integer of at least 1", "hidden_size must be an integer of at least 1"
POSITIONS = "max_position_embeddings must be an integer from 1 to 16777216, got"


@pytest.mark.parametrize(
    ("case", "changes", "message"),
    [
        ("bert_base", {"num_hidden_layers": 10**7}, f"{LAYERS}, got 10000000; model.safetensors has room for"),
        ("llama", {"num_hidden_layers": 10**7}, f"{LAYERS}, got 10000000"),
        ("t5", {"num_decoder_layers": 10**7}, "num_decoder_layers must be an integer of at least 1 or null, got 100"),
        ("gpt2", {"n_layer": 10**7}, "n_layer must be an integer of at least 1, got 10000000"),
        ("bert_base", {"hidden_size": 10**9}, f"{WIDTH}, got 1000000000; model.safetensors has room for"),
        ("gemma2", {"hidden_size": 10**9}, f"{WIDTH}, got 1000000000"),
        ("bert_base", {"max_position_embeddings": 10**9}, f"{POSITIONS} 1000000000"),
        (
            "bert_base",
            {"max_position_embeddings": 10**7},
            r"\n  embeddings.position_embeddings.weight has shape \(24, 16\) in model.safetensors, the model needs "
            r"\(10000000, 16\): max_position_embeddings is 10000000",
        ),
        ("llama", {"max_position_embeddings": 10**9}, f"{POSITIONS} 1000000000"),
        ("gpt2", {"n_positions": 10**9}, "n_positions must be an integer from 1 to 16777216, got 1000000000"),
        ("bert_base", {"vocab_size": 10**9}, "vocab_size must be an integer of at least 1, got 1000000000"),
        ("bert_base", {"intermediate_size": 10**9}, "intermediate_size must be an integer of at least 1, got 10"),
        ("bert_base", {"type_vocab_size": 10**9}, "type_vocab_size must be an integer of at least 0, got 1000000000"),
        ("t5", {"relative_attention_num_buckets": 10**9}, "relative_attention_num_buckets must be an integer of"),
        ("llama", {"head_dim": 10**9}, "head_dim must be an integer of at least 1 or null, got 1000000000"),
        ("llama", {"num_key_value_heads": 10**9}, "num_key_value_heads must be an integer of at least 1 or null, got"),
        ("bert_base", {"num_attention_heads": 0}, "num_attention_heads must be an integer of at least 1, got 0"),
        ("llama", {"num_key_value_heads": 0}, "num_key_value_heads must be an integer of at least 1 or null, got 0"),
        ("gpt2", {"n_head": 0}, "n_head must be an integer of at least 1, got 0"),
        ("t5", {"num_heads": 0}, "num_heads must be an integer of at least 1, got 0"),
        ("bert_base", {"hidden_size": 0}, f"{WIDTH}, got 0"),
        ("bert_base", {"hidden_size": "16"}, f"{WIDTH}, got '16'"),
        ("bert_base", {"hidden_size": 16.0}, f"{WIDTH}, got 16.0"),
        ("bert_base", {"hidden_size": True}, f"{WIDTH}, got True"),
        ("bert_base", {"hidden_size": [16]}, rf"{WIDTH}, got \[16\]"),
        ("bert_base", {"hidden_dropout_prob": 1.0}, "hidden_dropout_prob must be a number from 0 to below 1, got 1.0"),
        ("llama", {"rope_scaling": []}, r"rope_scaling must be an object or null, got \[\]"),
        ("llama", {"rope_scaling": "linear"}, "rope_scaling must be an object or null, got 'linear'"),
        ("llama", {"rope_scaling": {"type": []}}, r"rope_scaling.type must be a text, got \[\]"),
        ("llama", {"rope_scaling": {"rope_type": 7}}, "rope_scaling.rope_type must be a text, got 7"),
        (
            "llama",
            {"rope_scaling": {"type": "linear", "rope_type": "yarn"}},
            "rope_scaling.rope_type and rope_scaling.type must be the same, got ",
        ),
        ("bert_base", {"rope_theta": "x" * 500}, r"has keys that are not known here: rope_theta='x+\.\.\."),
        ("llama", {"rope_scaling": {"type": "linear", "factor": "2"}}, "rope_scaling.factor must be a number"),
        (
            "llama",
            {"rope_scaling": {"type": "linear", "factor": 0}},
            "rope_scaling.factor must be a number of at least 1, .* got 0",
        ),
        (
            "llama",
            {"rope_scaling": {"type": "dynamic", "factor": -1.0}},
            "rope_scaling.factor must be a number of .*, got -1.0",
        ),
        (
            "llama",
            {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 0}},
            "rope_scaling.original_max_position_embeddings must be an integer of at least 1, got 0",
        ),
        (
            "llama",
            {"rope_scaling": {"type": "dynamic", "factor": 2.0}, "max_position_embeddings": 1},
            "max_position_embeddings must be a number of positions, at least 2, with rope_scaling.type='dynamic'",
        ),
        ("llama", {"rope_parameters": {"rope_theta": 0}}, "rope_parameters.rope_theta must be above 0, got 0"),
        ("llama", {"num_key_value_heads": 3}, "num_key_value_heads must be None or a divisor of num_attention_heads=4"),
        ("t5", {"relative_attention_max_distance": 2}, "relative_attention_max_distance must be larger than 2, "),
        ("modernbert_masked_lm", {"num_attention_heads": 5}, "num_attention_heads must be a divisor of hidden_size="),
        ("gpt2", {"n_head": 5}, "n_head must be a divisor of n_embd=16"),
        ("bart", {"encoder_attention_heads": 5, "decoder_attention_heads": 5}, "encoder_attention_heads must be a div"),
        ("distilbert_classifier", {"n_heads": 5}, "n_heads must be a divisor of dim=16"),
        ("roberta_classifier", {"max_position_embeddings": 1}, "max_position_embeddings must be above 2, .*, got 1"),
        (
            "modernbert_masked_lm",
            {"rope_parameters": {"full_attention": {"rope_theta": 0}}},
            "rope_parameters.full_attention.rope_theta must be above 0, got 0",
        ),
        (
            "llama",
            {"rope_scaling": {"rope_type": "longrope", "short_factor": ["a"], "long_factor": {"a": 1}}},
            r"rope_scaling.short_factor\[0\] must be a number, got 'a'",
        ),
    ],
)
def test_configurations(copy, case, changes, message):
    if "rope_scaling" in changes:
        changes = {"rope_parameters": None, **changes}
    with pytest.raises(ValueError, match=f"config.json: .*{message}") as caught:
        load_backbone(copy(case, **changes))
    assert len(str(caught.value)) < 1000


def test_a_width_that_the_file_does_not_have(copy):
    with pytest.raises(ValueError, match="config.json: The weights do not fit the configuration:") as caught:
        load_backbone(copy("bert_base", hidden_size=65536, intermediate_size=65536))
    needed = "has shape (48, 16) in model.safetensors, the model needs (48, 65536): hidden_size is 65536"
    assert f"embeddings.word_embeddings.weight {needed} or intermediate_size is 65536" in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({str(number): f"L{number}" for number in range(100_000)}, "id2label must name fewer labels, got 100000 where"),
        ({"1000000000": "x"}, "id2label must number the labels from 0 on, got {'1000000000': 'x'}"),
        ({"0": [5], "1": "x"}, r"id2label must be an object of texts or numbers or null, got {'0': \[5"),
        (["a", "b"], r"id2label must be an object of texts or numbers or null, got \['a', 'b'\]"),
        ({"a": "x"}, "id2label must number the labels from 0 on, got {'a': 'x'}"),
        ({"0": "x" * 300_000, "a": "y"}, "id2label must number the labels from 0 on, got {'0': 'xxx"),
    ],
    ids=["many", "billion", "number", "list", "text", "long"],
)
def test_labels(copy, labels, message):
    with pytest.raises(ValueError, match=f"config.json: .*{message}") as caught:
        load_task(TextClassifier, copy("bert_classifier", id2label=labels))
    assert len(str(caught.value)) < 1000


def test_more_values_than_any_configuration_has(copy):
    folder = copy("bert_classifier", id2label={str(number): f"L{number}" for number in range(300_000)})
    assert not is_huggingface(folder)
    for load in (load_backbone, TextClassifier.from_preset):
        with pytest.raises(
            ValueError, match=r"config.json must hold at most 200000 values .* at byte \d+, after the key"
        ):
            load(folder)


def test_a_tokenizer_larger_than_the_backbone(copy, wordpiece):
    folder = copy("bert_classifier", vocab_size=3)
    (folder / "tokenizer.json").write_text(json.dumps(wordpiece))
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["bert.embeddings.word_embeddings.weight"] = tensors["bert.embeddings.word_embeddings.weight"][:3].copy()
    save_file(tensors, path)
    with pytest.raises(
        ValueError, match=r"config.json: vocab_size must be at least 5, the number of tokens in .*tokenizer.json, got 3"
    ):
        TextClassifier.from_preset(folder)


def test_names_of_files_are_in_their_words():
    names = {"hidden_dim": "dim", "feed_forward.intermediate_dim": "hidden_dim", "max_length": "n_positions"}
    text = "backbone.max_length must be 3; hidden_dim=2, the intermediate_dim and my.hidden_dim=2, 'max_length must be'"
    expected = "n_positions must be 3; dim=2, the intermediate_dim and my.hidden_dim=2, 'n_positions must be'"
    assert renamed(text, names) == expected
    assert renamed("feed_forward.intermediate_dim is 3.", names) == "hidden_dim is 3."
    assert renamed(text, {}) == text
    with pytest.raises(ValueError, match="^hidden_dim must be above 0, got -1"), renamed_in_errors(names):
        FeedForwardConfig(-1)
    with pytest.raises(ValueError, match="^hidden_dim=3 is not ours"), renamed_in_errors(names, ChoiceError):
        raise ValueError("hidden_dim=3 is not ours")


def transformer(architecture="encoder", **options):
    return TransformerConfig(architecture, **{"vocabulary_size": 100, "hidden_dim": 8, "num_layers": 2, **options})


@pytest.mark.parametrize(
    ("config", "choice", "least"),
    [
        (transformer(), "vocabulary_size=100", 800),
        (transformer(vocabulary_size=10**9), "vocabulary_size=1000000000", 8 * 10**9),
        # four projections of 8 by 8 in each layer
        (transformer(attention=AttentionConfig(2)), "num_layers=2 of hidden_dim=8 with 2 heads of 4", 2 * 4 * 64),
        (
            transformer("encoder_decoder", num_layers=10**7, num_decoder_layers=3, attention=AttentionConfig(2)),
            "num_layers=10000000 and num_decoder_layers=3 of hidden_dim=8 with 2 heads of 4",
            10_000_003 * 4 * 64,
        ),
        (
            transformer(feed_forward=FeedForwardConfig(10**9, gated=True, num_experts=3)),
            "feed_forward.intermediate_dim=1000000000",
            2 * 3 * 3 * 8 * 10**9,
        ),
        (transformer(embedding=EmbeddingConfig(num_segments=10**9)), "embedding.num_segments=1000000000", 8 * 10**9),
        (transformer(max_length=10**9, position=PositionConfig("learned")), "max_length=1000000000", 8 * 10**9),
        (
            transformer(num_layers=10, position=PositionConfig("relative_bias", shared=False, num_buckets=10**9)),
            "position.num_buckets=1000000000",
            10 * 8 * 10**9,  # heads of each layer
        ),
        (
            transformer("decoder", vocabulary_size=10**5, embedding=EmbeddingConfig(tie_output=False)),
            "embedding.tie_output=False with vocabulary_size=100000",
            800_000,
        ),
    ],
)
def test_least_weights(config, choice, least):
    assert minimum_weight_counts(config)[choice] == least
    total = sum(minimum_weight_counts(config).values())
    # twice as many, and a million, may be missing: their names are listed later
    require_weights(config, total, "model.safetensors")
    require_weights(config, max(0, (total - 1_000_000 + 1) // 2), "model.safetensors")
    if total > 1_000_001:
        with pytest.raises(ValueError, match="=.* must fit the .* numbers in model.safetensors, got at least"):
            require_weights(config, (total - 1_000_000) // 2 - 1, "model.safetensors")
    if least > 1_000_002:
        with pytest.raises(ValueError, match=f"{choice}.* must fit the 0 numbers in model.h5, got at least"):
            require_weights(config, 0, "model.h5")


def test_weights_of_recurrent_models():
    config = RecurrentConfig(vocabulary_size=100, embedding_dim=4, hidden_dim=10**6, num_layers=10**7)
    assert minimum_weight_counts(config)["vocabulary_size=100"] == 400
    with pytest.raises(
        ValueError, match="num_layers=10000000 of encoder_dim=1000000 must fit the 1000000 numbers in x"
    ):
        require_weights(config, 10**6, "x")


@pytest.fixture(scope="module")
def wordpiece():
    return {
        "added_tokens": [{"id": 0, "content": "[PAD]", "special": True}],
        "normalizer": {"type": "BertNormalizer", "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4},
        },
    }


def nested(depth):
    part = {"type": "BertNormalizer"}
    for _ in range(depth):
        part = {"type": "Sequence", "normalizers": [part]}
    return part


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": None}, "model must be an object, got None"),
        ({"model": []}, r"model must be an object, got \[\]"),
        ({"model": {"type": []}}, r"model.type must be a text or null, got \[\]"),
        ({"model": {"type": "WordPiece"}}, "model.vocab is missing"),
        ({"model": {"type": "WordPiece", "vocab": None}}, "vocab must be an object, got None"),
        ({"model": {"type": "WordPiece", "vocab": {"a": "0"}}}, "vocab.a must be an integer, got '0'"),
        ({"model": {"type": "WordPiece", "vocab": {"a": 10**9}}}, r"model.vocab.*must be"),
        ({"model": {"type": "WordPiece", "vocab": {"x" * 10**6: 0}}}, r"model.vocab.*\[0\] must have 1 to 2048 bytes"),
        ({"normalizer": None}, r"normalizer must be .* BertNormalizer, got \[\]"),
        ({"normalizer": 3}, "normalizer must be an object or null, got 3"),
        ({"normalizer": {"type": None}}, "normalizer.type must be a text, got None"),
        (
            {"normalizer": {"type": "Sequence", "normalizers": None}},
            "normalizer.normalizers must be a list of .*, got None",
        ),
        (
            {"normalizer": {"type": "Sequence", "normalizers": [None]}},
            r"normalizer.normalizers\[0\] must be an object, got None",
        ),
        ({"normalizer": nested(40)}, "normalizer.*must be nested at most 32 deep"),
        ({"normalizer": nested(20_000)}, "normalizer.*must be nested at most 32 deep"),
        ({"pre_tokenizer": None}, r"pre_tokenizer must be .*, got \[\]"),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": None}}, "pre_tokenizer.pretokenizers must be a list"),
        (
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Sequence", "pretokenizers": [{}]}]}},
            r"pre_tokenizer.pretokenizers\[0\].pretokenizers\[0\].type must be a text, got None",
        ),
        ({"decoder": {"type": "Sequence", "decoders": 3}}, "decoder.decoders must be a list of an object, got 3"),
        ({"post_processor": {"type": []}}, r"post_processor.type must be a text, got \[\]"),
        ({"added_tokens": [{"id": 5, "content": "b" * 257}]}, r"added_tokens\[0\] must have at most 256 bytes, got"),
        ({"post_processor": "x"}, "post_processor must be an object or null, got 'x'"),
        ({"post_processor": {"type": "BertProcessing", "cls": []}}, r"post_processor.cls must be .* got \[\]"),
        ({"post_processor": {"type": "TemplateProcessing", "single": None}}, "post_processor.single must be a list of"),
        (
            {"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": 3}]}},
            r"post_processor.single\[0\].SpecialToken must be an object, got 3",
        ),
        ({"added_tokens": [{"id": 5, "content": ""}]}, r"added_tokens\[0\] must have 1 to 2048 bytes, got ''"),
        ({"added_tokens": [{"id": 5, "content": "x" * 10**6}]}, r"added_tokens\[0\] must have 1 to 2048 bytes, got 'x"),
        ({"added_tokens": [{"id": 5, "content": "a\0"}]}, r"added_tokens\[0\] must have no NUL"),
        ({"added_tokens": [{"id": -1, "content": "b"}]}, r"added_tokens\[0\].id must be at least 0, got -1"),
        ({"added_tokens": [{"id": 10**9, "content": "b"}]}, "added_tokens.* must be 5"),
        ({"added_tokens": [{"id": 5, "content": "b"}] * 2}, r"added_tokens\[1\] must be unique, got 'b'"),
        ({"added_tokens": [{"id": "5", "content": "b"}]}, r"added_tokens\[0\].id must be an integer, got '5'"),
        ({"added_tokens": [{"id": 5, "content": f"b{n}"} for n in range(10_001)]}, "added_tokens must be at most"),
        ({"added_tokens": {}}, "added_tokens must be a list of an object, got {}"),
    ],
    ids=lambda value: value.replace("\\", "")[:40] if isinstance(value, str) else "",
)
def test_tokenizers(wordpiece, tmp_path, changes, message):
    def dump(value):
        # nested deeper than what `json.dumps` follows
        if isinstance(value, dict) and (value.get("normalizers") or [None])[0]:
            depth, part = 0, value
            while part["type"] == "Sequence":
                depth, part = depth + 1, part["normalizers"][0]
            return '{"type": "Sequence", "normalizers": [' * depth + json.dumps(part) + "]}" * depth
        return json.dumps(value)

    values = {**wordpiece, **changes}
    text = ", ".join(f'"{key}": {dump(value)}' for key, value in values.items())
    (tmp_path / "tokenizer.json").write_text(f"{{{text}}}")
    with pytest.raises(ValueError, match=f"tokenizer.json: .*{message}") as caught:
        load_huggingface(tmp_path)
    assert len(str(caught.value)) < 1000


def test_the_tokenizer_that_was_not_changed(wordpiece, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(wordpiece))
    assert load_huggingface(tmp_path).tokenize(["a A"]).to_list() == [[4, 4]]
    (tmp_path / "tokenizer.json").write_text(json.dumps({**wordpiece, "post_processor": None}))
    assert load_huggingface(tmp_path).tokenize(["a"]).to_list() == [[4]]


@pytest.mark.parametrize("count", [10**9, 5001, -1, "3", 10**400])
def test_sentinels(trained_proto, tmp_path, count):
    (tmp_path / "spiece.model").write_bytes(trained_proto)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"extra_ids": count}))
    with pytest.raises(ValueError, match="tokenizer_config.json: extra_ids must be .*, got") as caught:
        load_huggingface(tmp_path)
    assert len(str(caught.value)) < 1000


@pytest.fixture(scope="module")
def trained_proto():
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()
    for number, piece in enumerate(("<unk>", "\u2581", "a", "b")):
        model.pieces.add(piece=piece, score=-number, type=2 if number == 0 else 1)
    return model.SerializeToString()
