"""Small files that ask for much, or hold what no reader expects: a short error that names file and key, at once."""

import json
import time

import pytest

from zoo import TextClassifier
from zoo.config import (
    AttentionConfig,
    EmbeddingConfig,
    FeedForwardConfig,
    PositionConfig,
    RecurrentConfig,
    TransformerConfig,
    least_weights,
    require_weights,
)
from zoo.huggingface import load_backbone, load_task
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
        ("bert_base", {"max_position_embeddings": 10**7}, "max_length=10000000 needs at least 160000000 weights"),
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
        ("llama", {"rope_scaling": {"type": []}}, r"rope parameters: type must be a text, got \[\]"),
        ("llama", {"rope_scaling": {"rope_type": 7}}, "rope parameters: rope_type must be a text, got 7"),
        (
            "llama",
            {"rope_scaling": {"type": "linear", "rope_type": "yarn"}},
            r"rope_type and type must be the same, got ",
        ),
        ("bert_base", {"": True, "x": 3}, r"has keys that are not known here: ''=True, x=3"),
        ("llama", {"rope_scaling": {"type": "linear", "factor": "2"}}, "rope parameters: factor must be a number"),
        ("llama", {"rope_scaling": {"type": "linear", "factor": 0}}, "'factor' must be a number of at least 1, got 0"),
        ("llama", {"rope_scaling": {"type": "dynamic", "factor": -1.0}}, "'factor' must be a number of .*, got -1.0"),
        (
            "llama",
            {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 0}},
            "original_max_position_embeddings must be an integer of at least 1, got 0",
        ),
        (
            "llama",
            {"rope_scaling": {"rope_type": "longrope", "short_factor": ["a"], "long_factor": {"a": 1}}},
            r"rope parameters: short_factor\[0\] must be a number, got 'a'",
        ),
    ],
)
def test_configurations(copy, case, changes, message):
    if "rope_scaling" in changes:
        changes = {"rope_parameters": None, **changes}
    with pytest.raises(ValueError, match=f"config.json: .*{message}") as caught:
        load_backbone(copy(case, **changes))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({str(number): f"L{number}" for number in range(100_000)}, "id2label must name fewer labels, got 100000 where"),
        ({"1000000000": "x"}, "id2label must number the labels from 0 on, got {'1000000000': 'x'}"),
        ({"0": 5, "1": "x"}, "id2label must be an object of texts or null, got {'0': 5"),
        (["a", "b"], r"id2label must be an object of texts or null, got \['a', 'b'\]"),
        ({"a": "x"}, "id2label must number the labels from 0 on, got {'a': 'x'}"),
        ({"0": "x" * 300_000, "a": "y"}, "id2label must number the labels from 0 on, got {'0': 'xxx"),
    ],
    ids=["many", "billion", "number", "list", "text", "long"],
)
def test_labels(copy, labels, message):
    with pytest.raises(ValueError, match=f"config.json: .*{message}") as caught:
        load_task(TextClassifier, copy("bert_classifier", id2label=labels))
    assert len(str(caught.value)) < 1000


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
            "num_layers=10000003 of hidden_dim=8 with 2 heads of 4",
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
            transformer("decoder", vocabulary_size=10**5, embedding=EmbeddingConfig(tie_output=False)),
            "embedding.tie_output=False with vocabulary_size=100000",
            800_000,
        ),
    ],
)
def test_least_weights(config, choice, least):
    assert least_weights(config)[choice] == least
    total = sum(least_weights(config).values())
    # twice as many, and a million, may be missing: their names are listed later
    require_weights(config, total, "config.json: backbone")
    require_weights(config, max(0, (total - 1_000_000 + 1) // 2), "config.json: backbone")
    if total > 1_000_001:
        with pytest.raises(ValueError, match="^config.json: backbone: .* needs? at least .* weights, the files hold"):
            require_weights(config, (total - 1_000_000) // 2 - 1, "config.json: backbone")
    if least > 1_000_002:
        with pytest.raises(ValueError, match=f"^config.json: .*{choice}.* needs? at least .* the files hold 0"):
            require_weights(config, 0, "config.json")


def test_weights_of_recurrent_models():
    config = RecurrentConfig(vocabulary_size=100, embedding_dim=4, hidden_dim=10**6, num_layers=10**7)
    assert least_weights(config)["vocabulary_size=100"] == 400
    with pytest.raises(ValueError, match=r"config.json: num_layers=10000000 of encoder_dim=1000000 needs at least 10"):
        require_weights(config, 10**6, "config.json")


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
        ({"normalizer": None}, r"normalizer is \[\], which this library can't reproduce"),
        ({"normalizer": 3}, "normalizer must be an object or null, got 3"),
        ({"normalizer": {"type": None}}, "normalizers: type must be a text, got None"),
        ({"normalizer": {"type": "Sequence", "normalizers": None}}, "normalizers must be a list of .*, got None"),
        ({"normalizer": {"type": "Sequence", "normalizers": [None]}}, r"normalizers\[0\] must be an object, got None"),
        ({"normalizer": nested(40)}, "normalizer.*must be nested at most 32 deep"),
        ({"normalizer": nested(20_000)}, "normalizer.*must be nested at most 32 deep"),
        ({"pre_tokenizer": None}, r"pre_tokenizer is \[\], which"),
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
        ({"added_tokens": [{"id": 5, "content": "b"}] * 2}, r"added_tokens\[1\] must be a token of its own, got 'b'"),
        ({"added_tokens": [{"id": "5", "content": "b"}]}, r"added_tokens\[0\].id must be an integer, got '5'"),
        ({"added_tokens": [{"id": 5, "content": f"b{n}"} for n in range(10_001)]}, "added_tokens must be at most"),
        ({"added_tokens": {}}, "added_tokens must be a list of an object, got {}"),
    ],
    ids=lambda value: value.replace("\\", "")[:40] if isinstance(value, str) else "",
)
def test_tokenizers(wordpiece, tmp_path, changes, message):
    def dump(value):
        # nested deeper than what `json.dumps` follows
        if isinstance(value, dict) and value.get("type") == "Sequence" and value["normalizers"] not in (None, [None]):
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


@pytest.mark.parametrize("count", [10**9, -1, "3", 10**400])
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
