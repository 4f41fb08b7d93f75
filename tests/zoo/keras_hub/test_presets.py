"""Presets of KerasHub: what KerasHub wrote computes the same here, and what is written here the same there."""

import json
import warnings

import numpy as np
import pytest
from keras import ops

keras_hub = pytest.importorskip("keras_hub")

from zoo import (  # noqa: E402
    Backbone,
    CausalLM,
    MaskedLM,
    Seq2SeqLM,
    TextClassifier,
    TextEmbedder,
    TokenClassifier,
    TransformerConfig,
)
from zoo.keras_hub import is_keras_hub, load_backbone, read_tokenizer, reader, save_backbone  # noqa: E402
from zoo.keras_hub.tasks import task_of  # noqa: E402
from zoo.keras_hub.tokenizers import make_tokenizer, require_same  # noqa: E402
from zoo.tokenizers import SentencePieceTokenizer  # noqa: E402
from zoo.tokenizers.byte_alphabet import byte_characters  # noqa: E402

SMALL = {"vocabulary_size": 20, "num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}
LEARNED = {**SMALL, "max_sequence_length": 16}
ROTARY = {
    **{"vocabulary_size": 20, "num_layers": 2, "num_query_heads": 4, "num_key_value_heads": 2},
    **{"hidden_dim": 16, "intermediate_dim": 12, "layer_norm_epsilon": 1e-4},
}
LLAMA3 = {
    **{"rope_max_wavelength": 1000, "rope_frequency_adjustment_factor": 4.0, "rope_low_freq_factor": 1.0},
    **{"rope_high_freq_factor": 4.0, "rope_pretraining_sequence_length": 8},
}
HEADS = {**ROTARY, "head_dim": 6}
EXPERTS = {**ROTARY, "num_experts": 4, "top_k": 2}
GEMMA = {
    **{"vocabulary_size": 20, "num_layers": 3, "num_query_heads": 4, "num_key_value_heads": 1, "hidden_dim": 16},
    **{"intermediate_dim": 12, "head_dim": 6, "use_sliding_window_attention": True, "sliding_window_size": 3},
}
SOFT_CAPS = {"attention_logit_soft_cap": 3.0, "final_logit_soft_cap": 2.0}
AFTER = {"use_post_ffw_norm": True, "use_post_attention_norm": True}
GEMMA3 = {**GEMMA, **AFTER, "image_size": None}
ELECTRA = {"vocab_size": 20, **{key: value for key, value in LEARNED.items() if key != "vocabulary_size"}}
SMOL = {
    **{"vocabulary_size": 20, "hidden_dim": 16, "intermediate_dim": 12, "num_layers": 3, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "attention_bias": True, "attention_dropout": 0.0, "mlp_bias": True},
    **{"rope_layer_enabled_list": [1, 0, 1], "layer_types": ["full_attention"] * 3, "layer_norm_epsilon": 1e-5},
    **{"max_position_embeddings": 64, "rope_theta": 1000.0, "partial_rotary_factor": 1.0},
}
QWEN3_MOE = {
    **{**EXPERTS, "layer_norm_epsilon": 1e-6, "head_dim": 6, "moe_intermediate_dim": 6, "norm_top_k_prob": True},
    **{"mlp_only_layers": [0], "sliding_window_size": 3},
}
slow = pytest.mark.slow
CASES = [
    ("Bert", {**LEARNED, "num_segments": 3}),
    pytest.param("Roberta", LEARNED, marks=slow),
    pytest.param("XLMRoberta", LEARNED, marks=slow),
    pytest.param("DistilBert", LEARNED, marks=slow),
    ("Albert", {**LEARNED, "num_layers": 4, "embedding_dim": 6, "num_groups": 2, "num_segments": 3}),
    pytest.param("Electra", {**ELECTRA, "embedding_dim": 6, "num_segments": 3}, marks=slow),
    pytest.param("Electra", {**ELECTRA, "embedding_dim": 8, "num_segments": 3}, marks=slow),
    ("DebertaV3", {**LEARNED, "num_layers": 1, "bucket_size": 4}),
    ("GPT2", LEARNED),
    pytest.param("OPT", LEARNED, marks=slow),
    ("GPTNeoX", {**LEARNED, "hidden_dim": 12, "rotary_percentage": 0.4, "layer_norm_epsilon": 1e-3}),
    ("Llama", {**ROTARY, **LLAMA3}),
    pytest.param("Llama3", ROTARY, marks=slow),
    ("Mistral", {**HEADS, "sliding_window": 3, "rope_scaling_factor": 2.0}),
    pytest.param(
        "Qwen",
        {**ROTARY, "use_sliding_window_attention": True, "sliding_window_size": 3, "tie_word_embeddings": False},
        marks=slow,
    ),
    # in KerasHub the epsilon of the norms of queries and keys is this one, whatever the argument
    ("Qwen3", {**HEADS, "layer_norm_epsilon": 1e-5, "sliding_window_size": 4}),
    pytest.param("Phi3", {**ROTARY, "max_sequence_length": 32}, marks=slow),
    (
        "Phi3",
        {
            **{**ROTARY, "rope_scaling_type": "su", "max_sequence_length": 8, "pretraining_sequence_length": 4},
            **{"rope_scaling_short_factor": [1.0, 2.0], "rope_scaling_long_factor": [3.0, 5.0]},
        },
    ),
    pytest.param("Gemma", {**GEMMA, "use_sliding_window_attention": False}, marks=slow),
    ("Gemma", {**GEMMA, **SOFT_CAPS, **AFTER}),
    pytest.param("Gemma3", {**GEMMA3, "num_layers": 7, "global_rope_scaling_factor": 2.0}, marks=slow),
    ("Mixtral", {**EXPERTS, "rope_scaling_factor": 2.0}),
    pytest.param("QwenMoe", {**EXPERTS, "moe_intermediate_dim": 6, "shared_expert_intermediate_dim": 10}, marks=slow),
    ("Qwen3Moe", QWEN3_MOE),
    pytest.param("GptOss", {**EXPERTS, "head_dim": 6, "sliding_window": 3, "rope_scaling_factor": 4.0}, marks=slow),
    ("SmolLM3", SMOL),
    ("Bart", {**LEARNED, "num_layers": 1}),
    ("T5", {**SMALL, "num_layers": 1, "key_value_dim": 3, "activation": "gelu", "tie_embedding_weights": False}),
    pytest.param("T5", {**SMALL, "use_gated_activation": False}, marks=slow),
]
INNER = {**LEARNED, "num_layers": 1}
HEADS_OF_TASKS = [
    ("BertTextClassifier", INNER, {"num_classes": 3}),
    pytest.param("AlbertTextClassifier", {**INNER, "embedding_dim": 6}, {"num_classes": 3}, marks=slow),
    ("RobertaTextClassifier", INNER, {"num_classes": 1}),
    pytest.param("XLMRobertaTextClassifier", INNER, {"num_classes": 3}, marks=slow),
    pytest.param("DistilBertTextClassifier", INNER, {"num_classes": 3}, marks=slow),
    pytest.param("DebertaV3TextClassifier", {**INNER, "bucket_size": 4}, {"num_classes": 3}, marks=slow),
    pytest.param("BertMaskedLM", INNER, {}, marks=slow),
    ("AlbertMaskedLM", {**INNER, "embedding_dim": 6}, {}),
    pytest.param("RobertaMaskedLM", INNER, {}, marks=slow),
    pytest.param("XLMRobertaMaskedLM", INNER, {}, marks=slow),
    pytest.param("DistilBertMaskedLM", INNER, {}, marks=slow),
    pytest.param("DebertaV3MaskedLM", {**INNER, "bucket_size": 4}, {}, marks=slow),
    pytest.param("BertTextEmbedder", INNER, {"pooling_mode": "max", "normalize": False}, marks=slow),
    pytest.param("GPT2CausalLM", INNER, {}, marks=slow),
    pytest.param("BartSeq2SeqLM", INNER, {}, marks=slow),
    pytest.param("T5Seq2SeqLM", {**SMALL, "num_layers": 1}, {}, marks=slow),
]
TASKS = {kind.__name__: kind for kind in (CausalLM, MaskedLM, Seq2SeqLM, TextClassifier, TextEmbedder)}


def array(x):
    return ops.convert_to_numpy(x)


def outputs_of_both(theirs, ours):
    """Hidden states, or logits of decoders, where tokens are real."""
    generator = np.random.default_rng(1)
    ids, mask = generator.integers(1, 20, (2, 7)), np.arange(7) < np.array([[7], [5]])
    inputs = {"token_ids": ids, "padding_mask": mask}
    if ours.config.architecture == "encoder_decoder":
        inputs = {f"encoder_{key}": value for key, value in inputs.items()}
        mask = np.ones((2, 5), bool)
        inputs |= {"decoder_token_ids": generator.integers(1, 20, (2, 5)), "decoder_padding_mask": mask}
    if ours.config.embedding.num_segments:
        inputs["segment_ids"] = generator.integers(0, 3, (2, 7))
    first, second = theirs({key: value.astype("int32") for key, value in inputs.items()}), ours(inputs)
    if "pooled_output" in (first if isinstance(first, dict) else ()):
        np.testing.assert_allclose(array(first["pooled_output"]), array(ours.pool(second)), atol=1e-5)
        first = first["sequence_output"]
    if isinstance(first, dict):
        first, second = first["decoder_sequence_output"], second["decoder_sequence_output"]
    if ours.config.architecture != "encoder":
        factor = ours.config.embedding.output_scale or 1.0
        first, second = theirs.token_embedding(first * factor, reverse=True), ours.logits(second)
    return array(first)[mask], array(second)[mask]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("name", "arguments"), CASES)
