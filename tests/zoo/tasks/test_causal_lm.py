"""Language models on texts: training, packing, prompts, stops, streams, scores, saving."""

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo import (  # noqa: E402
    AttentionConfig,
    Backbone,
    Beam,
    CausalLM,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    Sample,
    TransformerConfig,
)
from zoo.generation import BannedTokens, MinimumLength, NoRepeatNGram, RepetitionPenalty  # noqa: E402


def make_model(tokenizer, seed=0, architecture="decoder", **options):
    keras.utils.set_random_seed(seed)
    config = TransformerConfig(
        architecture,
        vocabulary_size=tokenizer.vocabulary_size,
        hidden_dim=16,
        num_layers=1,
        max_length=32,
        attention=AttentionConfig(num_heads=2),
        feed_forward=FeedForwardConfig(32),
        norm=NormConfig(placement="pre"),
        position=PositionConfig("rotary"),
        dropout=0.0,
        initializer_range=0.7,
    )
    return CausalLM(Backbone.from_config(config), tokenizer, **options)


@pytest.fixture(scope="module")
def model(tiny_tokenizer):
    """Random weights, large enough for varied texts; not to be changed."""
    return make_model(tiny_tokenizer)


@pytest.fixture
def fresh(tiny_tokenizer):
    return make_model(tiny_tokenizer)


PROMPTS = ["alpha beta", "", "kappa", "gamma iota omega theta alpha"]
# sampling, so that texts end at different places; eight tokens
OPTIONS = {"sampler": Sample(1.2), "max_new_tokens": 8, "jit_compile": False, "seed": 3}


@pytest.fixture(scope="module")
def generated(model):
    return model.generate(PROMPTS, **OPTIONS)


def ids_of(model, text):
    return [model.tokenizer.start_id, *model.tokenizer.tokenize(text).numpy().tolist()]


def log_softmax(logits):
    shifted = np.asarray(logits, "float64")
    shifted = shifted - shifted.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


# Training.


def test_preprocess(model):
    tokenizer = model.tokenizer
    alpha, beta = (tokenizer.token_to_id(f"\u2581{word}") for word in ("alpha", "beta"))
    start, end, pad = tokenizer.start_id, tokenizer.end_id, tokenizer.pad_id
    inputs, labels, weights = model.preprocessor.training_batch(
        tf.constant(["alpha", "beta alpha", ""]), None, tf.constant([1.0, 2, 3])
    )
    ids, mask = inputs["token_ids"].numpy(), inputs["padding_mask"].numpy()
    assert ids[:, :3].tolist() == [[start, alpha, pad], [start, beta, alpha], [start, pad, pad]]
    assert mask[:, :3].tolist() == [[True, True, False], [True] * 3, [True, False, False]]
    assert labels.numpy()[:, :3].tolist() == [[alpha, end, pad], [beta, alpha, end], [end, pad, pad]]
    assert weights.numpy()[:, :3].tolist() == [[1, 1, 0], [2, 2, 2], [3, 0, 0]]
    assert (
        ids.shape == (3, 8) and (ids[:, 3:] == pad).all() and not mask[:, 3:].any() and not weights[:, 3:].numpy().any()
    )


@pytest.mark.slow
def test_learns_texts(fresh, texts):
    fresh.compile(keras.optimizers.Adam(0.02))
    losses = fresh.fit(texts[:8] * 8, epochs=6, batch_size=16, validation_data=texts[:8], verbose=0).history
    assert losses["val_loss"][-1] < 0.5 * losses["loss"][0]
    np.testing.assert_allclose(fresh.evaluate(texts[:8], verbose=0), losses["val_loss"][-1], rtol=1e-4)
    beginning = " ".join(texts[0].split()[:2])
    assert fresh.generate(beginning, max_new_tokens=6, jit_compile=False).startswith(beginning)


def test_packed_is_separate(model, texts):
    """Packed texts get the logits that each gets alone."""
    some = texts[:6]
    ((inputs, labels, weights),) = model.preprocessor.packed_dataset(some, length=32, shuffle=False)
    packed = np.array(model(inputs))
    places = iter(
        zip(packed.reshape(-1, packed.shape[-1]), labels.numpy().ravel(), weights.numpy().ravel(), strict=True)
    )
    for text in some:
        ids = [*ids_of(model, text), model.tokenizer.end_id]
        alone = model({"token_ids": np.array([ids[:-1]]), "padding_mask": np.ones((1, len(ids) - 1), "bool")})
        for logits, label in zip(np.array(alone)[0], ids[1:], strict=True):
            there, packed_label, weight = next(places)
            assert packed_label == label and weight == 1
            np.testing.assert_allclose(there, logits, atol=1e-4)  # float32, logits of a size up to 10
    assert not any(weight for *_, weight in places)


