"""Every logit processor against a plain NumPy formula, alone and within the loops."""

import dataclasses
import itertools
import json

import keras
import numpy as np
import pytest
from keras import ops

from zoo.generation import (
    BannedFirstTokens,
    BannedTokens,
    Beam,
    Context,
    ForcedFirstToken,
    ForcedLastToken,
    ForcedTokens,
    FrequencyPenalty,
    GenerationOptions,
    Greedy,
    LogitBias,
    LogitProcessor,
    MinimumLength,
    MinP,
    NoRepeatNGram,
    Normalized,
    PresencePenalty,
    RepetitionPenalty,
    Sample,
    Temperature,
    TopK,
    TopP,
    TypicalP,
    decode,
    get_processors,
)

END, PAD = 1, 0
# how many tokens each row may generate
LIMIT = 5


# The rules in plain Python: logits of one row, its prompt, its generated tokens, the stop sequences.
def repetition_penalty(logits, prompt, generated, stops, penalty, include_prompt=True, include_start=False):
    logits = logits.copy()
    for token in set(generated) | (set(prompt) if include_prompt else set()):
        logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    return logits


def no_repeat_ngram(logits, prompt, generated, stops, size, include_prompt=True, include_start=False):
    logits, text = logits.copy(), [*(prompt if include_prompt else ()), *generated]
    seen = {tuple(text[place : place + size]) for place in range(len(text) - size + 1)}
    for token in range(len(logits)):
        if tuple([*text, token][-size:]) in seen and len(text) + 1 >= size:
            logits[token] = -np.inf
    return logits


def minimum_length(logits, prompt, generated, stops, length, include_prompt=False, include_start=False):
    logits, before = logits.copy(), len(prompt) if include_prompt else 0
    for token in range(len(logits)):
        text = [*generated, token]
        for end in [(END,), *stops]:
            if tuple(text[-len(end) :]) == tuple(end) and before + len(text) - len(end) < length:
                logits[token] = -np.inf
    return logits


def banned_tokens(logits, prompt, generated, stops, token_ids, include_prompt=True, include_start=False):
    logits, text = logits.copy(), [*(prompt if include_prompt else ()), *generated]
    for sequence in token_ids:
        for token in range(len(logits)):
            if tuple([*text, token][-len(sequence) :]) == sequence:
                logits[token] = -np.inf
    return logits


def forced_tokens(logits, prompt, generated, stops, token_ids, first=0):
    if not first <= len(generated) < first + len(token_ids):
        return logits
    forced = token_ids[len(generated) - first]
    return np.where(np.arange(len(logits)) == forced, logits, -np.inf)


def banned_first_tokens(logits, prompt, generated, stops, token_ids, behind_forced=False):
    place = 1 if behind_forced and len(prompt) <= 1 else 0
    forbidden = np.isin(np.arange(len(logits)), token_ids) & (len(generated) == place)
    return np.where(forbidden, -np.inf, logits)


def certain(logits, token_ids):
    return np.where(np.isin(np.arange(len(logits)), token_ids), 0.0, -np.inf)


def forced_first_token(logits, prompt, generated, stops, token_id):
    return certain(logits, [token_id]) if len(prompt) <= 1 and not generated else logits


def forced_last_token(logits, prompt, generated, stops, token_ids):
    return certain(logits, token_ids) if len(generated) + 1 >= LIMIT else logits


def normalized(logits, prompt, generated, stops):
    return logits - np.log(np.exp(logits.astype("float64")).sum())


def presence_penalty(logits, prompt, generated, stops, penalty, include_prompt=False):
    text = [*(prompt if include_prompt else ()), *generated]
    return logits - penalty * np.isin(np.arange(len(logits)), text)


def frequency_penalty(logits, prompt, generated, stops, penalty, include_prompt=False):
    text = [*(prompt if include_prompt else ()), *generated]
    return logits - penalty * np.bincount(np.array(text, int), minlength=len(logits))


def logit_bias(logits, prompt, generated, stops, biases):
    logits = logits.copy()
    for token_id, bias in biases:
        logits[token_id] += bias
    return logits