def test_both_ways(name, arguments, tmp_path):
    theirs = getattr(keras_hub.models, f"{name}Backbone")(**arguments)
    randomize(theirs)
    theirs.save_to_preset(str(tmp_path / "theirs"))
    assert is_keras_hub(tmp_path / "theirs")
    ours = load_backbone(tmp_path / "theirs")
    expected, found = outputs_of_both(theirs, ours)
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())
    # some compute the same as others
    assert save_backbone(ours, tmp_path / "ours", class_name=f"{name}Backbone") == f"{name}Backbone"
    again = keras_hub.models.Backbone.from_preset(str(tmp_path / "ours"))
    assert type(again) is type(theirs)
    for weight, original in zip(again.weights, theirs.weights, strict=True):
        np.testing.assert_array_equal(array(weight), array(original))


def randomize(model):
    generator = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(generator.normal(0, 0.5, weight.shape))


@pytest.mark.parametrize(("name", "arguments", "of_head"), HEADS_OF_TASKS)
def test_tasks_both_ways(name, arguments, of_head, tmp_path):
    kind = next(kind for kind in TASKS if name.endswith(kind))
    class_name = name.removesuffix(kind) + "Backbone"
    theirs = getattr(keras_hub.models, name)(getattr(keras_hub.models, class_name)(**arguments), **of_head)
    randomize(theirs)
    theirs.save_to_preset(str(tmp_path / "theirs"))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*starts untrained")
        ours = TASKS[kind].from_preset(tmp_path / "theirs")
    assert task_of(tmp_path / "theirs") == kind
    generator, inputs = np.random.default_rng(1), {}
    for key in theirs.input:
        shape = (2, 3 if key == "mask_positions" else 7)
        inputs[key] = generator.integers(0, 2 if key == "segment_ids" else 7, shape)
        if key.endswith("padding_mask"):
            inputs[key] = np.arange(7) < np.array([[7], [5]])
    expected = array(theirs({key: value.astype("int32") for key, value in inputs.items()}))
    found = array(ours(inputs))
    if "LM" in kind and kind != "MaskedLM":
        mask = inputs.get("decoder_padding_mask", inputs.get("padding_mask"))
        expected, found = expected[mask], found[mask]
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())
    assert ours.save_to_keras_hub(tmp_path / "ours", class_name=class_name) == class_name
    again = getattr(keras_hub.models, kind).from_preset(str(tmp_path / "ours"))
    assert type(again) is type(theirs)
    for weight, original in zip(again.weights, theirs.weights, strict=True):
        np.testing.assert_array_equal(array(weight), array(original))


