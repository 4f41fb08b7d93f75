import dataclasses
import json
from typing import ClassVar

import keras
import numpy as np
import pytest
from keras import ops

from zoo.generation import (
    Beam,
    Contrastive,
    GenerationOptions,
    Greedy,
    MinP,
    Sample,
    Sampler,
    Temperature,
    TopK,
    TopP,
    compiled,
    decode,
    get_sampler,
)
from zoo.generation.filters import nucleus
from zoo.generation.random import draw, uniforms


def restricted_distribution(logits, temperature=1.0, top_k=None, top_p=1.0, min_p=0.0, typical_p=1.0):
    """The restrictions by sorting, in float64: an independent formula."""
    logits = np.asarray(logits, "float64") / temperature
    order = np.argsort(-logits, kind="stable")
    kept = order[:top_k]
    p = np.exp(logits[kept] - logits.max())
    p /= p.sum()
    if top_p < 1:
        count = int(np.searchsorted(np.cumsum(p), top_p)) + 1  # the first place where the mass reaches top_p
        kept, p = kept[:count], p[:count]
    strong = p >= min_p * p.max()
    kept, p = kept[strong], p[strong]
    if typical_p < 1:
        p /= p.sum()
        order = np.argsort(np.abs(-np.log(p) + np.sum(p * np.log(p))), kind="stable")
        count = int(np.searchsorted(np.cumsum(p[order]), typical_p)) + 1
        kept, p = kept[order[:count]], p[order[:count]]
    result = np.zeros_like(logits)
    result[kept] = p / p.sum()
    return result