def temperature(logits, prompt, generated, stops, temperature):
    return logits / temperature


def top_k(logits, prompt, generated, stops, top_k):
    kept = np.argsort(-logits, kind="stable")[:top_k]
    return np.where(np.isin(np.arange(len(logits)), kept), logits, -np.inf)


def most_probable(logits, mass, key):
    """The first tokens in the order of `key` that hold the mass together."""
    p = np.exp(logits.astype("float64") - logits.max())
    p /= p.sum()
    order = np.argsort(key(p), kind="stable")
    kept = order[: int(np.sum(np.cumsum(p[order]) - p[order] < mass))]
    return np.where(np.isin(np.arange(len(logits)), kept), logits, -np.inf)


def top_p(logits, prompt, generated, stops, top_p):
    return most_probable(logits, top_p, lambda p: -p)


def typical_p(logits, prompt, generated, stops, typical_p):
    return most_probable(logits, typical_p, lambda p: np.abs(-np.log(p) + np.nansum(p * np.log(p))))


def min_p(logits, prompt, generated, stops, min_p):
    return np.where(logits - logits.max() >= np.log(min_p), logits, -np.inf)


CASES = [
    (RepetitionPenalty(1.7), repetition_penalty),
    (RepetitionPenalty(0.6, include_prompt=False), repetition_penalty),
    (NoRepeatNGram(1), no_repeat_ngram),
    (NoRepeatNGram(2), no_repeat_ngram),
    (NoRepeatNGram(3), no_repeat_ngram),
    (NoRepeatNGram(2, include_prompt=False), no_repeat_ngram),
    (MinimumLength(0), minimum_length),
    (MinimumLength(5), minimum_length),
    (MinimumLength(5, include_prompt=True), minimum_length),
    (BannedTokens([2, 4]), banned_tokens),
    (BannedTokens([3, [2, 4], (4, 4, 2)]), banned_tokens),
    (BannedTokens([[2, 4], [4, 0]], include_prompt=False), banned_tokens),
    (ForcedTokens([4, 2]), forced_tokens),
    (ForcedTokens(3, first=4), forced_tokens),
    (BannedFirstTokens([4, 2]), banned_first_tokens),
    (BannedFirstTokens([3], behind_forced=True), banned_first_tokens),
    (ForcedFirstToken(3), forced_first_token),
    (ForcedLastToken([4, 2]), forced_last_token),
    (Normalized(), normalized),
    (PresencePenalty(0.7), presence_penalty),
    (PresencePenalty(-0.7, include_prompt=True), presence_penalty),
    (FrequencyPenalty(0.5), frequency_penalty),
    (FrequencyPenalty(0.5, include_prompt=True), frequency_penalty),
    (LogitBias({2: 1.5, 4: -3}), logit_bias),
    (Temperature(0.3), temperature),
    (TopK(3), top_k),
    (TopP(0.6), top_p),
    (TypicalP(0.5), typical_p),
    (MinP(0.2), min_p),
    (MinP(1.0), min_p),
]


def in_python(cases, logits, prompt, generated, stops=()):
    processed = logits
    for processor, rule in cases:
        arguments = {name: value for name, value in vars(processor).items()}
        processed = rule(processed, prompt, generated, stops, **arguments)
    if np.isneginf(processed).all():
        processed = np.where(np.arange(len(logits)) == END, logits, -np.inf)
    return processed


