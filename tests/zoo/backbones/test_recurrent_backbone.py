"""The recurrent encoder-decoder: padding, cached decoding, training on its own output, sizes."""

import keras
import numpy as np
import pytest
from keras import ops

import zoo
from zoo.backbones.recurrent import RecurrentSeq2Seq
from zoo.config import RecurrentConfig

SIZES = {"vocabulary_size": 30, "embedding_dim": 6, "hidden_dim": 6}
LUONG = {"attention": "current_state", "readout": "attentional"}
CONFIGS = {
    "fixed_context": {"bridge": "context", "context_input": True, "readout": "maxout", "reset_after": False},
    "bahdanau": {"attention": "previous_state", "bridge": "backward", "readout": "maxout", "share_embeddings": True},
    "luong": {**LUONG, "score": "bilinear", "tie_output": True, "encoder_dim": 4},
    "luong_local_feeding": {**LUONG, "cell": "lstm", "num_layers": 2, "window": 2, "input_feeding": True},
}


def make(name, **options):
    backbone = RecurrentSeq2Seq(RecurrentConfig(**{**SIZES, **CONFIGS[name], **options}))
    rng = np.random.default_rng(1)
    for weight in backbone.trainable_variables:
        weight.assign(0.7 * rng.normal(size=weight.shape))
    return backbone


def inputs(rng):
    source_lengths, target_lengths = np.array([[7], [3], [1]]), np.array([[5], [2], [4]])
    return {
        "encoder_token_ids": rng.integers(3, 30, (3, 7)).astype("int32"),
        "encoder_padding_mask": np.arange(7) < source_lengths,
        "decoder_token_ids": rng.integers(3, 30, (3, 5)).astype("int32"),
        "decoder_padding_mask": np.arange(5) < target_lengths,
    }


@pytest.fixture
def batch():
    return inputs(np.random.default_rng(0))