def test_temperature_divides_the_last_map(tmp_path):
    theirs = keras_hub.models.BertTextClassifier(keras_hub.models.BertBackbone(**INNER), num_classes=3)
    randomize(theirs)
    theirs.save_to_preset(str(tmp_path / "theirs"))
    ours = TextClassifier.from_preset(tmp_path / "theirs")
    ours.temperature = 2.5
    assert ours.save_to_keras_hub(tmp_path / "ours", class_name="BertBackbone") == "BertBackbone"
    again = keras_hub.models.TextClassifier.from_preset(str(tmp_path / "ours"))
    last = {id(weight) for weight in again.output_dense.weights}
    assert len(last) == 2
    for weight, original in zip(again.weights, theirs.weights, strict=True):
        expected = array(original) / np.float32(2.5 if id(weight) in last else 1)
        np.testing.assert_array_equal(array(weight), expected)


def test_heads_that_do_not_fit(tmp_path):
    theirs = keras_hub.models.BertTextClassifier(keras_hub.models.BertBackbone(**INNER), num_classes=3)
    theirs.save_to_preset(str(tmp_path))
    named = TextClassifier.from_preset(tmp_path, labels=["a", "b", "c"])
    np.testing.assert_array_equal(array(named.head.projection.kernel), array(theirs.output_dense.kernel))
    no_head, other_head = "has no weights for the head of this task", "has the head of this task for other labels than"
    for kind, options, found in ((TextClassifier, {"labels": 2}, other_head), (MaskedLM, {}, no_head)):
        with pytest.warns(UserWarning, match=f"{found}.*: it starts untrained"):
            other = kind.from_preset(tmp_path, **options)
    other = MaskedLM(other.backbone)
    message = r"BertBackbone: a BertMaskedLM there has head_norm_epsilon=1e-05, this task head_norm_epsilon=1e-12"
    with pytest.raises(ValueError, match=message):
        other.save_to_keras_hub(tmp_path / "masked")
    other = TextClassifier(other.backbone, labels=2, pooling="mean")
    with pytest.raises(ValueError, match="there has pooling='pooler', this task pooling='mean'"):
        other.save_to_keras_hub(tmp_path / "mean")
    with pytest.raises(ValueError, match="KerasHub has no BertTokenClassifier that is known here"):
        TokenClassifier(other.backbone, labels=2).save_to_keras_hub(tmp_path / "tokens")
    path = tmp_path / "task.json"
    values = json.loads(path.read_text())
    for changed, message in (
        ({"num_classes": 10**9}, "num_classes must be at most"),
        ({"num_classes": 4}, "task.weights.h5 does not fit the head"),
    ):
        path.write_text(json.dumps({**values, "config": {**values["config"], **changed}}))
        with pytest.raises(ValueError, match=message):
            TextClassifier.from_preset(tmp_path)