@pytest.mark.sampled(12)
@pytest.mark.parametrize("processor, rule", CASES, ids=lambda value: repr(value) if not callable(value) else "")
def test_against_the_rule(processor, rule):
    generator = np.random.default_rng(0)
    changed = 0
    # two tokens besides END occur often, so that sequences repeat
    for position, length, columns in itertools.product(range(7), (0, 1, 5), (7, 9)):
        logits = generator.normal(0, 2, (6, 5)).astype("float32")
        prompts = [generator.choice([2, 4], size=generator.integers(0, length + 1)).tolist() for _ in range(6)]
        padded = [[-1] * (length - len(prompt)) + prompt for prompt in prompts]
        generated = generator.choice([2, 4, 0], p=[0.45, 0.45, 0.1], size=(6, columns))
        stops = ((2, 4), (3,))
        context = Context(
            ops.reshape(ops.convert_to_tensor(padded, dtype="int32"), (6, length)),
            ops.convert_to_tensor(generated, dtype="int32"),
            ops.convert_to_tensor(position, dtype="int32"),
            (END,),
            stops,
            ops.full((6,), LIMIT, dtype="int32"),
        )
        actual = ops.convert_to_numpy(processor(ops.convert_to_tensor(logits), context))
        for row in range(6):
            arguments = (logits[row], prompts[row], generated[row, :position].tolist(), stops)
            # float32 sums of numbers of a size up to 8
            np.testing.assert_allclose(actual[row], rule(*arguments, **vars(processor)), rtol=1e-6, atol=1e-6)
        changed += (actual != logits).any()
    assert changed or processor == MinimumLength(0)


def decoding(model, sampler, processors, stops=(), rows=6, length=8, **options):
    state, constants, first_tokens = model.inputs(rows)
    prompt = np.array([[-1, -1, 2, 0], [3, 3, 2, 0], [-1, 2, 3, 0], [4, 4, 4, 0], [-1, -1, -1, 0], [2, 3, 2, 0]])
    return decode(
        model.step,
        state,
        constants,
        first_tokens,
        0,
        length,
        sampler,
        END,
        PAD,
        processors=processors,
        stop_sequences=stops,
        prompt=prompt[:rows],
        **options,
    ), [[token for token in row if token >= 0] for row in prompt.tolist()]


def ended(text, stops):
    """Length of the end of a text, 0 if it has none."""
    return max([len(end) for end in [(END,), *stops] if tuple(text[-len(end) :]) == end], default=0)


COMBINATIONS = [
    (),
    (CASES[0],),
    (CASES[3], CASES[0]),
    (CASES[7],),
    (CASES[10], CASES[13]),
    (CASES[5], CASES[7], CASES[9]),
    (CASES[2],),  # forbids everything after a while: the text ends
]
STOPS = [(), ((2, 3), (4,), (0, 2, 3))]


@pytest.mark.parametrize("cases", COMBINATIONS, ids=lambda cases: str([processor for processor, _ in cases]))
@pytest.mark.parametrize("stops", STOPS, ids=str)
def test_greedy_with_processors_against_a_python_loop(prefix_model, cases, stops):
    model = prefix_model(5, capacity=9, seed=3, sharpness=1.0)
    result, prompts = decoding(model, Greedy(), [processor for processor, _ in cases], stops)
    result = {name: ops.convert_to_numpy(tensor) for name, tensor in result.items()}
    for row, prompt in enumerate(prompts):
        text, total = [], 0.0
        while len(text) < 8 and not ended(text, stops):
            own = model.log_probabilities(row, text)
            # the model's raw logits: the penalty divides these
            tokens = np.array([0, *text])
            summary = np.sum(model.position_weights[: len(tokens)] * (tokens + 1))
            logits = model.sharpness * np.sin(summary * model.frequencies + row)
            text.append(int(np.argmax(in_python(cases, logits, prompt, text, stops))))
            total += own[text[-1]]
        assert result["token_ids"][row].tolist() == text + [PAD] * (8 - len(text))
        assert result["lengths"][row] == len(text)
        assert result["end_lengths"][row] == ended(text, stops)
        assert result["finished"][row] == (ended(text, stops) > 0)
        np.testing.assert_allclose(result["log_probabilities"][row], total, atol=1e-3)


def best_texts(model, row, prompt, cases, stops, limit, alpha):
    """All texts that obey, with their scores, the best first; log-probabilities are not normalised again."""
    pending, complete = [(0.0, [])], []
    while pending:
        total, text = pending.pop()
        processed = in_python(cases, model.log_probabilities(row, text), prompt, text, stops)
        for token in np.flatnonzero(processed > -np.inf):
            longer, value = [*text, int(token)], total + processed[token]
            if ended(longer, stops) or len(longer) == limit:
                complete.append((value / ((5 + len(longer)) / 6) ** alpha, longer))
            else:
                pending.append((value, longer))
    return sorted(complete, reverse=True)