def test_packed_texts_that_are_cut(model, texts):
    """All pairs of neighbours are there once, in rows of one length; cut texts count from 0 again."""
    dataset = model.preprocessor.packed_dataset(texts, batch_size=4, length=7, shuffle=False)
    expected, seen = [], []
    for text in texts:
        ids = [*ids_of(model, text), model.tokenizer.end_id]
        expected += list(zip(ids[:-1], ids[1:], strict=True))
    batches = list(dataset)
    assert len(batches) == int(dataset.cardinality()) == int(np.ceil(np.ceil(len(expected) / 7) / 4))
    for inputs, labels, weights in batches:
        for row in range(labels.shape[0]):
            real = weights[row].numpy() > 0
            assert (inputs["padding_mask"][row].numpy() == real).all()
            ids, sequences, positions = (
                inputs[n][row].numpy()[real] for n in ("token_ids", "sequence_ids", "positions")
            )
            seen += list(zip(ids, labels[row].numpy()[real], strict=True))
            starts = np.flatnonzero(np.diff(sequences, prepend=-1))
            assert sequences[0] == 0 and starts[0] == 0
            for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
                assert positions[start:end].tolist() == list(range(end - start))
            # a text begins with the start token, and so does each sequence but the first of a row
            assert all(ids[start] == model.tokenizer.start_id for start in starts[1:])
    assert seen == expected
    shuffled = [b[1].numpy().tolist() for b in model.preprocessor.packed_dataset(texts, batch_size=4, length=7)]
    assert shuffled != [labels.numpy().tolist() for _, labels, _ in batches]


def test_fit_packed(fresh, texts):
    fresh.compile(keras.optimizers.Adam(0.02))
    loss = fresh.evaluate(texts[:20], verbose=0)
    np.testing.assert_allclose(
        fresh.evaluate(fresh.preprocessor.packed_dataset(texts[:20], length=32), verbose=0), loss, rtol=0.1
    )
    history = fresh.fit(texts[:20], epochs=3, packed=True, batch_size=2, verbose=0).history["loss"]
    assert history[-1] < history[0]
    assert fresh.fit(tf.data.Dataset.from_tensor_slices(texts[:4]), packed=8, verbose=0).history["loss"][0] > 0
    for wrong, message in (
        ({"packed": 33}, "packed must be an integer from 1 to 32, got 33"),
        (
            {"packed": True, "validation_split": 0.5},
            "validation_split must be 0 with a dataset, .*, got 0.5",
        ),
        ({"packed": True, "y": texts[:2]}, "y must be None with packed texts"),
    ):
        with pytest.raises(ValueError, match=message):
            fresh.fit(texts[:2], verbose=0, **wrong)


def test_training_text_longer_than_the_model(model):
    with pytest.raises(ValueError, match=r"x\[1\] has 41 tokens .* max_length=32 .*packed=True"):
        model.fit(["alpha", "theta " * 40])


# Generation.


def test_rows_do_not_depend_on_batches(model, generated):
    assert len({*generated}) == 4 and all(text.startswith(p) for text, p in zip(generated, PROMPTS, strict=True))
    assert model.generate(PROMPTS, **OPTIONS, batch_size=2) == generated
    assert model.generate(tuple(PROMPTS), **{**OPTIONS, "seed": 4}) != generated
    stripped = model.generate(np.array(PROMPTS), **OPTIONS, strip_prompt=True)
    assert [prompt + text for prompt, text in zip(PROMPTS, stripped, strict=True)] == generated
    assert model.generate(PROMPTS[0], **OPTIONS) == generated[0]
    assert model.generate([], **OPTIONS) == []


def test_texts_are_those_of_the_tokens(model, generated):
    prompts = [ids_of(model, text) for text in PROMPTS]
    result = model.generate_tokens(prompts, **OPTIONS)
    for row, text in enumerate(generated):
        length = result["lengths"][row] - result["end_lengths"][row]
        whole = [*prompts[row], *result["token_ids"][row, :length].tolist()]
        assert text == model.tokenizer.detokenize([whole]).numpy()[0].decode()


def test_lengths(model):
    for options, most in (
        ({"max_new_tokens": 3}, 3),
        ({"max_length": 6}, 3),
        ({"max_length": 6, "max_new_tokens": 2}, 2),
    ):
        prompt = ids_of(model, "alpha beta")
        result = model.generate_tokens([prompt], **options, processors=[MinimumLength(9)], jit_compile=False)
        assert result["lengths"].tolist() == [most]
    for wrong in ({"max_new_tokens": 0}, {"max_length": 33}, {"max_length": 1}):
        with pytest.raises(ValueError, match="must be an integer"):
            model.generate("alpha", **wrong)


