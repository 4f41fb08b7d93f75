"""Generation with a real backbone on token level: caches, batches, growth, continuation, drafts."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from zoo import (
    AttentionConfig,
    Backbone,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    RecurrentConfig,
    TransformerConfig,
)
from zoo.generation import (
    BannedTokens,
    Beam,
    Contrastive,
    Engine,
    GenerationOptions,
    Greedy,
    MinimumLength,
    NoRepeatNGram,
    RepetitionPenalty,
    Sample,
    compiled,
    decode,
)
from zoo.generation import engine as engine_module

END, PAD, SIZE, LENGTH, CAPACITY = 1, 0, 23, 9, 28
PROMPTS = [[5, 6, 7], [8], list(range(2, 20)), [9, 9, 9, 9, 9]]
PROCESSORS = (RepetitionPenalty(1.3), NoRepeatNGram(2), MinimumLength(2), BannedTokens([4, [5, 6]]))
STOPS = ((9, 3), (7,))
SAMPLERS = [Greedy(), Sample(1.2, top_k=9, top_p=0.9), Beam(3), Contrastive(3, 0.5)]
KINDS = {
    "rotary": {"position": PositionConfig("rotary"), "attention": AttentionConfig(4, num_key_value_heads=2)},
    "learned": {"position": PositionConfig("learned"), "attention": AttentionConfig(2)},
    "window": {
        "position": PositionConfig("rotary"),
        "attention": AttentionConfig(2, window=(4, 0), window_layers=(True, False)),
    },
    "alibi": {"position": PositionConfig("alibi"), "attention": AttentionConfig(2)},
}


def make_backbone(kind="rotary", seed=0, hidden_dim=16):
    keras.utils.set_random_seed(seed)
    config = TransformerConfig(
        "decoder",
        vocabulary_size=SIZE,
        hidden_dim=hidden_dim,
        num_layers=2 if kind == "window" else 1,
        max_length=64,
        feed_forward=FeedForwardConfig(32),
        norm=NormConfig(kind="rms", placement="pre"),
        dropout=0.0,
        initializer_range=0.7,
        **KINDS[kind],
    )
    return Backbone.from_config(config)


@pytest.fixture(scope="module")
def backbones():
    return {kind: make_backbone(kind) for kind in KINDS}


@pytest.fixture(scope="module")
def engines(backbones):
    return {kind: Engine(backbone) for kind, backbone in backbones.items()}


GREEDY = Greedy()


def options_of(sampler=GREEDY, processors=(), stops=(), length=LENGTH, **options):
    options = {"jit_compile": False, "end_ids": END, "pad_id": PAD, **options}
    return GenerationOptions(length, sampler=sampler, processors=processors, stop_sequences=stops, **options)


@functools.cache
def full_pass(backbone):
    """The model without any cache, for one row of `CAPACITY` tokens."""

    def forward(tokens, mask):
        hidden = backbone({"token_ids": tokens, "padding_mask": mask}, training=False)
        return backbone.logits(hidden), hidden

    return compiled(forward, False, signature=[((1, CAPACITY), "int32"), ((1, CAPACITY), "bool")])


def uncached(backbone, prompt, options, limit, seed, stream):
    """One row, by a full pass over everything for each token."""
    wants_hidden = isinstance(options.sampler, Contrastive)

    def step(token_ids, index, state, constants):
        rows = []
        tokens = ops.where(ops.arange(CAPACITY) == index, ops.expand_dims(token_ids, 1), state["tokens"])
        for row in range(tokens.shape[0]):
            logits, hidden = full_pass(backbone)(tokens[row : row + 1], ops.arange(CAPACITY)[None] <= index)
            rows.append((ops.take(logits[0], index, axis=0), ops.take(hidden[0], index, axis=0)))
        logits, hidden = (ops.stack(values) for values in zip(*rows, strict=True))
        return logits, {"tokens": tokens, **({"hidden": hidden} if wants_hidden else {})}

    tokens = np.zeros((1, CAPACITY), "int32")
    tokens[0, : len(prompt)] = prompt
    _, hidden = full_pass(backbone)(tokens, np.arange(CAPACITY)[None] < len(prompt))
    result = decode(
        step,
        {"tokens": tokens},
        (),
        [prompt[-1]],
        len(prompt) - 1,
        options.max_new_tokens,
        options.sampler,
        END,
        PAD,
        length_limit=np.array([limit]),
        seed=seed,
        streams=np.array([stream]),
        processors=options.processors,
        stop_sequences=options.stop_sequences,
        prompt=np.array([prompt]),
        prompt_hidden=hidden[:, : len(prompt) - 1],
    )
    return {name: ops.convert_to_numpy(value)[0] for name, value in result.items() if name != "beams"}


def assert_row(actual, row, expected):
    for name, value in expected.items():
        # sums of nine log-probabilities of a size up to 30
        np.testing.assert_allclose(actual[name][row], value, rtol=1e-4, atol=1e-3, err_msg=name)


LIMITS = [9, 9, 4, 9]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
def test_cached_batch_is_each_row_uncached(backbones, engines, sampler):
    options = options_of(sampler, PROCESSORS, STOPS)
    streams = [3, 0, 7, 1]
    result = engines["rotary"].begin(PROMPTS, options, limits=LIMITS, seed=5, streams=streams).advance().result()
    assert len({tuple(row) for row in result["token_ids"].tolist()}) == 4
    for row in (0, 2):
        assert_row(result, row, uncached(backbones["rotary"], PROMPTS[row], options, LIMITS[row], 5, streams[row]))


@pytest.mark.parametrize("kind", ["learned", "window", "alibi"])
def test_cached_is_uncached_for_every_kind_of_position(backbones, engines, kind):
    options = options_of()
    result = engines[kind].begin(PROMPTS, options, limits=LIMITS).advance().result()
    for row in (0, 2):
        assert_row(result, row, uncached(backbones[kind], PROMPTS[row], options, LIMITS[row], 0, 0))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
def test_batched_is_single(engines, sampler):
    options = options_of(sampler, PROCESSORS, STOPS)
    engine = engines["rotary"]
    together = engine.begin(PROMPTS, options, limits=LIMITS, seed=2).advance().result()
    for row in (0, 3):
        alone = engine.begin([PROMPTS[row]], options, limits=[LIMITS[row]], seed=2, streams=[row]).advance().result()
        assert_row(together, row, {name: value[0] for name, value in alone.items() if name != "beams"})


@pytest.mark.parametrize(
    "kind, sampler",
    [
        ("rotary", Beam(2)),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("rotary", Contrastive(2)), ("window", GREEDY))),
    ],
    ids=str,
)
def test_growing_caches_change_nothing(engines, monkeypatch, kind, sampler):
    options = options_of(sampler)
    expected = engines[kind].begin(PROMPTS[:2], options).advance().result()
    monkeypatch.setattr(engine_module, "FIRST_ROOM", 2)
    grown = engines[kind].begin(PROMPTS[:2], options)
    capacity = grown._capacity
    result = grown.advance().result()
    for row in range(2):
        assert_row(result, row, {name: value[row] for name, value in expected.items() if name != "beams"})
    assert grown._capacity > capacity


def test_in_steps(engines):
    options = options_of(SAMPLERS[1], PROCESSORS, STOPS)
    expected = engines["rotary"].begin(PROMPTS, options, seed=1).advance().generated()
    session = engines["rotary"].begin(PROMPTS, options, seed=1)
    for count in (1, 3, 2):
        before = session.generated()
        session.advance(count)
        for shorter, longer, whole in zip(before, session.generated(), expected, strict=True):
            assert longer[: len(shorter)] == shorter and whole[: len(longer)] == longer
    assert session.advance().generated() == expected and session.is_done
    session = engines["rotary"].begin(PROMPTS, options, seed=1).advance(2)
    session.stop([True, False, True, False])
    stopped = session.advance().generated()
    assert [len(stopped[row]) for row in (0, 2)] == [min(2, len(expected[row])) for row in (0, 2)]
    assert [stopped[row] for row in (1, 3)] == [expected[row] for row in (1, 3)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["rotary", "window"])
def test_continuing_from_a_cache(engines, kind):
    engine, options = engines[kind], options_of(stops=((7,), (2,)))
    session = engine.begin(PROMPTS, options, limits=LIMITS).advance()
    cache = session.cache()
    assert len({len(text) for text in session.generated()}) > 1, "rows that ended at different times"
    for row, prompt in enumerate(PROMPTS):
        assert cache.token_ids[row] == [*prompt, *session.generated()[row]]
    news = [[3, 8, 2], [], [4], [5] * 9]
    texts = [[*before, *new] for before, new in zip(cache.token_ids, news, strict=True)]
    expected = engine.begin(texts, options).advance().result()
    result = engine.begin(texts, options, cache=cache).advance().result()
    for row in range(4):
        assert_row(result, row, {name: value[row] for name, value in expected.items()})
    with pytest.raises(ValueError, match="sampler must keep the caches .* got Beam"):
        engine.begin(PROMPTS[:1], options_of(Beam(2))).cache()


def test_a_cache_of_a_window_that_was_full_is_not_taken_for_one_in_order():
    """192 positions in the 168 slots of the first call; the second one needs no more than 168."""
    keras.utils.set_random_seed(4)
    config = TransformerConfig(
        "decoder",
        vocabulary_size=SIZE,
        hidden_dim=16,
        num_layers=1,
        max_length=256,
        attention=AttentionConfig(2, window=(167, 0)),
        position=PositionConfig("rotary"),
        feed_forward=FeedForwardConfig(16),
        dropout=0.0,
        initializer_range=0.7,
    )
    engine = Engine(Backbone.from_config(config))
    prompt = np.random.default_rng(0).integers(2, SIZE, 129).tolist()
    cache = engine.begin([prompt], options_of(length=22, end_ids=())).advance().cache()
    text = [[*cache.token_ids[0], 3]]
    expected, result = (
        engine.begin(text, options_of(length=2, end_ids=()), cache=given).advance().result() for given in (None, cache)
    )
    assert_row(result, 0, {name: value[0] for name, value in expected.items()})


def test_cached_tokens_are_not_fed_again(engines, backbones, monkeypatch):
    options = options_of()
    long = [list(range(2, 22)) * 2]
    session = engines["rotary"].begin(long, options, limits=[3]).advance()
    fed = []
    advance = backbones["rotary"].advance

    def counted(token_ids, *arguments):
        fed.append(token_ids.shape[1])
        return advance(token_ids, *arguments)

    monkeypatch.setattr(backbones["rotary"], "advance", counted)
    # a program for all lengths knows none
    monkeypatch.setattr(engine_module, "shares_lengths", lambda options: False)
    fresh = Engine(backbones["rotary"])
    cache = session.cache()
    fresh.begin([[*cache.token_ids[0], 5]], options, cache=cache)
    # a prompt of 44 tokens; 8 tokens, of which the loop feeds the last
    assert max(fed) == 7


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "sampler, rules", [(GREEDY, (PROCESSORS, STOPS)), (Sample(1.1, top_k=12), ())], ids=["greedy", "sample"]
)
def test_speculative(backbones, engines, sampler, rules):
    """Greedy: the texts of the model alone. At random: those of each row alone."""
    draft = make_backbone("learned", seed=3, hidden_dim=8)
    engine = Engine(backbones["rotary"], draft)
    options = options_of(sampler, *rules, lookahead=2)
    result = engine.begin(PROMPTS, options, limits=LIMITS, seed=4).advance().result()
    result.pop("rounds")
    if isinstance(sampler, Greedy):
        expected = engines["rotary"].begin(PROMPTS, options_of(sampler, *rules), limits=LIMITS).advance().result()
        for row in range(4):
            assert_row(result, row, {name: value[row] for name, value in expected.items()})
        return
    alone = engine.begin([PROMPTS[1]], options, limits=[LIMITS[1]], seed=4, streams=[1]).advance().result()
    alone.pop("rounds")
    assert_row(result, 1, {name: value[0] for name, value in alone.items()})


def test_a_draft_that_agrees_saves_passes(backbones):
    engine = Engine(backbones["rotary"], backbones["rotary"])
    result = engine.begin([[5, 6]], options_of(length=12, end_ids=(), lookahead=4)).advance().result()
    assert result["lengths"][0] == 12 and result["rounds"] == 3


def test_speculation_refuses_caches_that_forget(backbones):
    with pytest.raises(ValueError, match="draft must be None with caches that cannot be rewound"):
        Engine(backbones["window"], backbones["rotary"]).begin([[5, 6]], options_of(lookahead=2))


def test_speculation_refuses_caches_that_will_forget(backbones, monkeypatch):
    """The caches of the beginning hold all of it; those that they grow to are shorter than the text."""
    monkeypatch.setitem(KINDS, "wide", {**KINDS["rotary"], "attention": AttentionConfig(2, window=(20, 0))})
    monkeypatch.setattr(engine_module, "FIRST_ROOM", 2)
    with pytest.raises(ValueError, match=r"draft must be None with caches that cannot be rewound, .* \(50 positions\)"):
        Engine(make_backbone("wide"), backbones["rotary"]).begin([[5, 6]], options_of(length=40, lookahead=2))


def test_later_changes_of_weights_are_seen(engines, backbones):
    backbone = make_backbone(seed=8)
    engine, options = Engine(backbone), options_of()
    before = engine.begin(PROMPTS, options).advance().generated()
    for weight, other in zip(backbone.weights, backbones["rotary"].weights, strict=True):
        weight.assign(other)
    after = engine.begin(PROMPTS, options).advance().generated()
    assert before != after == engines["rotary"].begin(PROMPTS, options).advance().generated()


@pytest.mark.slow
def test_compiled_is_the_same(engines):
    plain, xla = (options_of(SAMPLERS[1], PROCESSORS, STOPS, jit_compile=jit_compile) for jit_compile in (False, True))
    texts = [engines["rotary"].begin(PROMPTS, options).advance().generated() for options in (plain, xla)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda engine: engine.begin([], options_of()), "prompts must hold at least one row"),
        (lambda engine: engine.begin([[1], []], options_of()), r"prompts\[1\] must have at least 1 token"),
        (lambda engine: options_of(Beam(2), lookahead=2), r"sampler must define weights\(\) .*got Beam"),
        (lambda engine: options_of(lookahead=-1), "lookahead must be an integer of at least 0, got -1"),
        (lambda engine: options_of(length=0), "max_new_tokens must be an integer of at least 1, got 0"),
    ],
)
def test_wrong_arguments(engines, call, message):
    with pytest.raises(ValueError, match=message):
        call(engines["rotary"])


def test_numbers_of_new_tokens_share_programs(backbones):
    """What a row may generate is an input; lengths are rounded up."""
    engine, counts = Engine(backbones["rotary"]), []
    expected = engine.begin(PROMPTS, options_of(end_ids=(), length=16)).advance().result()["token_ids"]
    for length in (9, 12, 16, 11):
        result = engine.begin(PROMPTS, options_of(end_ids=(), length=length)).advance().result()
        assert result["token_ids"].shape == (4, length)
        np.testing.assert_array_equal(result["token_ids"], expected[:, :length])
        counts.append(len(engine._programs))
    assert counts == [2, 2, 2, 2]


@pytest.mark.sampled(1)
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="other backends compile for each length")
@pytest.mark.parametrize("kind", ["rotary", "window"])
def test_texts_of_all_lengths_share_programs(kind):
    """The second length is traced anew, for any; then no other one is. Each number of rows has its own programs."""
    backbone, traces = make_backbone(kind), []
    advance = backbone.advance

    def counted(*arguments):
        traces.append(arguments)
        return advance(*arguments)

    backbone.advance = counted
    engine, counts = Engine(backbone), []
    cases = [(9, 4, 1), (30, 20, 1), (20, 17, 3), (12, 33, 3), (3, 30, 1), (3, 40, 3), (17, 1, 1), (2, 25, 4)]
    for prompt, length, rows in cases:
        prompts = [[2 + place % 19 for place in range(prompt)]] * rows
        texts = engine.begin(prompts, options_of(end_ids=(), length=length)).advance().generated()
        counts.append(len(traces))
        token_ids = np.array([prompts[0] + texts[0][:-1]])
        mask = np.ones_like(token_ids, dtype="bool")
        hidden = backbone({"token_ids": token_ids, "padding_mask": mask}, training=False)
        expected = ops.convert_to_numpy(ops.argmax(backbone.logits(hidden)[0], axis=-1))
        assert texts == [expected[prompt - 1 :].tolist()] * rows
    assert counts[-1] == counts[3] and len(engine._programs) == 4


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="other backends compile for each length")
def test_passes_over_long_prompts_know_their_lengths(backbones, monkeypatch):
    """Otherwise attention could not be computed in pieces there, and would hold all scores."""
    widths, advance = [], backbones["rotary"].advance

    def counted(token_ids, *arguments):
        widths.append(token_ids.shape[1])
        return advance(token_ids, *arguments)

    monkeypatch.setattr(backbones["rotary"], "advance", counted)
    engine, texts = Engine(backbones["rotary"]), []
    for most in (2**22, 0):
        monkeypatch.setattr(engine_module, "MANY_SCORES", most)
        sessions = [engine.begin([[5] * length], options_of()) for length in (9, 17, 25)]
        texts.append([session.advance().generated() for session in sessions])
    assert [width for width in widths if width != 1] == [15, None, 15, 23, 31] and texts[0] == texts[1]


def test_programs_are_few(backbones, monkeypatch):
    engine = Engine(backbones["rotary"])
    monkeypatch.setattr(engine._programs, "_most", 3)
    stops = (9, 8, 7, 9)
    texts = [engine.begin([[5]], options_of(stops=(stop,))).advance().generated() for stop in stops]
    assert len(engine._programs) == 3 and texts[0] == texts[3]


# Encoder-decoders, with given beginnings.

SOURCES = [[5, 6, 7, 2], [8, 2], [3, 4, 5, 6, 7, 8, 9, 10, 11, 2]]
BEGINNINGS = [[1], [1, 9, 4], [1, 5, 5, 7, 8]]


def make_encoder_decoder(kind):
    keras.utils.set_random_seed(2)
    sizes = {"vocabulary_size": SIZE, "hidden_dim": 16, "max_length": 64}
    if kind == "recurrent":
        return Backbone.from_config(RecurrentConfig(embedding_dim=16, attention="previous_state", **sizes))
    return Backbone.from_config(
        TransformerConfig(
            "encoder_decoder",
            **sizes,
            num_layers=1,
            attention=AttentionConfig(2),
            feed_forward=FeedForwardConfig(32),
            norm=NormConfig(placement="pre"),
            position=PositionConfig(kind),
            dropout=0.0,
            initializer_range=0.7,
        )
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "kind, sampler",
    [
        ("learned", Beam(2)),
        ("relative_bias", GREEDY),
        ("recurrent", GREEDY),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("learned", GREEDY), ("recurrent", Contrastive(3)))),
    ],
    ids=str,
)
def test_encoder_decoders_go_on_from_beginnings(kind, sampler):
    """A batch of beginnings of several lengths against each row alone; greedy against whole passes."""
    backbone = make_encoder_decoder(kind)
    engine, options = Engine(backbone), options_of(sampler, length=6)
    together = engine.begin(BEGINNINGS, options, source=SOURCES).advance().result()
    for row in (1, 2):
        if sampler is not GREEDY:
            alone = engine.begin([BEGINNINGS[row]], options, source=[SOURCES[row]]).advance().result()
            assert_row(together, row, {name: value[0] for name, value in alone.items() if name != "beams"})
            return
        text = list(BEGINNINGS[row])
        for token in together["token_ids"][row, : together["lengths"][row]]:
            outputs = backbone(
                {
                    "encoder_token_ids": np.array([SOURCES[row]]),
                    "encoder_padding_mask": np.ones((1, len(SOURCES[row])), "bool"),
                    "decoder_token_ids": np.array([text]),
                    "decoder_padding_mask": np.ones((1, len(text)), "bool"),
                }
            )
            logits = ops.convert_to_numpy(backbone.logits(outputs["decoder_sequence_output"]))[0, -1]
            assert token == logits.argmax()
            text.append(int(token))


@pytest.mark.slow
def test_encoder_decoders_continue_from_a_cache():
    engine, options = Engine(make_encoder_decoder("learned")), options_of(length=6)
    cache = engine.begin(BEGINNINGS, options, source=SOURCES, limits=[6, 3, 4]).advance().cache()
    texts = [[*before, *new] for before, new in zip(cache.token_ids, ([3], [8, 4], []), strict=True)]
    expected = engine.begin(texts, options, source=SOURCES).advance().result()
    result = engine.begin(texts, options, source=SOURCES, cache=cache).advance().result()
    for row in range(3):
        assert_row(result, row, {name: value[row] for name, value in expected.items()})


@pytest.mark.slow
def test_speculation_with_an_encoder_decoder():
    backbone, draft = make_encoder_decoder("learned"), make_encoder_decoder("relative_bias")
    expected = Engine(backbone).begin(BEGINNINGS, options_of(), source=SOURCES).advance().result()
    result = Engine(backbone, draft).begin(BEGINNINGS, options_of(lookahead=2), source=SOURCES).advance().result()
    for row in range(3):
        assert_row(result, row, {name: value[row] for name, value in expected.items()})
    with pytest.raises(ValueError, match="draft must be None with caches that cannot be rewound"):
        Engine(backbone, make_encoder_decoder("recurrent")).begin(BEGINNINGS, options_of(lookahead=2), source=SOURCES)