@pytest.mark.parametrize("cases", COMBINATIONS, ids=lambda cases: str([processor for processor, _ in cases]))
@pytest.mark.parametrize("stops", [(), ((2, 3), (4, 0, 4))], ids=str)
def test_beam_with_processors_against_exhaustive_search(prefix_model, cases, stops):
    model = prefix_model(5, capacity=5, seed=2, sharpness=1.0)
    # as many beams as there are prefixes: nothing is ever dropped
    result, prompts = decoding(model, Beam(5**3, 0.6, num_results=4), [p for p, _ in cases], stops, rows=4, length=4)
    beams = {name: ops.convert_to_numpy(tensor) for name, tensor in result["beams"].items()}
    for row in range(4):
        expected = best_texts(model, row, prompts[row], cases, stops, 4, 0.6)[:4]
        found = [
            beams["token_ids"][row, place, : beams["lengths"][row, place]].tolist()
            for place in range(4)
            if beams["scores"][row, place] > -np.inf
        ]
        assert found == [text for _, text in expected]
        np.testing.assert_allclose(beams["scores"][row, : len(found)], [s for s, _ in expected], atol=1e-3)
        assert beams["end_lengths"][row, : len(found)].tolist() == [ended(text, stops) for text in found]


def test_samples_obey(prefix_model):
    model = prefix_model(5, capacity=9, seed=3, sharpness=1.0)
    processors = [NoRepeatNGram(2), MinimumLength(3), BannedTokens([4])]
    for sampler in (Sample(1.5), Sample(top_k=3), Sample(top_p=0.8, min_p=0.1)):
        texts = set()
        for seed in range(4):
            result, prompts = decoding(model, sampler, processors, seed=seed)
            for row, prompt in enumerate(prompts):
                length = int(result["lengths"][row])
                text = ops.convert_to_numpy(result["token_ids"][row])[:length].tolist()
                pairs = list(itertools.pairwise(prompt + text))
                own = pairs[len(prompt) - 1 :]
                # when every token would repeat a pair, the text ends, be it too early
                assert len(set(own)) == len(own) or text[-1] == END
                assert 4 not in text
                texts.add(tuple(text))
        assert len(texts) > 12


@pytest.mark.skipif(keras.backend.backend() not in ("tensorflow", "jax"), reason="needs a compiler")
@pytest.mark.parametrize("sampler", [Greedy(), Beam(3)], ids=repr)
def test_compiled(prefix_model, assert_same, sampler):
    from zoo.generation import compiled

    model = prefix_model(5, capacity=9, seed=3, sharpness=1.0)
    processors, stops = [RepetitionPenalty(1.3), NoRepeatNGram(2), MinimumLength(2), ForcedTokens(3, 1)], ((2, 3),)

    def generate(rows):
        return decode(
            model.step,
            {"layers": [{"tokens": ops.zeros((4, model.capacity), dtype="int32")}]},
            {"row": rows},
            ops.zeros((4,), dtype="int32"),
            0,
            8,
            sampler,
            END,
            PAD,
            processors=processors,
            stop_sequences=stops,
            prompt=ops.ones((4, 3), dtype="int32") * 2,
        )

    rows = ops.arange(4, dtype="float32")
    assert_same(compiled(generate)(rows), generate(rows))


