"""Rows that come and go write what the same prompts give alone."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

from zoo import (
    AttentionConfig,
    Backbone,
    FeedForwardConfig,
    MixerConfig,
    NormConfig,
    PositionConfig,
    RecurrentConfig,
    TransformerConfig,
)
from zoo.generation import (
    Engine,
    FrequencyPenalty,
    GenerationOptions,
    Greedy,
    LogitBias,
    MinimumLength,
    PresencePenalty,
    Sample,
)
from zoo.generation.row_adjustments import RowAdjustments
from zoo.generation.rows import RowDecoder
from zoo.generation.samplers import SampleByRow

SIZE, CAPACITY, ROWS = 23, 48, 3
ENDS = (1, 7, 12)
KINDS = {
    "rotary": {"position": PositionConfig("rotary"), "attention": AttentionConfig(4, num_key_value_heads=2)},
    "learned": {"position": PositionConfig("learned"), "attention": AttentionConfig(2)},
    "window": {
        "position": PositionConfig("rotary"),
        "attention": AttentionConfig(4, num_key_value_heads=2, window=(4, 0), window_layers=(True, False)),
    },
    "short_convolution": {
        "position": PositionConfig("rotary"),
        "attention": AttentionConfig(2),
        "mixer": MixerConfig("short_convolution", layers=(True, False)),
    },
    "gated_delta_rule": {
        "position": PositionConfig("rotary"),
        "attention": AttentionConfig(2),
        "mixer": MixerConfig("gated_delta_rule", layers=(True, False), num_heads=2, key_dim=6),
    },
    # no layer has keys and values
    "state_space": {
        "position": PositionConfig("none"),
        "mixer": MixerConfig("state_space", num_heads=4, num_key_heads=2, key_dim=6),
    },
    "alibi": {"position": PositionConfig("alibi"), "attention": AttentionConfig(2)},
    "sinusoidal": {"position": PositionConfig("sinusoidal"), "attention": AttentionConfig(2)},
    "relative_bias": {"position": PositionConfig("relative_bias"), "attention": AttentionConfig(2)},
}


def make_backbone(kind):
    keras.utils.set_random_seed(3)
    config = TransformerConfig(
        "decoder",
        vocabulary_size=SIZE,
        hidden_dim=16,
        num_layers=2,
        max_length=64,
        feed_forward=FeedForwardConfig(32),
        norm=NormConfig(kind="rms", placement="pre"),
        **KINDS[kind],
    )
    backbone = Backbone.from_config(config)
    generator = np.random.default_rng(5)
    for weight in backbone.weights:  # so that texts are neither constant nor endless
        weight.assign(weight + generator.normal(0, 0.4, weight.shape).astype("float32"))
    return backbone


@dataclasses.dataclass
class Text:
    prompt: list
    seed: int
    limit: int
    sampler: object
    # presence and frequency penalty, biases, and least number of tokens
    adjustments: tuple = (0.0, 0.0, {}, 0)
    written: list = dataclasses.field(default_factory=list)
    score: float = 0.0


def settings_of(sampler):
    """Temperature, top_k, top_p and min_p of a row."""
    if isinstance(sampler, Greedy):
        return 0.0, 0, 1.0, 0.0
    return sampler.temperature, sampler.top_k or 0, sampler.top_p, sampler.min_p


def texts_of(generator, count):
    """Prompts of all lengths with settings of all kinds."""
    samplers = [Greedy(), Sample(1.3), Sample(0.9, top_k=7), Sample(1.1, top_p=0.9), Sample(1.2, 12, 0.95, 0.02)]
    return [
        Text(
            generator.integers(2, SIZE, int(generator.integers(1, 20))).tolist(),
            int(generator.integers(0, 2**32)),
            int(generator.integers(1, 24)),
            samplers[number % len(samplers)],
        )
        for number in range(count)
    ]


def run(backbone, texts, generator):
    """Writes the texts in `ROWS` rows: each begins, in pieces, when a row is free."""
    decoder = RowDecoder(backbone)
    state = decoder.empty(ROWS, CAPACITY)
    waiting, places = list(texts), [None] * ROWS
    while waiting or any(places):
        for row in range(ROWS):
            if places[row] is None and waiting:
                places[row] = text = waiting.pop(0)
                one = decoder.empty(1, CAPACITY)
                fed = 0
                while fed < len(text.prompt) - 1:
                    ids = text.prompt[fed : len(text.prompt) - 1][: int(generator.integers(1, 8))]
                    padded = ops.convert_to_tensor([ids + [0] * (8 - len(ids))], dtype="int32")
                    one = decoder.begin(padded, ops.convert_to_tensor([len(ids)]), ops.convert_to_tensor([fed]), one)
                    fed += len(ids)
                state = [ops.scatter_update(a, [[row]], b) for a, b in zip(state, one, strict=True)]

        def column(of, dtype, rest=0):
            return ops.convert_to_tensor([rest if text is None else of(text) for text in places], dtype=dtype)

        def matrix(of, dtype):
            rows = [[] if text is None else of(text) for text in places]
            width = max(1, *map(len, rows))
            return ops.convert_to_tensor([row + [-1] * (width - len(row)) for row in rows], dtype=dtype)

        last = column(lambda text: (text.prompt + text.written)[-1], "int32")
        index = column(lambda text: len(text.prompt) + len(text.written) - 1, "int32")
        settings = [
            column(lambda text, place=place: settings_of(text.sampler)[place], dtype)
            for place, dtype in enumerate(("float32", "int32", "float32", "float32"))
        ]
        result = decoder.advance(
            state,
            last,
            index,
            column(lambda text: len(text.written), "int32"),
            column(lambda text: text.limit, "int32"),
            ops.convert_to_tensor([[*ENDS, -1]] * ROWS, dtype="int32"),
            column(lambda text: text.seed, "int64" if keras.backend.backend() == "tensorflow" else "uint32"),
            column(lambda text: 0, "int32"),
            *settings,
            matrix(lambda text: text.written if any(text.adjustments[:2]) else [], "int32"),
            column(lambda text: text.adjustments[0], "float32"),
            column(lambda text: text.adjustments[1], "float32"),
            matrix(lambda text: list(text.adjustments[2]), "int32"),
            matrix(lambda text: list(text.adjustments[2].values()), "float32"),
            column(lambda text: text.adjustments[3], "int32"),
            ops.zeros((ROWS, 0), dtype="int32"),
            ops.convert_to_tensor(0, dtype="int32"),
            ops.convert_to_tensor(int(generator.integers(1, 6)), dtype="int32"),
        )
        state = result["state"]
        ids, scores, lengths, ended = (
            ops.convert_to_numpy(result[name]) for name in ("token_ids", "log_probabilities", "lengths", "ended")
        )
        for row, text in enumerate(places):
            if text is not None:
                text.written += ids[row, : lengths[row]].tolist()
                assert (ids[row, lengths[row] :] == -1).all()
                text.score += scores[row].sum()
                if ended[row] or len(text.written) == text.limit:
                    places[row] = None
            else:
                assert lengths[row] == 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    # "window" has rotary positions and a layer without a window, too
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind != "window")) for kind in KINDS],
)
def test_rows_that_come_and_go_write_what_each_writes_alone(kind):
    backbone, generator = make_backbone(kind), np.random.default_rng(7)
    texts = texts_of(generator, 10)
    run(backbone, texts, generator)
    ended = 0
    for text in texts:
        options = GenerationOptions(text.limit, sampler=text.sampler, end_ids=ENDS, jit_compile=False)
        alone = Engine(backbone).begin([text.prompt], options, seed=text.seed).advance().result()
        assert text.written == alone["token_ids"][0, : alone["lengths"][0]].tolist()
        np.testing.assert_allclose(text.score, alone["log_probabilities"][0], rtol=1e-4, atol=1e-4)
        ended += text.written[-1] in ENDS
    assert 0 < ended < len(texts)  # both kinds of ends have been seen


def test_a_state_that_tokens_change_as_a_whole_rests_with_its_row():
    decoder = RowDecoder(make_backbone("gated_delta_rule"))
    token_ids, lengths = ops.reshape(ops.arange(8, dtype="int32"), (2, 4)), ops.convert_to_tensor([4, 2], "int32")
    number, nothing, none = ops.ones(2), ops.zeros(2, "int32"), ops.full((2, 1), -1, "int32")
    state = decoder.begin(token_ids, lengths, nothing, decoder.empty(2, 16))
    after = decoder.advance(
        state,
        token_ids[:, 0],
        lengths,
        nothing,
        limits=ops.convert_to_tensor([2, 0], "int32"),  # the second row rests
        end_ids=none,
        seeds=ops.zeros(2, "int64" if keras.backend.backend() == "tensorflow" else "uint32"),
        streams=nothing,
        temperature=0 * number,
        top_k=nothing,
        top_p=number,
        min_p=0 * number,
        written=none,
        presence_penalty=0 * number,
        frequency_penalty=0 * number,
        bias_ids=none,
        biases=ops.zeros((2, 1)),
        min_tokens=nothing,
        allowed=ops.zeros((2, 0), "int32"),
        alternatives=ops.convert_to_tensor(0, "int32"),
        steps=ops.convert_to_tensor(2, "int32"),
    )
    whole = [number for number, tensor in enumerate(decoder.tensors) if "slots" not in tensor.shape]
    assert whole == [1]
    before, after = (ops.convert_to_numpy(each[1]) for each in (state, after["state"]))
    np.testing.assert_array_equal(after[1], before[1])
    assert np.abs(after[0] - before[0]).max() > 1e-3


@pytest.mark.slow
def test_adjustments_of_rows_are_those_of_processors():
    backbone, generator = make_backbone("window"), np.random.default_rng(11)
    texts = texts_of(generator, 10)
    kinds = [
        (1.5, 0.0, {}, 0),
        (0.0, 0.8, {}, 12),
        (-0.7, 0.3, {3: 2.5, 9: -4.0, 7: 1.0}, 0),
        (0.0, 0.0, {5: 100.0, 1: -100.0}, 4),
        (0.0, 0.0, {}, 0),
        (0.0, 0.0, {}, 20),
    ]
    for number, text in enumerate(texts):
        text.limit, text.adjustments = 24, kinds[number % len(kinds)]
    run(backbone, texts, generator)
    changed = 0
    for text in texts:
        presence, frequency, biases, least = text.adjustments
        processors = (
            *[PresencePenalty(presence)] * (presence != 0),
            *[FrequencyPenalty(frequency)] * (frequency != 0),
            *[LogitBias(biases)] * bool(biases),
            *[MinimumLength(least)] * bool(least),
        )

        def alone(processors, text=text):
            options = GenerationOptions(
                text.limit, sampler=text.sampler, processors=processors, end_ids=ENDS, jit_compile=False
            )
            result = Engine(backbone).begin([text.prompt], options, seed=text.seed).advance().result()
            return result["token_ids"][0, : result["lengths"][0]].tolist()

        assert text.written == alone(processors)
        assert len(text.written) >= least
        changed += bool(processors) and text.written != alone(())
    assert changed > 5


def begun(decoder, prompts):
    """The state and the last tokens of prompts of one length."""
    prompts = np.array(prompts, "int32")
    rows, length = prompts.shape
    index = ops.zeros((rows,), dtype="int32")
    counts = ops.full((rows,), length - 1, dtype="int32")
    state = decoder.begin(prompts[:, :-1], counts, index, decoder.empty(rows, CAPACITY))
    return state, ops.convert_to_tensor(prompts[:, -1]), counts


def advance(decoder, prompts, *, allowed=None, alternatives=0, steps=1, places=0, min_tokens=0, compiled=False):
    """Greedy tokens behind prompts of one length."""
    rows = len(prompts)
    nothing, zeros = ops.full((rows, 1), -1, dtype="int32"), ops.zeros((rows,), dtype="int32")
    none = ops.zeros((rows,), dtype="float32")
    allowed = np.zeros((rows, 0)) if allowed is None else allowed
    inputs = (
        *begun(decoder, prompts),
        zeros + places,
        zeros + 40,
        ops.convert_to_tensor([[*ENDS]] * rows, dtype="int32"),
        ops.cast(zeros, "int64"),
        zeros,
        none,
        zeros,
        none + 1,
        none,
        nothing,
        none,
        none,
        nothing,
        ops.zeros((rows, 1), dtype="float32"),
        zeros + min_tokens,
        ops.convert_to_tensor(np.asarray(allowed, "int64").astype("int32")),
        ops.convert_to_tensor(alternatives, dtype="int32"),
    )
    if compiled and keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # as in an export, where no number of words is known
        function = tf.function(lambda *inputs: decoder.advance(*inputs, steps=steps), reduce_retracing=True)
        specs = [tf.TensorSpec([None] * len(each.shape), each.dtype) for each in inputs[1:]]
        state = [tf.TensorSpec(each.shape, each.dtype) for each in inputs[0]]
        return function.get_concrete_function(state, *specs)(*inputs)
    return decoder.advance(*inputs, steps=steps)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("compiled", [False, True])
def test_the_most_probable_tokens_are_those_of_the_whole_text(compiled):
    backbone = make_backbone("window")
    prompts = [[4, 9, 3, 15], [20, 2, 2, 18]]
    result = advance(RowDecoder(backbone), prompts, alternatives=5, steps=6, compiled=compiled)
    ids, scores, lengths = (ops.convert_to_numpy(result[n]) for n in ("token_ids", "log_probabilities", "lengths"))
    best, values = (ops.convert_to_numpy(result[f"alternative_{n}"]) for n in ("ids", "log_probabilities"))
    assert best.shape == values.shape == (2, 6, 5)
    for row, prompt in enumerate(prompts):
        whole = np.array([prompt + ids[row, : lengths[row]].tolist()])
        hidden = backbone({"token_ids": whole, "padding_mask": np.ones_like(whole, bool)})
        logits = ops.convert_to_numpy(backbone.logits(hidden))[0, len(prompt) - 1 : -1].astype("float64")
        expected = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        order = np.argsort(-expected, axis=-1)[:, :5]
        np.testing.assert_array_equal(best[row, : lengths[row]], order)
        kept = np.take_along_axis(expected, order, axis=-1)
        np.testing.assert_allclose(values[row, : lengths[row]], kept, rtol=1e-4, atol=1e-4)
        # a greedy token is the first of them, and its number is the same number
        np.testing.assert_array_equal(values[row, : lengths[row], 0], scores[row, : lengths[row]])


def words_of(allowed):
    """The bits of sets of tokens, by Python's integers."""
    numbers = [sum(1 << token for token in tokens) for tokens in allowed]
    return [[number & 0xFFFFFFFF] for number in numbers]


