"""Backbones of tiny models of the Transformers library compute what they do there, and are written as they were."""

import json
from pathlib import Path

import numpy as np
import pytest
from keras import ops
from safetensors import safe_open

from zoo.huggingface import load_backbone, read_config, write_backbone
from zoo.tasks.causal_lm import CausalLM

REFERENCE = Path(__file__).parents[2] / "reference" / "huggingface"
CASES = sorted(path.name for path in REFERENCE.iterdir())
HEADS = ("classifier", "question_answerer", "discriminator")
LANGUAGE_MODELS = [
    case for case in CASES if read_config(REFERENCE / case).architecture == "decoder" and not case.endswith(HEADS)
]
GOLDEN = "golden.npz"
# "dynamic" depends there on the text at hand and here on max_length, so that of the text is given
OVERRIDES = {"llama_dynamic": {"max_length": 9}}
# float32, other orders of summation, three to five layers deep
TOLERANCE = {"atol": 2e-5, "rtol": 2e-5}


def array(x):
    return ops.convert_to_numpy(x)


def family_of(case):
    """The `model_type` of a case."""
    return json.loads((REFERENCE / case / "config.json").read_text())["model_type"]


def stored(directory):
    """All tensors of a directory by name."""
    tensors = {}
    for path in directory.glob("*.safetensors"):
        with safe_open(path, "np") as file:
            tensors |= {name: np.asarray(file.get_tensor(name), "float32") for name in file.keys()}
    return tensors


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_those_of_the_library(case, golden):
    backbone = load_backbone(REFERENCE / case, **OVERRIDES.get(case, {}))
    inputs, expected = golden(case)
    outputs = backbone(inputs)
    hidden, mask = outputs, inputs.get("padding_mask", inputs.get("decoder_padding_mask"))
    if isinstance(outputs, dict):
        hidden, encoder_mask = outputs["decoder_sequence_output"], inputs["encoder_padding_mask"]
        memory = array(outputs["encoder_sequence_output"])
        expected_memory = expected["encoder_last_hidden_state"]
        np.testing.assert_allclose(memory[encoder_mask], expected_memory[encoder_mask], **TOLERANCE)
    if "hidden" in expected:  # of the same width
        np.testing.assert_allclose(array(hidden)[mask], expected["hidden"][mask], **TOLERANCE)
    if case in LANGUAGE_MODELS or (isinstance(outputs, dict) and not case.endswith(HEADS)):
        np.testing.assert_allclose(array(backbone.logits(hidden))[mask], expected["logits"][mask], **TOLERANCE)
    if "pooler_output" in expected:
        np.testing.assert_allclose(array(backbone.pool(hidden)), expected["pooler_output"], **TOLERANCE)


# in "phi3_long" what is behind a token changes it: the text is then longer than that of the first training
@pytest.mark.sampled(9)
@pytest.mark.parametrize("case", [case for case in LANGUAGE_MODELS if case != "phi3_long"])
def test_cached_decoding_gives_the_logits_of_the_library(case, golden):
    backbone = load_backbone(REFERENCE / case, **OVERRIDES.get(case, {}))
    inputs, expected = golden(case)
    state, constants = backbone.start_decoding({"padding_mask": inputs["padding_mask"]}, capacity=9)
    for index in range(9):
        logits, state = backbone.decode_step(inputs["token_ids"][:, index], index, state, constants)
        real = inputs["padding_mask"][:, index]
        np.testing.assert_allclose(array(logits)[real], expected["logits"][real, index], **TOLERANCE)


# longer texts than those of its first training have other frequencies: what it writes depends on how far it has come
BY_LENGTH = "phi3"
GREEDY = [case for case in LANGUAGE_MODELS if "greedy" in np.load(REFERENCE / case / GOLDEN)]


@pytest.mark.sampled(15)
@pytest.mark.parametrize("case", [case for case in GREEDY if case != BY_LENGTH])
def test_greedy_tokens_are_those_of_the_library(case, golden):
    backbone, tokens = load_backbone(REFERENCE / case), golden(case)[1]["greedy"]
    hidden = backbone({"token_ids": tokens, "padding_mask": np.ones_like(tokens, "bool")})
    best = array(backbone.logits(hidden)).argmax(-1)
    # each from those before it, all of them in one pass
    np.testing.assert_array_equal(best[:, 8:-1], tokens[:, 9:])


def test_greedy_tokens_beyond_the_trained_length(golden):
    task, tokens = CausalLM(load_backbone(REFERENCE / BY_LENGTH)), golden(BY_LENGTH)[1]["greedy"]
    # the shorter row goes on without what happens to the longer one
    prompts = [tokens[0, :9].tolist(), tokens[0, :12].tolist()]
    written = task.generate_tokens(prompts, max_new_tokens=64)["token_ids"]
    np.testing.assert_array_equal(written[0], tokens[0, 9:])
    np.testing.assert_array_equal(written[1, :61], tokens[0, 12:])