def test_configurations():
    for processor, _ in CASES:
        config = json.loads(json.dumps(keras.saving.serialize_keras_object(processor)))
        assert keras.saving.deserialize_keras_object(config) == processor
        assert hash(processor) == hash(type(processor)(**processor.get_config()))
    assert get_processors(None) == ()
    given = [
        {"name": "no_repeat_ngram", "size": 2},
        RepetitionPenalty(1.2),
        {"name": "banned_tokens", "token_ids": [3]},
    ]
    assert get_processors(given) == (NoRepeatNGram(2), RepetitionPenalty(1.2), BannedTokens([3]))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: RepetitionPenalty(0), r"penalty must be a number from 1e-30 to 1e\+30, got 0"),
        (lambda: RepetitionPenalty(1e39), r"penalty must be a number from 1e-30 to 1e\+30, got 1e\+39"),
        (lambda: PresencePenalty(1e39), r"penalty must be a number from -1e\+30 to 1e\+30, got 1e\+39"),
        (lambda: LogitBias({3: -1e39}), r"biases\[3\] must be a number from -1e\+30 to 1e\+30, got -1e\+39"),
        (lambda: LogitBias(5), "biases must be a dictionary of token ids and numbers, or pairs of these, got 5"),
        (lambda: LogitBias([1, 2]), r"biases must be a dictionary .*, or pairs of these, got \[1, 2\]"),
        (lambda: LogitBias([(1, 2, 3)]), r"biases must be a dictionary .*, or pairs of these, got \[\(1, 2, 3\)\]"),
        (lambda: NoRepeatNGram(0), "size must be an integer of at least 1, got 0"),
        (lambda: MinimumLength(-1), "length must be an integer of at least 0, got -1"),
        (lambda: BannedTokens([[]]), "must not hold an empty sequence"),
        (lambda: BannedTokens("abc"), "must be a list of token ids and of lists of token ids, got 'abc'"),
        (lambda: BannedTokens([-3]), r"integers of at least 0, got \(-3,\)"),
        (lambda: ForcedTokens([]), "at least one id"),
        (lambda: ForcedTokens([1], first=1.5), "first must be an integer of at least 0, got 1.5"),
        (lambda: get_processors([{"name": "repeat"}]), "must be one of .*'repetition_penalty'.*got 'repeat'"),
        (lambda: get_processors([{"name": ["a"]}]), r"must be one of .*'repetition_penalty'.*got \['a'\]"),
        (lambda: get_processors([{"name": "top_k"}]), r"arguments of processor 'top_k' must have \['top_k'\]"),
        (
            lambda: get_processors([{"name": "minimum_length", "size": 3}]),
            r"must be among \['length', 'include_prompt', 'include_start'\], got \['size'\]",
        ),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_ids_beyond_the_vocabulary(prefix_model):
    model = prefix_model(5, capacity=9)
    for processor in (BannedTokens([5]), ForcedTokens([7]), BannedTokens([[1, 6]])):
        with pytest.raises(ValueError, match="must be ids below the vocabulary size of 5, got"):
            decoding(model, Greedy(), [processor])
    with pytest.raises(TypeError, match="a LogitProcessor or a dictionary .*got 'x'"):
        decoding(model, Greedy(), ["x"])
    with pytest.raises(ValueError, match="stop_sequences must not hold an empty sequence"):
        decoding(model, Greedy(), [], stops=[[]])


@pytest.mark.parametrize("temperature", [1e-10, 1e-37, 1e-40, 5e-324])
def test_temperatures_near_zero_leave_the_best_token(temperature):
    """Logits that are divided by next to nothing exceed what float32 holds."""
    logits = np.array([[3.0, 5.0, 4.9], [-2.0, -3.0, -np.inf], [7.0, 0.0, 7.0]], "float32")
    processed = ops.convert_to_numpy(Temperature(temperature)(ops.convert_to_tensor(logits), None))
    assert not np.isnan(processed).any() and (processed < np.inf).all()
    assert (np.exp(processed - processed.max(1, keepdims=True)) == (logits == logits.max(1, keepdims=True))).all()


@pytest.mark.parametrize("temperature", [1e38, 3e38, 1e39, 1e308])
def test_large_temperatures_leave_forbidden_tokens_forbidden(temperature):
    """The inverse is below what float32 holds, and -inf times 0 is no number."""
    logits = np.array([[3.0, 5.0, -np.inf], [-2.0, -np.inf, -np.inf]], "float32")
    processed = ops.convert_to_numpy(Temperature(temperature)(ops.convert_to_tensor(logits), None))
    np.testing.assert_allclose(processed, np.where(np.isneginf(logits), -np.inf, 0.0), atol=1e-30)