def test_prompt_longer_than_the_model(model):
    long = " ".join(["iota", "beta", "omega"] * 12)
    options = {"max_new_tokens": 4, "jit_compile": False}
    with pytest.raises(
        ValueError, match=r"texts\[1\] must leave room .* max_length=32, got 37: 'iota beta.*truncate=True"
    ):
        model.generate(["alpha", long], **options)
    cut = [model.tokenizer.start_id, *ids_of(model, long)[-27:]]
    assert len(cut) + 4 == 32
    result = model.generate_tokens([cut], **options)
    ids = [*cut, *result["token_ids"][0, : result["lengths"][0] - result["end_lengths"][0]].tolist()]
    expected = model.tokenizer.detokenize([ids]).numpy()[0].decode()
    end = " ".join(long.split()[-27:])
    assert model.generate(["alpha", long], truncate=True, **options)[1] == long + expected[len(end) :]


def test_stop_strings_cut_exactly(model, generated):
    stops = ["eta", "ka p", " om"]
    stopped = model.generate(PROMPTS, **OPTIONS, stop=stops, strip_prompt=True)
    expected = []
    for prompt, text in zip(PROMPTS, generated, strict=True):
        text = text[len(prompt) :]
        expected.append(text[: min([text.find(stop) for stop in stops if stop in text], default=len(text))])
    assert stopped == expected and stopped != [t[len(p) :] for p, t in zip(PROMPTS, generated, strict=True)]
    with pytest.raises(ValueError, match=r"stop\[1\] must not be empty"):
        model.generate("alpha", stop=["a", ""])


def test_stop_tokens(model):
    prompts = [ids_of(model, text) for text in PROMPTS]
    options = {**OPTIONS, "end_ids": ()}
    whole = model.generate_tokens(prompts, **options)["token_ids"]
    pair, single = whole[0, 2:4].tolist(), int(whole[3, 1])
    result = model.generate_tokens(prompts, **options, stop_sequences=[pair, single])
    assert result["lengths"][0] <= 4 and result["lengths"][3] <= 2
    for row in range(4):
        text = whole[row].tolist()
        ends = [n for n in range(1, 9) if text[n - 1] == single or text[max(n - 2, 0) : n] == pair]
        assert result["lengths"][row] == min(ends, default=8)


@pytest.mark.parametrize("stop", [pytest.param(None, marks=pytest.mark.slow), ["eta", "a g"]])
def test_stream_is_generate(model, generated, stop):
    for row, prompt in enumerate(PROMPTS):
        for chunk in (1, 3):
            options = {**OPTIONS, "seed": 3 + row}
            pieces = list(model.stream(prompt, chunk=chunk, stop=stop, **options))
            assert "".join(pieces) == model.generate(prompt, stop=stop, **options)
            assert chunk > 1 or len(pieces) > 2 or stop
    assert "".join(model.stream("kappa", strip_prompt=True, **OPTIONS)) == model.generate(
        "kappa", strip_prompt=True, **OPTIONS
    )
    with pytest.raises(ValueError, match=r"from left to right for stream\(\), got Beam"):
        model.stream("alpha", sampler=Beam(2))


def test_continuing_from_a_cache(model, generated):
    first, cache = model.generate(PROMPTS, **OPTIONS, return_cache=True)
    assert first == generated
    news = [" omega", " iota kappa", "", " theta"]
    options = {"max_new_tokens": 4, "jit_compile": False}
    continued, again = model.generate(news, cache=cache, return_cache=True, strip_prompt=True, **options)
    for row, new in enumerate(news):
        tokens = [*cache.token_ids[row], *model.tokenizer.tokenize(new).numpy().tolist()]
        result = model.generate_tokens([tokens], **options)
        assert again.token_ids[row] == [
            *tokens,
            *result["token_ids"][0, : result["lengths"][0] - result["end_lengths"][0]].tolist(),
        ]
    assert all(isinstance(text, str) for text in continued)
    with pytest.raises(ValueError, match="texts must hold one text per row, got 1 for 4 in cache"):
        model.generate(["alpha"], cache=cache)
    with pytest.raises(ValueError, match="return_cache must be False with stop strings"):
        model.generate("alpha", stop="a", return_cache=True)