def test_task_and_tokenizer(tiny_llama, tmp_path):
    assert tiny_llama.save_to_keras_hub(tmp_path / "preset") == "LlamaBackbone"
    texts = ["alpha beta", "omega iota kappa", ""]
    loaded = CausalLM.from_preset(tmp_path / "preset", max_length=32)
    ids = loaded.tokenizer.tokenize(texts).to_list()
    assert ids == tiny_llama.tokenizer.tokenize(texts).to_list()
    assert loaded.tokenizer.get_config() == tiny_llama.tokenizer.get_config()
    theirs = keras_hub.models.CausalLM.from_preset(str(tmp_path / "preset"))
    assert [list(theirs.preprocessor.tokenizer(text)) for text in texts] == ids
    options = {"max_new_tokens": 8, "jit_compile": False}
    assert loaded.generate("alpha beta", **options) == tiny_llama.generate("alpha beta", **options)
    # without weights any choice is replaced
    smaller = CausalLM.from_preset(tmp_path / "preset", load_weights=False, num_layers=1, hidden_dim=32)
    assert (smaller.backbone.config.num_layers, smaller.backbone.config.hidden_dim) == (1, 32)


class OfOnesOwn(SentencePieceTokenizer, kind="own_for_keras_hub_tests"):
    """May tokenize otherwise."""


def test_classes_of_ones_own(tiny_llama, tmp_path):
    with pytest.raises(ValueError, match="LlamaBackbone: KerasHub has no LlamaMine that is known here"):
        type("Mine", (CausalLM,), {})(tiny_llama.backbone, tiny_llama.tokenizer).save_to_keras_hub(tmp_path / "preset")
    config = tiny_llama.tokenizer.get_config()
    roles = {key: config[key] for key in ("start_token", "end_token", "pad_token") if config.get(key)}
    tokenizer = OfOnesOwn(tiny_llama.tokenizer.proto, **roles)
    with pytest.raises(ValueError, match="LlamaTokenizer can express, got 'own_for_keras_hub_tests'"):
        CausalLM(tiny_llama.backbone, tokenizer).save_to_keras_hub(tmp_path / "preset")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["Bert", "GPT2"])
def test_tokenizers(name, tmp_path):
    if name == "Bert":
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "small", "dog", "##s", "!", "e"]
        theirs = keras_hub.models.BertTokenizer(vocabulary=words, lowercase=True)
    else:
        letters = [*byte_characters(), "lo", "<|endoftext|>"]
        ids = {token: index for index, token in enumerate(letters)}
        theirs = keras_hub.models.GPT2Tokenizer(vocabulary=ids, merges=["l o"])
    theirs.save_to_preset(str(tmp_path))
    ours = read_tokenizer(tmp_path)
    texts = ["Small dogs!", "a long \u00e9 dog", ""]
    assert ours.tokenize(texts).to_list() == [list(np.asarray(theirs(text))) for text in texts]
    make_tokenizer(ours, f"{name}Backbone").save_to_preset(str(tmp_path / "again"))
    require_same(ours, f"{name}Backbone", tmp_path / "again")
    with pytest.raises(ValueError, match="tokenizer must be one that keras_hub.models.LlamaTokenizer can express"):
        make_tokenizer(ours, "LlamaBackbone")