def test_numbers_of_numpy_and_tensors():
    """Ids in an array are several ids, and numbers of any width are numbers."""
    for make in (np.array, ops.convert_to_tensor):
        assert ForcedTokens(make([3, 4])) == ForcedTokens([3, 4])
        assert ForcedTokens(make(3)) == ForcedTokens([3])
        assert BannedTokens([make([4, 5]), 3]) == BannedTokens([[4, 5], 3])
        options = GenerationOptions(5, end_ids=make([2, 3]), stop_sequences=[make([5, 6]), make(7)])
        assert (options.end_ids, options.stop_sequences) == ((2, 3), ((5, 6), (7,)))
        for wrong in (make([2, 3]), make(2.5), make(True)):
            with pytest.raises(ValueError, match="top_k must be an integer of at least 1, got"):
                TopK(wrong)
        with pytest.raises(ValueError, match="token_ids must be made of integers of at least 0, got"):
            ForcedTokens(make([3.5, 4.0]))
    with pytest.raises(ValueError, match="token_ids must be made of integers of at least 0, got"):
        ForcedTokens(True)
    processors = [Temperature(np.float32(0.5)), TopK(np.int64(3)), MinP(np.float16(0.5)), MinP(np.int32(1))]
    processors.append(LogitBias({np.int64(3): np.float32(1.5)}))
    assert processors == [Temperature(0.5), TopK(3), MinP(0.5), MinP(1), LogitBias({3: 1.5})]
    for processor in processors:
        assert type(processor)(**json.loads(json.dumps(processor.get_config()))) == processor
    assert json.dumps(Sample(np.float32(0.5), np.int64(3)).get_config()) == json.dumps(Sample(0.5, 3).get_config())


def plus_five(logits, context):
    return ops.where(ops.arange(4) == 3, logits + 5.0, logits)


@dataclasses.dataclass(frozen=True)
class PlusFive(LogitProcessor):
    """Of one's own, which says nothing about bounds."""

    def __call__(self, logits, context):
        return plus_five(logits, context)


@pytest.mark.parametrize(
    "processor",
    [
        plus_five,
        PlusFive(),
        LogitBias({3: 5.0}),
        PresencePenalty(-5.0, include_prompt=True),
        FrequencyPenalty(-2.5, include_prompt=True),
    ],
    ids=lambda processor: getattr(processor, "__name__", None) or repr(processor),
)
def test_beam_goes_on_where_a_hypothesis_can_gain(processor):
    """Token 3 gains 5 nats: [2, 3, END] comes to 3.97, long after [END] is finished with -0.5."""
    table = np.array([[-50, -0.5, -0.9328, -50], [-50, 0, -50, -50], [-50, -2.3522, -50, -0.1], [-50, 0, -50, -50]])

    def step(token_ids, index, state, constants):
        return ops.take(ops.convert_to_tensor(table, dtype="float32"), token_ids, axis=0), state

    prompt = np.array([[3, 3, 0]])
    result = decode(step, (), (), [0], 0, 4, Beam(2, 0.0, 1), END, PAD, processors=[processor], prompt=prompt)
    assert ops.convert_to_numpy(result["token_ids"]).tolist() == [[2, 3, END, PAD]]
    np.testing.assert_allclose(ops.convert_to_numpy(result["log_probabilities"]), [-0.9328 - 0.1 + 5], atol=1e-3)


def test_rules_that_only_lower_log_probabilities_say_so():
    lowering = [Temperature(0.5), TopK(2), TopP(0.5), MinP(0.1), TypicalP(0.5), NoRepeatNGram(2), MinimumLength(1)]
    lowering += [
        BannedTokens([3]),
        ForcedTokens([3]),
        RepetitionPenalty(1.5),
        PresencePenalty(1.0),
        LogitBias({3: -1.0}),
    ]
    assert not any(processor.unbounded for processor in lowering)
    assert LogitBias({3: 1.0}).unbounded and FrequencyPenalty(-1.0).unbounded