@pytest.mark.sampled(1)
@pytest.mark.backends
@pytest.mark.parametrize("compiled", [False, True])
def test_rows_go_on_with_allowed_tokens_alone(compiled):
    backbone = make_backbone("window")
    decoder, prompts = RowDecoder(backbone), [[4, 9, 3], [20, 2, 2], [5, 5, 6]]
    ids = np.array(prompts)
    hidden = backbone({"token_ids": ids, "padding_mask": np.ones_like(ids, bool)})
    logits = ops.convert_to_numpy(backbone.logits(hidden))[:, -1]
    generator, seen = np.random.default_rng(2), set()
    for _ in range(5):
        allowed = [set(generator.choice(SIZE, 4, replace=False).tolist()), set(range(SIZE)), {int(SIZE - 1)}]
        result = advance(decoder, prompts, allowed=words_of(allowed), compiled=compiled)
        chosen = ops.convert_to_numpy(result["token_ids"])[:, 0].tolist()
        assert chosen == [
            max(tokens, key=lambda token, row=row: logits[row, token]) for row, tokens in enumerate(allowed)
        ]
        seen.add(chosen[0])
    assert len(seen) > 1


def test_bits_of_larger_vocabularies():
    """Token t is bit t % 32 of word t // 32, the sign of a word included."""
    allowed = {31, 32, 63, 64, 95, 99}
    words = [sum(1 << (token % 32) for token in allowed if token // 32 == word) for word in range(4)]
    adjust = RowAdjustments(*[ops.zeros((1,))] * 8, ops.convert_to_tensor(np.array([words], "uint32").view("int32")))
    logits = ops.convert_to_numpy(adjust._allowed_alone(ops.zeros((1, 100))))[0]
    assert set(np.flatnonzero(logits == 0)) == allowed
    assert set(np.unique(logits)) == {0, -np.inf}


def test_state_has_names_and_sizes():
    tensors = RowDecoder(make_backbone("window")).tensors
    assert [(tensor.name, tensor.shape, tensor.most_slots) for tensor in tensors] == [
        ("caches_0_key", ("rows", 2, "slots", 4), 5),
        ("caches_0_value", ("rows", 2, "slots", 4), 5),
        ("caches_1_key", ("rows", 2, "slots", 4), None),
        ("caches_1_value", ("rows", 2, "slots", 4), None),
    ]


def test_a_model_whose_rows_go_together_is_refused():
    config = RecurrentConfig(SIZE)
    with pytest.raises(ValueError, match="backbone must be a decoder whose rows can be at places of their own"):
        RowDecoder(Backbone.from_config(config))


@pytest.mark.backends
@pytest.mark.parametrize(
    "sampler",
    [
        Sample(0.7),
        Sample(1.5, top_k=1),
        Sample(1.5, top_k=3),
        Sample(1.0, top_p=0.5),
        Sample(2.0, min_p=0.1),
        Sample(0.8, 5, 0.7, 0.05),
    ],
)
def test_choice_is_that_of_the_sampler(sampler):
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 3, (200, 300)).astype("float32")
    logits[:20] = np.round(logits[:20])  # ties
    numbers = generator.uniform(0, 1, 200).astype("float32")
    settings = zip(settings_of(sampler), ("float32", "int32", "float32", "float32"), strict=True)
    columns = [ops.full((200, 1), value, dtype=dtype) for value, dtype in settings]
    chosen = SampleByRow(*columns).choose(ops.convert_to_tensor(logits), ops.convert_to_tensor(numbers))
    expected = sampler.choose(ops.convert_to_tensor(logits), ops.convert_to_tensor(numbers))
    np.testing.assert_array_equal(ops.convert_to_numpy(chosen), ops.convert_to_numpy(expected))


@pytest.mark.backends
@pytest.mark.parametrize("temperature", [1e-45, 1e-39, 1e-38, 1e-8])
def test_the_smallest_temperatures_take_the_most_probable_token(temperature):
    """Also where their inverse is larger than every number of float32."""
    logits = np.random.default_rng(0).normal(0, 3, (4, SIZE)).astype("float32")
    rows = np.ones(4, "float32")
    columns = (rows * np.float32(temperature), rows.astype("int32") * 5, rows * np.float32(0.9), rows * 0)
    columns = (ops.convert_to_tensor(values[:, None]) for values in columns)
    chosen = SampleByRow(*columns).choose(ops.convert_to_tensor(logits), ops.convert_to_tensor(rows * 0.99))
    assert ops.convert_to_numpy(chosen).tolist() == logits.argmax(axis=-1).tolist()
    expected = Sample(temperature, top_k=5, top_p=0.9).choose(ops.convert_to_tensor(logits), rows * 0.99)
    assert ops.convert_to_numpy(expected).tolist() == logits.argmax(axis=-1).tolist()
