"""Presets of KerasHub: what KerasHub wrote computes the same here, and what is written here the same there."""

import json

import numpy as np
import pytest
from keras import ops

keras_hub = pytest.importorskip("keras_hub")

from zoo import (  # noqa: E402
    Backbone,
    CausalLM,
    MaskedLM,
    TransformerConfig,
)
from zoo.keras_hub import is_keras_hub, load_backbone, read_tokenizer, save_backbone  # noqa: E402
from zoo.keras_hub.tokenizers import write_tokenizer  # noqa: E402
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
slow = pytest.mark.slow
CASES = [
    ("Bert", {**LEARNED, "num_segments": 3}),
    pytest.param("Roberta", LEARNED, marks=slow),
    pytest.param("XLMRoberta", LEARNED, marks=slow),
    pytest.param("DistilBert", LEARNED, marks=slow),
    ("GPT2", LEARNED),
    ("Llama", {**ROTARY, **LLAMA3}),
    pytest.param("Llama3", ROTARY, marks=slow),
    ("Mistral", {**ROTARY, "sliding_window": 3, "head_dim": 6, "rope_scaling_factor": 2.0}),
    pytest.param(
        "Qwen",
        {**ROTARY, "use_sliding_window_attention": True, "sliding_window_size": 3, "tie_word_embeddings": False},
        marks=slow,
    ),
    # in KerasHub the epsilon of the norms of queries and keys is this one, whatever the argument
    ("Qwen3", {**ROTARY, "layer_norm_epsilon": 1e-5, "head_dim": 6, "sliding_window_size": 4}),
    ("Bart", LEARNED),
]
# other names of classes that compute the same
SAME = {"XLMRoberta": "Roberta", "Llama3": "Llama"}


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
        first, second = theirs.token_embedding(first, reverse=True), ours.logits(second)
    return array(first)[mask], array(second)[mask]


@pytest.mark.parametrize(("name", "arguments"), CASES)
def test_both_ways(name, arguments, tmp_path):
    theirs = getattr(keras_hub.models, f"{name}Backbone")(**arguments)
    generator = np.random.default_rng(0)
    theirs.set_weights([generator.normal(0, 0.5, weight.shape) for weight in theirs.weights])
    theirs.save_to_preset(str(tmp_path / "theirs"))
    assert is_keras_hub(tmp_path / "theirs")
    ours = load_backbone(tmp_path / "theirs")
    expected, found = outputs_of_both(theirs, ours)
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())
    written = save_backbone(ours, tmp_path / "ours")
    assert written == f"{SAME.get(name, name)}Backbone"
    again = keras_hub.models.Backbone.from_preset(str(tmp_path / "ours"))
    assert type(again).__name__ == written
    for weight, original in zip(again.weights, theirs.weights, strict=True):
        np.testing.assert_array_equal(array(weight), array(original))


def test_task_and_tokenizer(tiny_llama, tmp_path):
    assert tiny_llama.save_to_keras_hub(tmp_path / "preset") == "LlamaBackbone"
    texts = ["alpha beta", "omega iota kappa", ""]
    loaded = CausalLM.from_preset(tmp_path / "preset", max_length=32)
    ids = loaded.tokenizer.tokenize(texts).to_list()
    assert ids == tiny_llama.tokenizer.tokenize(texts).to_list()
    assert loaded.tokenizer.get_config() == tiny_llama.tokenizer.get_config()
    theirs = keras_hub.models.LlamaTokenizer.from_preset(str(tmp_path / "preset"))
    assert [list(theirs(text)) for text in texts] == ids
    options = {"max_new_tokens": 8, "jit_compile": False}
    assert loaded.generate("alpha beta", **options) == tiny_llama.generate("alpha beta", **options)


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
    write_tokenizer(ours, f"{name}Backbone", tmp_path / "again")
    assert read_tokenizer(tmp_path / "again").get_config() == ours.get_config()
    with pytest.raises(ValueError, match="tokenizer must be one that keras_hub.models.LlamaTokenizer can express"):
        write_tokenizer(ours, "LlamaBackbone", tmp_path / "other")


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
    with pytest.raises(ValueError, match="of which there is no MaskedLM"):
        MaskedLM.from_preset(changed())
    path.write_text(json.dumps({**values, "class_name": "os.system"}))
    with pytest.raises(ValueError, match="class_name must be one of .* got 'os.system'"):
        load_backbone(tmp_path / "preset")