@pytest.mark.slow
def test_draft_model(model, tiny_tokenizer):
    draft = make_model(tiny_tokenizer, seed=5)
    options = {"max_new_tokens": 8, "jit_compile": False, "processors": [RepetitionPenalty(1.2)]}
    assert model.generate(PROMPTS, draft=draft, lookahead=3, **options) == model.generate(PROMPTS, **options)
    with pytest.raises(ValueError, match=r"as Greedy\(\) and Sample"):
        model.generate("alpha", sampler="beam", draft=draft)
    with pytest.raises(ValueError, match="draft must have the tokenizer of the model"):
        model.generate("alpha", draft=CausalLM(draft.backbone))


def test_processors_from_configurations(model):
    banned = model.tokenizer.token_to_id("\u2581theta")
    rules = [{"name": "no_repeat_ngram", "size": 1}, {"name": "banned_tokens", "token_ids": [banned]}]
    texts = model.generate(PROMPTS, processors=rules, max_new_tokens=8, jit_compile=False, strip_prompt=True)
    assert texts == model.generate(
        PROMPTS,
        processors=[NoRepeatNGram(1), BannedTokens([banned])],
        max_new_tokens=8,
        jit_compile=False,
        strip_prompt=True,
    )
    assert not any("theta" in text for text in texts)


# Scores.


def test_score(model, texts):
    expected, given, ended = [], [], []
    for text in texts[:5]:
        ids = [*ids_of(model, text), model.tokenizer.end_id]
        logits = model({"token_ids": np.array([ids[:-1]]), "padding_mask": np.ones((1, len(ids) - 1), "bool")})
        gained = log_softmax(logits)[0, np.arange(len(ids) - 1), ids[1:]]
        expected.append(gained[:-1].sum())
        ended.append(gained.sum())
        given.append(gained[1:-1].sum())
    # sums of up to six log-probabilities of a size up to 20
    np.testing.assert_allclose(model.score(texts[:5]), expected, rtol=1e-4)
    np.testing.assert_allclose(model.score(texts[:5], with_end=True, batch_size=2), ended, rtol=1e-4)
    words = [text.split(" ", 1) for text in texts[:5]]
    scores = model.score([" " + rest for _, rest in words], prompts=[first for first, _ in words])
    np.testing.assert_allclose(scores, given, rtol=1e-4)
    assert model.score([]).shape == (0,)
    np.testing.assert_array_equal(model.score([""]), [0])
    with pytest.raises(ValueError, match="prompts must hold one prompt per text, got 1 for 2 in texts"):
        model.score(["a", "b"], prompts=["c"])
    with pytest.raises(ValueError, match=r"texts\[0\] has"):
        model.score(["theta " * 40])


def test_score_where_prompt_and_text_share_a_token(model):
    """`kap` and `pa` become one token together, so all of it counts."""
    np.testing.assert_allclose(model.score(["pa"], prompts=["kap"]), model.score(["kappa"]), rtol=1e-5)


# Saving, and what is refused.


def test_saving(fresh, generated, tmp_path):
    fresh.save(tmp_path / "model.keras")
    fresh.save_to_preset(tmp_path / "preset")
    for loaded in (keras.models.load_model(tmp_path / "model.keras"), CausalLM.from_preset(tmp_path / "preset")):
        assert loaded.generate(PROMPTS, **OPTIONS) == generated


def test_start_tokens(tiny_tokenizer):
    model = make_model(tiny_tokenizer, add_start_token=False)
    assert model.options()["add_start_token"] is False
    ids = tiny_tokenizer.tokenize("alpha beta").numpy().tolist()
    assert model.preprocessor.prompt_ids(tf.constant(["alpha beta", ""])).to_list() == [ids, [tiny_tokenizer.start_id]]
    assert model.preprocessor.text_ids(tf.constant(["alpha beta"])).to_list() == [[*ids, tiny_tokenizer.end_id]]
    with pytest.raises(ValueError, match="add_start_token must be True, False or None, got 3"):
        make_model(tiny_tokenizer, add_start_token=3)


def test_refusals(tiny_tokenizer):
    with pytest.raises(ValueError, match="must have the architecture 'decoder', got 'encoder'"):
        make_model(tiny_tokenizer, architecture="encoder")
    model = CausalLM(make_model(tiny_tokenizer).backbone)
    for use in (
        lambda: model.generate(["alpha"]),
        lambda: model.score(["alpha"]),
        lambda: model.fit(["alpha"], verbose=0),
        lambda: model.fit(["alpha"], packed=True),
        lambda: model.export("unused"),
    ):
        with pytest.raises(ValueError, match="needs a tokenizer"):
            use()