@pytest.mark.parametrize(
    "case", ["t5", "t5_gated", "bart", "bart_uneven", "marian", "mbart", "m2m_100", "umt5", "blenderbot"]
)
def test_cached_decoding_of_encoder_decoders(case, golden):
    backbone = load_backbone(REFERENCE / case)
    inputs, expected = golden(case)
    state, constants = backbone.start_decoding(inputs, capacity=7)
    for index in range(inputs["decoder_token_ids"].shape[1]):
        logits, state = backbone.decode_step(inputs["decoder_token_ids"][:, index], index, state, constants)
        real = inputs["decoder_padding_mask"][:, index]
        np.testing.assert_allclose(array(logits)[real], expected["logits"][real, index], **TOLERANCE)


@pytest.mark.parametrize("case", ["mt5", "bart_uneven", "mbart", "marian", "pegasus", "m2m_100", "umt5", "blenderbot"])
def test_greedy_tokens_of_encoder_decoders(case, golden):
    backbone = load_backbone(REFERENCE / case)
    inputs, expected = golden(case)
    tokens = expected["greedy"]
    assert tokens.shape == (1, 65)
    side = {name: array[:1] for name, array in inputs.items() if name.startswith("encoder")}
    # each token is the likeliest after those before it
    decoded = {"decoder_token_ids": tokens[:, :-1], "decoder_padding_mask": np.ones((1, 64), "bool")}
    logits = array(backbone.logits(backbone({**side, **decoded})["decoder_sequence_output"]))
    np.testing.assert_array_equal(logits.argmax(-1), tokens[:, 1:])


@pytest.mark.sampled(33)
@pytest.mark.parametrize(
    "case",
    [
        "bert_base",
        "roberta_masked_lm",
        "bart",
        "mbart",
        "marian",
        "pegasus",
        "m2m_100",
        "m2m_100_unscaled",
        "blenderbot",
        "blenderbot_unscaled",
        *(case for case in LANGUAGE_MODELS if case not in ("llama", "llama_dynamic")),  # stored in half precision
    ],
)
def test_written_as_it_was(case, tmp_path):
    backbone, family = load_backbone(REFERENCE / case), family_of(case)
    assert write_backbone(backbone, tmp_path / "model", model_type=family) == family
    theirs, ours = stored(REFERENCE / case), stored(tmp_path / "model")
    for name, tensor in theirs.items():
        if name.removeprefix("roberta.") in ours:  # the base model without its head
            np.testing.assert_array_equal(ours.pop(name.removeprefix("roberta.")), tensor)
        else:
            assert name.startswith("lm_head.")
    assert not ours
    # only keys that the library itself writes, older names of the same, and keys of generation
    known = set(json.loads((REFERENCE / case / "config.json").read_text()))
    written = set(json.loads((tmp_path / "model" / "config.json").read_text()))
    rotary = {
        "rope_theta",
        "rope_scaling",
        "partial_rotary_factor",
        "rotary_emb_base",
        "rotary_pct",
        "rope_local_base_freq",
    }
    assert written - known <= {"bos_token_id", "num_experts", *rotary}
    again = load_backbone(tmp_path / "model")
    for first, second in zip(again.weights, backbone.weights, strict=True):
        np.testing.assert_array_equal(array(first), array(second))
    assert again.config.to_dict() == backbone.config.to_dict()


@pytest.mark.parametrize("case", ["llama", "llama_dynamic", "t5", "t5_gated", "modernbert_masked_lm", "bert_base"])
def test_family_is_found(case, tmp_path, golden):
    backbone = load_backbone(REFERENCE / case, **OVERRIDES.get(case, {}))
    assert write_backbone(backbone, tmp_path / "model") == case.split("_")[0]
    again, (inputs, _) = load_backbone(tmp_path / "model"), golden(case)
    outputs = [model(inputs) for model in (backbone, again)]
    if isinstance(outputs[0], dict):
        outputs = [output["decoder_sequence_output"] for output in outputs]
    np.testing.assert_array_equal(array(outputs[0]), array(outputs[1]))


def test_dynamic_positions_start_from_the_longest_sequence(copy, golden, tmp_path):
    """The library takes `max_position_embeddings` for the trained length, whatever is given beside it."""
    given = {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 50.0, "original_max_position_embeddings": 2}
    folder = copy("llama_dynamic", rope_parameters=given)
    backbone, (inputs, expected) = load_backbone(folder, max_length=9), golden("llama_dynamic")
    mask = inputs["padding_mask"]
    np.testing.assert_allclose(array(backbone(inputs))[mask], expected["hidden"][mask], **TOLERANCE)
    # the frequencies of one length are those of another base
    write_backbone(backbone, tmp_path / "longer")
    values = json.loads((tmp_path / "longer" / "config.json").read_text())
    assert "rope_scaling" not in values and values["max_position_embeddings"] == 9
    np.testing.assert_allclose(values["rope_theta"], 50.0 * (3.0 * 9 / 4 - 2.0) ** (4 / 2), rtol=1e-12)
    np.testing.assert_allclose(
        array(load_backbone(tmp_path / "longer")(inputs))[mask], expected["hidden"][mask], **TOLERANCE
    )
    write_backbone(load_backbone(folder), tmp_path / "same")
    values = json.loads((tmp_path / "same" / "config.json").read_text())
    assert values["rope_scaling"] == {"rope_type": "dynamic", "factor": 3.0}
    assert load_backbone(tmp_path / "same").config == load_backbone(folder).config