def test_quantized_and_adapted_models(tmp_path):
    theirs = keras_hub.models.GPT2Backbone(**LEARNED)
    theirs.save_to_preset(str(tmp_path / "preset"))
    task = CausalLM.from_preset(tmp_path / "preset")
    task.enable_lora(rank=2)
    generator = np.random.default_rng(0)
    for variable in task.trainable_variables:
        variable.assign(generator.normal(size=variable.shape))
    save_backbone(task.backbone, tmp_path / "adapted")
    again = keras_hub.models.Backbone.from_preset(str(tmp_path / "adapted"))
    expected, found = outputs_of_both(again, task.backbone)
    assert np.abs(expected - outputs_of_both(theirs, task.backbone)[0]).max() > 0.01
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())
    quantized = load_backbone(tmp_path / "preset")
    quantized.quantize("int8")
    with pytest.raises(ValueError, match="is quantized .*int8.*: write a model before it is quantized"):
        save_backbone(quantized, tmp_path / "quantized")
    assert not (tmp_path / "quantized").exists()


def test_adapters_on_a_preset_without_a_table_of_positions(tmp_path):
    keras_hub.models.T5Backbone(**{**SMALL, "num_layers": 1}).save_to_preset(str(tmp_path / "preset"))
    task = Seq2SeqLM.from_preset(tmp_path / "preset", load_weights=False)
    task.enable_lora(1)
    task.save_adapter(tmp_path / "adapter", base_model=str(tmp_path / "preset"))
    loaded = Seq2SeqLM.from_preset(tmp_path / "adapter")
    assert loaded.options() == task.options() and loaded.backbone.adapters.active == ("default",)
    assert Backbone.from_preset(tmp_path / "adapter", load_weights=False, max_length=16).config.max_length == 16
    with pytest.raises(ValueError, match=r"must be among \['dropout', 'max_length'\], got 'max_lenght'. Did you mean"):
        load_backbone(tmp_path / "preset", max_lenght=3)


def test_presets_that_are_replaced_while_they_are_read(tmp_path, monkeypatch):
    (tmp_path / "preset").mkdir()
    reads = []

    def read(directory, load_weights):
        reads.append(directory)
        if len(reads) == 1:
            (tmp_path / "preset").rename(tmp_path / "old")
            (tmp_path / "preset").mkdir()
        return len(reads)

    monkeypatch.setattr(reader, "load_backbone", read)
    assert reader.KerasHubReader().load_backbone(tmp_path / "preset", True, {}) == 2


def test_refusals(tmp_path, tiny_llama):
    plain = Backbone.from_config(TransformerConfig("decoder", 20, hidden_dim=8, num_layers=1))
    message = r"KerasHub has no class here for this model:(.*\n)*  GPT2Backbone: .*position.kind='sinusoidal'"
    with pytest.raises(ValueError, match=message):
        save_backbone(plain, tmp_path / "x")
    assert not (tmp_path / "x").exists()
    theirs = keras_hub.models.GPT2Backbone(**LEARNED)
    theirs.save_to_preset(str(tmp_path / "preset"))
    path = tmp_path / "preset" / "config.json"
    values = json.loads(path.read_text())

    def changed(**arguments):
        path.write_text(json.dumps({**values, "config": {**values["config"], **arguments}}))
        return tmp_path / "preset"

    with pytest.raises(ValueError, match=r"config.json: config.num_layers must be an integer, got 'two'"):
        load_backbone(changed(num_layers="two"))
    with pytest.raises(ValueError, match=r"config.json: config.rope is not known"):
        load_backbone(changed(rope=1))
    with pytest.raises(ValueError, match="must fit the .* numbers in .*model.weights.h5"):
        load_backbone(changed(hidden_dim=10**6))
    with pytest.raises(ValueError, match="which has no MaskedLM"):
        MaskedLM.from_preset(changed())
    path.write_text(json.dumps({**values, "class_name": "os.system"}))
    with pytest.raises(ValueError, match="class_name must be one of .* got 'os.system'"):
        load_backbone(tmp_path / "preset")