@pytest.mark.parametrize("name", CONFIGS)
def test_padded_row_is_the_row_alone(name, batch):
    backbone = make(name)
    outputs = backbone(batch)
    logits = np.asarray(backbone.logits(outputs["decoder_sequence_output"]))
    assert outputs["encoder_sequence_output"].shape == (3, 7, backbone.config.memory_dim)
    assert outputs["decoder_sequence_output"].shape == (3, 5, backbone.config.readout_width)
    for row in range(3):
        source, target = (int(batch[f"{side}_padding_mask"][row].sum()) for side in ("encoder", "decoder"))
        lengths = {"encoder": source, "decoder": target}
        alone = {key: value[row : row + 1, : lengths[key.split("_")[0]]] for key, value in batch.items()}
        expected = backbone.logits(backbone(alone)["decoder_sequence_output"])
        np.testing.assert_allclose(logits[row, :target], expected[0], atol=2e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_decoding_is_the_full_pass(name, batch):
    backbone = make(name)
    logits = backbone.logits(backbone(batch)["decoder_sequence_output"])
    weights = backbone.attention_weights(batch)
    state, constants = backbone.start_decoding(batch, 5)
    for index in range(5):
        step_logits, state = backbone.decode_step(batch["decoder_token_ids"][:, index], index, state, constants)
        np.testing.assert_allclose(step_logits, logits[:, index], atol=2e-5)
    if name == "fixed_context":
        assert weights == {}
        return
    (cross,) = weights["cross"]
    assert cross.shape == (3, 1, 5, 7)
    for row, length in enumerate((7, 3, 1)):
        np.testing.assert_array_equal(cross[row, :, :, length:], 0)
        if backbone.config.window is None:
            np.testing.assert_allclose(ops.sum(cross[row], axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_free_running_reads_its_own_tokens(name, batch):
    """In training it sees what greedy decoding would see, whatever the target."""
    backbone = make(name, feeding="free_running")
    hidden = backbone(batch, training=True)["decoder_sequence_output"]
    state, constants = backbone.start_decoding(batch, 5)
    tokens, chosen = batch["decoder_token_ids"][:, 0], []
    for index in range(5):
        logits, state = backbone.decode_step(tokens, index, state, constants)
        np.testing.assert_allclose(backbone.logits(hidden)[:, index], logits, atol=2e-5)
        tokens = np.argmax(logits, axis=-1).astype("int32")
        chosen.append(tokens)
    assert len(np.unique(chosen)) > 1
    other = {**batch, "decoder_token_ids": batch["decoder_token_ids"].copy()}
    other["decoder_token_ids"][:, 1:] = 4
    np.testing.assert_array_equal(backbone(other, training=True)["decoder_sequence_output"], hidden)
    # at inference, and in validation, the tokens that are given
    forced = make(name)
    np.testing.assert_array_equal(backbone(batch)["decoder_sequence_output"], forced(batch)["decoder_sequence_output"])


def test_sampling_its_own_tokens(batch):
    backbone = make("bahdanau", feeding="free_running", feeding_choice="sample")
    first, second = (np.asarray(backbone(batch, training=True)["decoder_sequence_output"]) for _ in range(2))
    # the first position depends on nothing that was drawn
    np.testing.assert_array_equal(first[:, 0], second[:, 0])
    assert np.abs(first[:, 1:] - second[:, 1:]).max() > 1e-3


def test_scheduled_sampling_goes_from_one_to_the_other(batch):
    options = {"schedule": "linear", "schedule_constant": 1.0, "schedule_slope": 0.5}
    backbone = make("luong", feeding="scheduled_sampling", **options)

    def run():
        return np.asarray(backbone(batch, training=True)["decoder_sequence_output"])

    forced = np.asarray(make("luong")(batch)["decoder_sequence_output"])
    free = np.asarray(make("luong", feeding="free_running")(batch, training=True)["decoder_sequence_output"])
    np.testing.assert_allclose(run(), forced, atol=1e-5)
    run()
    np.testing.assert_allclose(run(), free, atol=1e-5)
    assert np.abs(forced - free).max() > 1e-3
    backbone(batch)
    assert int(backbone.sampling.batches) == 3


def test_sizes_of_presets():
    def gru(inputs, units, biases):
        return 3 * units * (inputs + units + biases)

    def lstm(inputs, units):
        return 4 * units * (inputs + units + 1)

    search = 2 * 30000 * 620 + 2 * gru(620, 1000, 1) + gru(620 + 2000, 1000, 1) + 1000 * (1000 + 1)
    search += 1000 * (1000 + 2000 + 1) + 1000 * (1000 + 2000 + 620 + 1) + 30000 * (500 + 1)
    deep = 2 * (lstm(1000, 1000) * 4)
    feeding = deep + 4 * 1000 * 1000 + 2 * 50000 * 1000 + 2000 * 1000 + 50000 * (1000 + 1)
    cho = 2 * 15000 * 100 + gru(100, 1000, 1) + gru(1100, 1000, 1) + 2 * 1000 * 1001
    cho += 1000 * (1000 + 1000 + 100 + 1) + 15000 * 501
    expected = {
        "rnn_fixed_context": cho,
        "lstm_fixed_context": deep + 2 * 80000 * 1000 + 80000 * 1001,
        "rnnsearch": search,
        "luong_global": feeding,
        "luong_local": feeding + 1000 * 1000 + 1000 * 1000 + 1000,
    }
    assert {name: zoo.list_presets()[name].parameter_count() for name in expected} == expected


def test_wrong_inputs(batch):
    mask = batch["decoder_padding_mask"]
    with pytest.raises(ValueError, match="decoder_padding_mask must .*on the right, got a token behind .* row 1"):
        make("bahdanau")({**batch, "decoder_padding_mask": mask[:, ::-1]})
    batch.pop("decoder_padding_mask")
    with pytest.raises(ValueError, match="inputs must have the keys .*'decoder_padding_mask'"):
        make("luong")(batch)


def test_configuration_survives():
    backbone = make("luong")
    copy = zoo.Backbone.from_config(backbone.get_config())
    assert isinstance(copy, RecurrentSeq2Seq) and copy.config == backbone.config
    assert [weight.path.split("/", 1)[1] for weight in copy.weights] == [
        weight.path.split("/", 1)[1] for weight in backbone.weights
    ]


@pytest.mark.parametrize("name", ["bahdanau", "luong"])
def test_one_program_for_all_lengths(name):
    tf = pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("JAX compiles for each shape.")
    backbone, traces = make(name), []

    @tf.function(
        input_signature=[
            {
                f"{side}_{name}": tf.TensorSpec((None, None), dtype)
                for side in ("encoder", "decoder")
                for name, dtype in (("token_ids", tf.int32), ("padding_mask", tf.bool))
            }
        ]
    )
    def step(batch):
        traces.append(1)
        with tf.GradientTape() as tape:
            hidden = backbone(batch, training=True)["decoder_sequence_output"]
            loss = tf.reduce_sum(tf.square(backbone.logits(hidden)))
        return tape.gradient(loss, [variable.value for variable in backbone.trainable_variables])

    for length in (3, 6):
        ids, mask = np.full((2, length), 5, "int32"), np.ones((2, length), "bool")
        sides = {
            f"{side}_{key}": x
            for side in ("encoder", "decoder")
            for key, x in (("token_ids", ids), ("padding_mask", mask))
        }
        gradients = step(sides)
        assert all(gradient is not None for gradient in gradients)
    assert len(traces) == 1


def test_what_a_resumed_training_needs_is_among_the_variables():
    options = {"schedule": "exponential", "schedule_constant": 0.9, "feeding_choice": "sample", "dropout": 0.1}
    backbone = make("luong", feeding="scheduled_sampling", **options)
    known = {id(variable) for variable in backbone.variables}
    sampling = backbone.sampling
    needed = [sampling.batches, *(part.seed_generator.state for part in (sampling, backbone.decoder, backbone))]
    assert all(id(variable) in known for variable in needed)
    # the count is a weight, which files of weights hold too
    assert any(weight is sampling.batches for weight in backbone.weights)
