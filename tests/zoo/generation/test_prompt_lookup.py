"""Prompt lookup: what is proposed equals a plain search, and the texts are those of the model alone."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from zoo import AttentionConfig, Backbone, CausalLM, FeedForwardConfig, PositionConfig, Seq2SeqLM, TransformerConfig
from zoo.generation import GenerationOptions, PromptLookup, RepetitionPenalty, Sample, SpeculativeDecoding

VOCABULARY = 6
COMPILES = keras.backend.backend() in ("tensorflow", "jax")


def proposed_by_hand(text, longest_match):
    """Token behind the last of the earlier places with the longest match; None stands for no token."""
    best, place = -1, None
    for end in range(1, len(text)):
        if text[end] is None:
            continue
        length = 0
        while length < min(longest_match, end) and text[end - 1 - length] == text[-1 - length] is not None:
            length += 1
        if length >= best:
            best, place = length, end
    # the first token of all has nothing before it
    return text[place] if place is not None else text[-1]


def proposed(logits):
    logits = ops.convert_to_numpy(logits)
    assert (np.sort(logits, axis=-1)[:, :-1] == -1e9).all() and (logits.max(-1) == 0).all()
    return logits.argmax(-1).tolist()


@pytest.mark.parametrize("longest_match", [1, 2, 3])
@pytest.mark.parametrize("with_source", [False, True])
def test_proposals_are_those_of_a_plain_search(longest_match, with_source):
    generator = np.random.default_rng(longest_match)
    lengths, width, new = [1, 2, 5, 9, 9, 9], 9, 12
    prompts = generator.integers(0, VOCABULARY, (6, width))
    mask = np.arange(width) >= width - np.array(lengths)[:, None]
    inputs = {"padding_mask": ops.convert_to_tensor(mask)}
    sources = [[]] * 6
    if with_source:
        ids, source_lengths = generator.integers(0, VOCABULARY, (6, 7)), [7, 0, 3, 7, 5, 1]
        inputs["encoder_token_ids"] = ops.convert_to_tensor(ids.astype("int32"))
        inputs["encoder_padding_mask"] = ops.convert_to_tensor(np.arange(7) < np.array(source_lengths)[:, None])
        sources = [[*row[:length], *[None] * (7 - length)] for row, length in zip(ids, source_lengths, strict=True)]
    lookup = PromptLookup(VOCABULARY, longest_match)
    state, constants = lookup.start_decoding(inputs, width + 2)
    _, state = lookup.advance(ops.convert_to_tensor(prompts[:, :-1]), 0, state, constants)
    state = lookup.resize_state(state, width + new)
    texts = [
        [*source, *[None] * (width - length), *row[width - length : -1]]
        for source, row, length in zip(sources, prompts, lengths, strict=True)
    ]
    token = prompts[:, -1]
    for index in range(width - 1, width + new - 1):
        logits, state = lookup.decode_step(ops.convert_to_tensor(token), index, state, constants)
        texts = [[*text, int(one)] for text, one in zip(texts, token, strict=True)]
        assert proposed(logits) == [proposed_by_hand(text, longest_match) for text in texts]
        token = generator.integers(0, VOCABULARY, 6)


def test_what_is_written_again_is_forgotten():
    lookup = PromptLookup(VOCABULARY)
    state, constants = lookup.start_decoding({"padding_mask": ops.ones((1, 4), "bool")}, 10)
    _, state = lookup.advance(ops.convert_to_tensor([[1, 2, 3, 4]]), 0, state, constants)
    _, state = lookup.advance(ops.convert_to_tensor([[1, 2, 5]]), 4, state, constants)
    # 5 at position 6 was refused
    logits, state = lookup.decode_step(ops.convert_to_tensor([1]), 6, state, constants)
    assert proposed(logits) == [2]
    logits, _ = lookup.decode_step(ops.convert_to_tensor([2]), 7, state, constants)
    assert proposed(logits) == [1], "1 2 1 2: the last place with the longest match is that of 2 1 2"


def config_of(architecture, **changes):
    settings = {
        "architecture": architecture,
        "vocabulary_size": 19,
        "hidden_dim": 8,
        "num_layers": 1,
        "max_length": 48,
        "attention": AttentionConfig(2),
        "feed_forward": FeedForwardConfig(8),
        "position": PositionConfig("learned"),
        "dropout": 0.0,
        "initializer_range": 0.7,
        **changes,
    }
    keras.utils.set_random_seed(0)
    return TransformerConfig(**settings)


@pytest.fixture(scope="module")
def model():
    return CausalLM(Backbone.from_config(config_of("decoder")))


PROMPTS = [[5, 6, 7, 5, 6], [3], [9, 9, 9, 9, 2, 4, 9]]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "jit_compile", [False, pytest.param(True, marks=pytest.mark.skipif(not COMPILES, reason="there is no XLA"))]
)
def test_greedy_texts_are_those_of_the_model(model, jit_compile):
    options = {"max_new_tokens": 24, "end_ids": 1, "jit_compile": jit_compile, "processors": [RepetitionPenalty(1.2)]}
    expected = model.generate_tokens(PROMPTS, **options)
    result = model.generate_tokens(PROMPTS, **options, draft="prompt_lookup", lookahead=5)
    rounds = result.pop("rounds")
    assert result.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(result[name], value, atol=1e-4)
    assert rounds <= expected["lengths"].max()


def test_a_text_that_repeats_itself_takes_few_passes():
    """One row: without penalties the greedy text of this model runs into a circle."""
    model = CausalLM(Backbone.from_config(config_of("decoder", position=PositionConfig("rotary"))))
    options = {"max_new_tokens": 40, "end_ids": (), "jit_compile": False}
    expected = model.generate_tokens([[5, 6, 7]], **options)["token_ids"]
    text = expected[0].tolist()
    assert any(text[-2 * n : -n] == text[-n:] for n in range(1, 12)), "the text must repeat itself"
    result = model.generate_tokens([[5, 6, 7]], **options, draft="prompt_lookup", lookahead=8)
    np.testing.assert_array_equal(result["token_ids"], expected)
    assert result["rounds"] <= 20


def test_sources_of_an_encoder_decoder_are_looked_through():
    translator = Seq2SeqLM(Backbone.from_config(config_of("encoder_decoder")))
    options = {"source": [[5, 6, 7, 8], [9, 3]], "max_new_tokens": 12, "end_ids": 1, "jit_compile": False}
    expected = translator.generate_tokens([[1], [1]], **options)
    result = translator.generate_tokens([[1], [1]], **options, draft="prompt_lookup")
    for name, value in expected.items():
        np.testing.assert_allclose(result[name], value, atol=1e-4)


@pytest.mark.slow
def test_samples_depend_on_nothing_but_seed_and_stream(model):
    options = {"max_new_tokens": 16, "end_ids": 1, "sampler": Sample(1.0, top_k=4), "seed": 3, "jit_compile": False}
    together = model.generate_tokens(PROMPTS, **options, draft="prompt_lookup", lookahead=4)["token_ids"]
    for row, lookahead in ((0, 2), (1, 4), (2, 7)):
        alone = model.generate_tokens(
            [PROMPTS[row]], **options, streams=[row], draft="prompt_lookup", lookahead=lookahead
        )
        assert alone["token_ids"][0].tolist() == together[row].tolist()


def test_distribution_is_that_of_the_target(prefix_model):
    """20,000 texts of three tokens, of a target that proposals from the prompt fit badly."""
    target, count, sampler = prefix_model(4, capacity=8, seed=1, sharpness=1.0), 20_000, Sample()
    lookup = PromptLookup(4)
    state, constants, first_tokens = target.inputs_of([0] * count)
    prompt = np.tile([[2, 3, 2]], (count, 1))
    draft_state, draft_constants = lookup.start_decoding({"padding_mask": np.ones((count, 3), "bool")}, 12)
    _, draft_state = lookup.advance(ops.convert_to_tensor(prompt), 0, draft_state, draft_constants)

    def feed(token_ids, index, state, constants):
        logits = []
        for place in range(2):
            one, state = target.step(token_ids[:, place], index + place, state, constants)
            logits.append(one)
        return ops.stack(logits, axis=1), state

    def propose(token_ids, index, state, constants):
        return lookup.decode_step(token_ids, index + 3, state, constants)

    loop = SpeculativeDecoding(feed, propose, GenerationOptions(3, sampler, (), (), (), 0, 2))
    inputs = loop.inputs(
        state=state,
        constants=constants,
        first_tokens=first_tokens,
        first_index=0,
        length_limit=np.full(count, 3),
        seed=5,
        streams=np.arange(count),
        prompt=ops.convert_to_tensor(prompt),
        draft_state=draft_state,
        draft_constants=draft_constants,
    )
    texts = ops.convert_to_numpy(loop.result(loop.advance(loop.start(inputs)))["token_ids"])
    statistic = 0.0
    for text in itertools.product(range(4), repeat=3):
        expected = count
        for place, token in enumerate(text):
            expected *= np.exp(target.log_probabilities(0, list(text[:place])))[token]
        statistic += ((texts == text).all(-1).sum() - expected) ** 2 / expected
    # Pearson's statistic has mean 63 and variance 126
    assert statistic < 63 + 4 * np.sqrt(126)


def test_refusals(model):
    with pytest.raises(TypeError, match="draft must be a task that writes texts or 'prompt_lookup', got 'small'"):
        model.generate_tokens([[3]], draft="small")
    with pytest.raises(ValueError, match="lookahead must be an integer of at least 1, got 0"):
        model.generate_tokens([[3]], draft="prompt_lookup", lookahead=0)
    with pytest.raises(ValueError, match="lookahead must be None where no draft proposes tokens, got 8"):
        model.generate_tokens([[3]], lookahead=8)
    with pytest.raises(ValueError, match="sampler must define weights"):
        model.generate_tokens([[3]], sampler="beam", draft="prompt_lookup")
    window = CausalLM(Backbone.from_config(config_of("decoder", attention=AttentionConfig(2, window=(4, 0)))))
    with pytest.raises(ValueError, match="draft must be None with caches that cannot be rewound.* got PromptLookup"):
        window.generate_tokens([[3]], max_new_tokens=20, draft="prompt_lookup")