SAMPLERS = [
    Sample(),
    Sample(temperature=0.5),
    Sample(temperature=1.7),
    Sample(top_k=1),
    Sample(top_k=7),
    Sample(top_k=400),
    Sample(top_p=0.5),
    Sample(top_p=0.95),
    Sample(min_p=0.1),
    Sample(temperature=1.3, top_k=20, top_p=0.8),
    Sample(temperature=1.5, top_k=20, top_p=0.9, min_p=0.2),
    Sample(temperature=1.3, top_p=0.8, min_p=0.05),
    Sample(typical_p=0.6),
    Sample(top_k=20, top_p=0.9, typical_p=0.7),
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("size", [30, 300])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_frequencies(sampler, size):
    logits = np.random.default_rng(3).normal(0, 1.5, size).astype("float32")
    expected = restricted_distribution(logits, **sampler.get_config())
    count = 20_000
    numbers = uniforms(11, np.arange(count), 1)[0]
    tokens = ops.convert_to_numpy(sampler.choose(ops.tile(logits[None], (count, 1)), numbers))
    assert tokens.dtype == np.int32
    counts = np.bincount(tokens, minlength=size)
    np.testing.assert_array_equal(counts[expected == 0], 0)
    likely = expected * count >= 5  # Pearson's statistic needs some expected cases in each class
    statistic = np.sum((counts - expected * count)[likely] ** 2 / (expected * count)[likely])
    degrees = max(likely.sum() - 1, 1)
    assert statistic < degrees + 4 * np.sqrt(2 * degrees)
    assert counts[likely].sum() >= count * expected[likely].sum() - 4 * np.sqrt(count)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_a_number_is_the_share_of_the_tokens_before(sampler):
    """The token is where the running sum over the ids, from 0 on, passes the number."""
    logits = np.random.default_rng(4).normal(0, 1.5, (400, 30)).astype("float32")
    numbers = ops.convert_to_numpy(uniforms(1, np.arange(400), 1)[0])
    tokens = ops.convert_to_numpy(sampler.choose(ops.convert_to_tensor(logits), ops.convert_to_tensor(numbers)))
    for row in range(400):
        running = np.cumsum(restricted_distribution(logits[row], **sampler.get_config()))
        assert tokens[row] == np.searchsorted(running, numbers[row] * running[-1], side="right")


@pytest.mark.parametrize("size", [1, 2, 256, 257, 1000])
def test_draw_inverts_the_distribution_function(size):
    generator = np.random.default_rng(size)
    weights = generator.random((50, size)) * (generator.random((50, size)) < 0.5)
    weights[:, generator.integers(size)] += 0.1
    numbers = generator.random(50)
    numbers[:2] = 2.0**-24, 1 - 2.0**-24
    weights, numbers = weights.astype("float32"), numbers.astype("float32")
    chosen = ops.convert_to_numpy(draw(ops.convert_to_tensor(weights), ops.convert_to_tensor(numbers)))
    running = np.cumsum(weights.astype("float64"), axis=1) / weights.sum(axis=1, dtype="float64")[:, None]
    for row, index in enumerate(chosen):
        assert weights[row, index] > 0
        before = running[row, index - 1] if index else 0.0
        # float32 sums of up to 1,000 terms, taken in two levels
        assert before - 1e-6 <= numbers[row] <= running[row, index] + 1e-6


@pytest.mark.parametrize("top_p", [0.01, 0.3, 0.9, 0.999])
def test_nucleus_is_the_smallest_set(top_p):
    logits = np.random.default_rng(0).normal(0, 3, (40, 500)).astype("float32")
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    kept = ops.convert_to_numpy(nucleus(ops.convert_to_tensor(weights), top_p))
    p = weights.astype("float64") / weights.sum(axis=1, keepdims=True)
    for row in range(40):
        inside = p[row][kept[row]]
        assert inside.sum() >= top_p - 1e-6
        assert inside.sum() - inside.min() < top_p + 1e-6
        assert kept[row].all() or inside.min() > p[row][~kept[row]].max()


def test_nucleus_keeps_ties_together():
    kept = nucleus(ops.convert_to_tensor([[1.0, 0.5, 0.5, 0.5, 0.01]]), 0.5)
    assert ops.convert_to_numpy(kept).tolist() == [[True, True, True, True, False]]


def test_banned_tokens_are_never_drawn():
    logits = np.full((2000, 300), -np.inf, "float32")
    logits[:, [5, 299]] = 0.0
    numbers = uniforms(0, np.arange(2000), 1)[0]
    for sampler in (Sample(), Sample(top_k=10), Sample(top_p=0.99), Sample(top_k=10, top_p=0.99)):
        tokens = ops.convert_to_numpy(sampler.choose(ops.convert_to_tensor(logits), numbers))
        assert set(tokens.tolist()) == {5, 299}


def test_greedy_takes_the_first_of_equals():
    assert ops.convert_to_numpy(Greedy().choose(ops.convert_to_tensor([[0.0, 2.0, 2.0]]), None)).tolist() == [1]


@pytest.mark.parametrize(
    "sampler", [Greedy(), Sample(0.7, 40, 0.9, 0.05), Beam(5, 1.0, 2)], ids=lambda sampler: type(sampler).__name__
)
def test_serialization(sampler):
    text = json.dumps(keras.saving.serialize_keras_object(sampler))
    assert keras.saving.deserialize_keras_object(json.loads(text)) == sampler
    config = {"name": type(sampler).__name__.lower(), **sampler.get_config()}
    assert get_sampler(json.loads(json.dumps(config))) == sampler
    assert get_sampler(sampler) is sampler
    with pytest.raises(AttributeError):
        sampler.temperature = 2.0


def test_get_sampler():
    assert get_sampler("greedy") == Greedy()
    assert get_sampler("beam") == Beam(num_beams=4, length_penalty=0.6)
    with pytest.raises(ValueError, match=r"one of \['beam', 'contrastive', 'greedy', 'sample'\], got 'gready'"):
        get_sampler("gready")
    with pytest.raises(ValueError, match=r"sampler 'sample' must be among .*'top_k'.*got \['topk'\]"):
        get_sampler({"name": "sample", "topk": 3})
    with pytest.raises(TypeError, match="sampler must be a Sampler"):
        get_sampler(3)


@pytest.mark.parametrize(
    "kind, name, value",
    [
        (Sample, "temperature", 0),
        (Sample, "temperature", float("nan")),
        (Sample, "top_k", 0),
        (Sample, "top_k", 1.5),
        (Sample, "top_p", 0),
        (Sample, "top_p", 1.1),
        (Sample, "min_p", -0.1),
        (Sample, "min_p", True),
        (Beam, "num_beams", 0),
        (Beam, "length_penalty", float("inf")),
        (Beam, "num_results", 5),
        (Beam, "num_results", 0),
    ],
)
def test_bad_arguments(kind, name, value):
    with pytest.raises(ValueError, match=f"{name} must be .*got {value!r}"):
        kind(**{name: value})


@pytest.mark.parametrize("sampler", [Sample(0.7, min_p=1.0), Sample(0.7, top_p=1e-6), Sample(1.3, top_k=1)], ids=repr)
def test_the_best_token_always_stays(sampler):
    """Compilers round in different places: no rounding may remove the last token."""
    logits = np.random.default_rng(0).normal(0, 4, (500, 257)).astype("float32")
    numbers = uniforms(3, np.arange(500), 1)[0]
    for jit_compile in (False, True):
        weights = ops.convert_to_numpy(compiled(sampler.weights, jit_compile)(ops.convert_to_tensor(logits)))
        assert (weights.max(axis=1) > 0).all()
        tokens = compiled(sampler.choose, jit_compile)(ops.convert_to_tensor(logits), numbers)
        np.testing.assert_array_equal(ops.convert_to_numpy(tokens), logits.argmax(axis=1))


@pytest.mark.parametrize("sampler", [Sample(0.7, 40, 0.8, 0.1), Sample(1.3, min_p=0.3), Sample(top_p=0.7)], ids=repr)
def test_the_same_tokens_with_xla_and_without(sampler):
    logits = ops.convert_to_tensor(np.random.default_rng(1).normal(0, 3, (2000, 300)).astype("float32"))
    numbers = uniforms(9, np.arange(2000), 1)[0]
    plain, xla = (
        ops.convert_to_numpy(compiled(sampler.choose, jit_compile)(logits, numbers)) for jit_compile in (False, True)
    )
    np.testing.assert_array_equal(plain, xla)


@pytest.mark.parametrize("sampler", [Sample(0.7, 5, 0.9, 0.05), Sample(1.4, 3), Sample(0.8, top_p=0.6)], ids=repr)
def test_sample_is_its_processors_in_order(prefix_model, sampler):
    """The same numbers lead to the same tokens."""
    config = sampler.get_config()
    processors = [Temperature(config["temperature"]), TopP(config["top_p"]), MinP(config["min_p"])]
    if sampler.top_k is not None:
        processors.insert(1, TopK(sampler.top_k))
    model = prefix_model(9, capacity=8)
    arguments = (*model.inputs(40), 0, 8)
    choices = ({"sampler": sampler}, {"sampler": Sample(), "processors": processors})
    texts = [decode(model.step, *arguments, **choice, end_ids=1, pad_id=0, seed=4)["token_ids"] for choice in choices]
    np.testing.assert_array_equal(*map(ops.convert_to_numpy, texts))


@dataclasses.dataclass(frozen=True)
class Own(Sampler):
    """Draws among all tokens with the same probability."""

    def weights(self, logits):
        return ops.ones_like(logits)


@dataclasses.dataclass(frozen=True)
class Second(Sampler):
    """Has no distribution and no chance."""

    needs_numbers: ClassVar[bool] = False

    def choose(self, logits, numbers):
        assert numbers is None
        return ops.cast(ops.top_k(logits, 2)[1][:, 1], "int32")


def test_samplers_of_ones_own(prefix_model):
    model = prefix_model(9, capacity=8)
    arguments = (*model.inputs(300), 0, 8)
    drawn = decode(model.step, *arguments, sampler=Own(), end_ids=(), pad_id=0, seed=4)["token_ids"]
    numbers = ops.convert_to_numpy(uniforms(4, np.arange(300), 8))
    np.testing.assert_array_equal(ops.convert_to_numpy(drawn), np.floor(numbers * 9).T.astype(int))
    second = decode(model.step, *arguments, sampler=Second(), end_ids=(), pad_id=0)["token_ids"]
    first = [np.argsort(-model.log_probabilities(row, []))[1] for row in range(300)]
    assert ops.convert_to_numpy(second)[:, 0].tolist() == first
    assert Own().has_weights and not Second().has_weights
    with pytest.raises(NotImplementedError, match="Sampler must define weights"):
        decode(model.step, *arguments, sampler=Sampler(), end_ids=(), pad_id=0)


class Plain(Sampler):
    """One token, whatever the model says; no dataclass."""

    def __init__(self, token):
        self.token = token

    def weights(self, logits):
        return ops.one_hot(ops.full(ops.shape(logits)[:1], self.token), logits.shape[-1], dtype="float32")


def test_samplers_that_are_no_dataclasses_are_not_equal():
    """Equal samplers share their programs."""
    assert Plain(7) != Plain(9) and get_sampler(first := Plain(7)) is first

    class Warmer(Sample):
        def __init__(self, token):
            super().__init__()

    with pytest.raises(TypeError, match=r"sampler must be of a class with @dataclass\(frozen=True\), .* got Warmer"):
        get_sampler(Warmer(7))


def test_several_results():
    assert Sample(0.7).with_results(3) == (Sample(0.7), 3)
    assert Beam(4).with_results(2) == (Beam(4, num_results=2), 1)
    assert Greedy().with_results(1) == (Greedy(), 1)
    for sampler in (Greedy(), Contrastive()):
        with pytest.raises(ValueError, match=f"num_results must be 1 with {type(sampler).__name__}.*got 2"):
            sampler.with_results(2)
    with pytest.raises(ValueError, match="num_results must be an integer from 1 to 4, got 5"):
        Beam(4).with_results(5)


def test_small_temperatures_do_not_overflow():
    logits = ops.convert_to_tensor([[90.0, 70.0, -80.0]])
    for temperature in (1e-30, 1e-40):
        assert ops.convert_to_numpy(Sample(temperature).weights(logits)).tolist() == [[1.0, 0.0, 0.0]]


def test_methods_that_would_not_be_called_are_refused():
    """A sampler is asked for its tokens by one method; another one that it defines must not be passed over."""
    with pytest.raises(TypeError, match=r"Other must define choose\(\) besides weights\(\).*Greedy"):

        class Other(Greedy):
            def weights(self, logits):
                return logits

    with pytest.raises(TypeError, match=r"Other must define make_loop\(\) besides choose\(\).*Beam"):

        class Other(Beam):  # noqa: F811
            def choose(self, logits, numbers):
                return logits

    class Sharper:
        def weights(self, logits):
            return ops.softmax(2 * logits)

    with pytest.raises(TypeError, match=r"Other must define choose\(\) besides weights\(\) of Sharper.*Greedy"):

        class Other(Sharper, Greedy):  # noqa: F811
            pass

    # what comes after does not change what was chosen
    assert type("Last", (Greedy, Sharper), {}).choose is Greedy.choose

    @dataclasses.dataclass(frozen=True)
    class Chosen(Sample):
        def choose(self, logits, numbers):
            return ops.cast(ops.argmin(logits, axis=-1), "int32")

    # a draft would follow the inherited weights, and a row of a server the settings
    assert Sample().has_weights and Greedy().has_weights and not Chosen().has_weights
    assert Chosen().row_settings is None
    with pytest.raises(ValueError, match="sampler"):
        GenerationOptions(4, sampler=Chosen(), lookahead=2)
