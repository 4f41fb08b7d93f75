"""Answers in contexts: windows, places, spans, loss, export."""

import dataclasses

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo import Backbone  # noqa: E402
from zoo.preprocessing.windows import make_windows  # noqa: E402
from zoo.tasks import QuestionAnswerer  # noqa: E402
from zoo.tasks.spans import Answer  # noqa: E402

WORDS = ["alpha", "beta", "gamma", "omega", "theta"]
CONTEXT = "alpha, beta gamma. omega theta alpha kapex beta gamma omega theta beta alpha gamma theta omega alpha"


@pytest.fixture(scope="module")
def answerer(make_task):
    return make_task(QuestionAnswerer, stride=4, max_answer_length=3)


@pytest.fixture(scope="module")
def rows(texts):
    """Questions, contexts of one to several windows, and answers of one or two words; each fifth has none."""
    generator = np.random.default_rng(0)
    contexts, answers = [], []
    for row in range(12):
        words = " ".join(texts[row : row + 1 + 3 * (row % 4)]).split()
        first = int(generator.integers(len(words) - 1))
        contexts.append(" ".join(words))
        place = (" ".join(words[first : first + 2]), len(" ".join([*words[:first], ""])))
        answers.append(None if row % 5 == 4 else place)
    return [f"{WORDS[row % 5]} beta" for row in range(12)], contexts, answers


@pytest.mark.parametrize(("room", "overlap"), [(10, 0), (10, 3), (10, 5), (7, 3), (2, 1), (1, 0)])
def test_windows_cover_a_text(room, overlap):
    lengths = np.arange(40)
    windows = make_windows(*(tf.constant(part, tf.int64) for part in (lengths, [room] * 40, [overlap] * 40)))
    parts = list(zip(*(part.numpy() for part in windows), strict=True))
    for length in lengths:
        mine = [part[1:] for part in parts if part[0] == length]
        owned = [first + place for first, _, begin, end in mine for place in range(begin, end)]
        assert owned == list(range(length))
        assert all(size <= room and 0 <= begin and end <= size for _, size, begin, end in mine)
        for (first, size, *_), (after, *_) in zip(mine, mine[1:], strict=False):
            assert first + size - after == overlap
        assert mine[-1][0] + mine[-1][1] == length


def test_places_are_those_of_the_answers(answerer, rows):
    questions, contexts, answers = rows
    preprocessor, tokenizer = answerer.preprocessor, answerer.tokenizer
    examples = preprocessor.examples((questions, contexts), answers, np.arange(12.0))
    inputs, places, weights = preprocessor.collate(*examples[:3])
    assert len(places) == len(examples.groups) > 16 and np.array_equal(weights, examples.groups)
    found = set()
    for ids, (first, last), row in zip(inputs["token_ids"].numpy(), places.numpy(), examples.groups, strict=True):
        if first:
            text = tokenizer.detokenize(ids[first : last + 1]).numpy().decode()
            assert text == answers[row][0]
            found.add(row)
        else:
            assert last == 0
    assert found == {row for row in range(12) if answers[row]}
    # rows of a context stay together
    kept, held = examples.split(0.3)
    assert kept.groups.max() + 1 == held.groups.min() == 8
    columns = ([answer[0] if answer else "" for answer in answers], [answer[1] if answer else 0 for answer in answers])
    squad = [
        {"text": [answer[0]] if answer else [], "answer_start": [answer[1]] if answer else []} for answer in answers
    ]
    for same in (columns, squad):
        np.testing.assert_array_equal(preprocessor.examples((questions, contexts), same).targets, places)
    batch = preprocessor.training_batch(*(tuple(map(tf.constant, part)) for part in ((questions, contexts), columns)))
    np.testing.assert_array_equal(batch[0]["token_ids"], inputs["token_ids"])
    np.testing.assert_array_equal(batch[1], places)


def test_positions_count_characters(answerer):
    context, text = "\u00fcber \U0001f600 alpha beta", "alpha"
    start = context.index(text)
    _, places, _ = answerer.preprocessor((["beta"], [context]), [(text, start)])
    ids, starts, _ = answerer.tokenizer.tokenize_with_offsets(context)
    first = starts.numpy().tolist().index(start - 1)  # with the space before it
    assert places.numpy().tolist() == [[first + 3, first + 3]] and ids.shape[0] > first


def brute_force(task, question, context):
    """All spans by three loops: `{(start, end): logit}`, and the logit of no answer."""
    tokenizer, preprocessor = task.tokenizer, task.preprocessor
    ids, starts, ends = (part.numpy() for part in tokenizer.tokenize_with_offsets(context))
    before = [tokenizer.start_id, *tokenizer.tokenize(question).numpy(), tokenizer.end_id]
    room = preprocessor.sequence_length - len(before) - 1
    overlap = min(preprocessor.stride, room // 2)
    spans, none, first = {}, [], 0
    while True:
        part = ids[first : first + room]
        row = np.array([[*before, *part, tokenizer.end_id]])
        segments = np.array([[0] * len(before) + [1] * (len(part) + 1)])
        inputs = {"token_ids": row, "padding_mask": np.ones_like(row, bool), "segment_ids": segments}
        begin, end = np.array(task(inputs))[0].T
        none.append(begin[0] + end[0])
        is_last = first + room >= len(ids)
        lowest = 0 if first == 0 else overlap // 2
        highest = len(part) if is_last else room - overlap + overlap // 2
        for one in range(lowest, highest):
            for other in range(one, min(one + task.max_answer_length, len(part))):
                span = (starts[first + one], ends[first + other])
                spans[span] = begin[len(before) + one] + end[len(before) + other]
        if is_last:
            return spans, min(none)
        first += room - overlap


def test_answers_are_the_best_spans(answerer):
    context = f"{CONTEXT} {CONTEXT}"
    spans, none = brute_force(answerer, "beta gamma", context)
    logits = np.array([*spans.values(), none], "float64")
    total = logits.max() + np.log(np.exp(logits - logits.max()).sum())
    best = sorted(spans, key=spans.get, reverse=True)[:5]
    found = answerer.answer("beta gamma", context, top_k=5)
    for (start, end), answer in zip(best, found, strict=True):
        text = context[start:end]
        assert answer.text == text.strip() == context[answer.start : answer.end]
        assert answer.start == start + len(text) - len(text.lstrip())
        np.testing.assert_allclose(answer.score, np.exp(spans[start, end] - total), rtol=1e-3)
        np.testing.assert_allclose(answer.no_answer, np.exp(none - total), rtol=1e-3)
    assert len(set(found)) == 5
    # among others it is what it is alone
    both = answerer.answer(["beta gamma", "omega"], [context, "alpha"])
    assert both[0][:3] == found[0][:3] and answerer.predict([("beta gamma", context)])[0][:3] == found[0][:3]
    assert answerer.answer("beta", "") == Answer("", 0, 0, 1.0, 1.0) and answerer.answer([], []) == []


def test_loss_is_the_mean_of_both_sides(answerer, rows):
    questions, contexts, answers = rows
    examples = answerer.preprocessor.examples((questions, contexts), answers)
    inputs, places, _ = answerer.preprocessor.collate(*examples[:3])
    logits = np.array(answerer({name: value.numpy() for name, value in inputs.items()}), "float64")
    losses, right = [], []
    for row, place, mask in zip(logits, places.numpy(), inputs["padding_mask"].numpy(), strict=True):
        assert np.all(row[~mask] == -1e9)
        sides = row[mask].T
        losses.append(np.mean([np.log(np.exp(side).sum()) - side[at] for side, at in zip(sides, place, strict=True)]))
        right.append(np.array_equal(sides.argmax(-1), place))
    found = answerer.evaluate((questions, contexts), answers, verbose=0)
    np.testing.assert_allclose(found, [np.mean(losses), np.mean(right)], rtol=1e-4)
    columns = ([answer[0] if answer else "" for answer in answers], [answer[1] if answer else -1 for answer in answers])
    dataset = tf.data.Dataset.from_tensor_slices(((questions, contexts), columns)).batch(12)
    np.testing.assert_allclose(answerer.evaluate(dataset, verbose=0), found, rtol=1e-4)


def test_trains_and_is_served(make_task, rows, odd_texts, tmp_path):
    questions, contexts, answers = rows
    model = make_task(QuestionAnswerer, stride=4, no_answer_threshold=0.0, max_answer_length=3)
    model.compile(keras.optimizers.Adam(0.01), run_eagerly=True)
    losses = model.fit((questions, contexts), answers, epochs=2, verbose=0).history["loss"]
    assert losses[1] < losses[0] - 0.1
    model.export(tmp_path / "export")
    served = tf.saved_model.load(tmp_path / "export")
    odd = [text if isinstance(text, bytes) else text.encode() for text in odd_texts[:60]]
    contexts = [*contexts, *(b" ".join(odd[row : row + 4]) for row in range(60))]
    questions = [*questions, *["beta \u00e9"] * 60]
    found = model.answer(questions, contexts)
    output = {name: value.numpy() for name, value in served.serve(questions, contexts).items()}
    for name in ("scores", "no_answer"):
        numbers = [getattr(answer, {"scores": "score"}.get(name, name)) for answer in found]
        np.testing.assert_allclose(output[name], numbers, rtol=2e-3, atol=1e-5)
    assert [text.decode("utf-8", "replace") for text in output["answers"]] == [answer.text for answer in found]
    for context, text, start, end in zip(contexts, output["answers"], output["starts"], output["ends"], strict=True):
        assert (context if isinstance(context, bytes) else context.encode())[start:end] == text
    assert served.serve(tf.constant([], tf.string), tf.constant([], tf.string))["answers"].shape == (0,)
    with pytest.raises(tf.errors.InvalidArgumentError, match="A question may have 10 tokens; rows and their tokens"):
        served.serve(["alpha", "beta " * 20], ["alpha", "beta"])


def test_both_stacks_are_given_the_same_tokens(encoder_config, mask_tokenizer):
    config = dataclasses.replace(encoder_config, architecture="encoder_decoder", pooler=False)
    config = dataclasses.replace(config, embedding=dataclasses.replace(config.embedding, num_segments=0))
    model = QuestionAnswerer(Backbone.from_config(config), mask_tokenizer, decoder_start_id=2)
    ids = np.array([[5, 6, 7, 8, 0, 0], [9, 9, 9, 9, 9, 9]])
    mask = ids > 0
    shifted = np.array([[2, 5, 6, 7, 8, 0], [2, 9, 9, 9, 9, 9]])
    stacks = {"encoder_token_ids": ids, "encoder_padding_mask": mask}
    stacks |= {"decoder_token_ids": shifted, "decoder_padding_mask": mask}
    expected = model.head(model.backbone(stacks)["decoder_sequence_output"])
    found = np.array(model({"token_ids": ids, "padding_mask": mask}))
    np.testing.assert_allclose(found[mask], np.array(expected)[mask], rtol=1e-5, atol=1e-6)
    assert model.own_options()["decoder_start_id"] == 2
    with pytest.raises(ValueError, match="decoder_start_id must be an integer from 0 to 26, got 27"):
        QuestionAnswerer(model.backbone, mask_tokenizer, decoder_start_id=27)
    with pytest.raises(ValueError, match="no_answer_threshold must be a finite number or None, got nan"):
        QuestionAnswerer(model.backbone, mask_tokenizer, no_answer_threshold=float("nan"))
    with pytest.raises(ValueError, match="decoder_start_id must be None with a backbone of one stack, got 3"):
        QuestionAnswerer(Backbone.from_config(encoder_config), mask_tokenizer, decoder_start_id=3)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (
            (["a"], ["alpha beta"]),
            [("beta", 5)],
            r"y\[0\] must be a part of x\[1\]\[0\] .*' bet' stands at 5, got 'beta'",
        ),
        ((["a"], ["alpha"]), ["alpha"], r"y\[0\] must be \(text, start\), a dictionary .* got 'alpha'"),
        ((["a"], ["alpha"]), [("alpha", -2)], r"y\[0\]\[1\] must be an integer of at least -1, got -2"),
        ((["a"], ["alpha "]), [(" ", 5)], r"y\[0\] must hold more than white space, got ' '"),
        ((["a"], ["alpha"]), None, "y must hold one answer per row, got None for 1 in x"),
        ((["a"], ["alpha"]), [None, None], "y must hold one answer per row, got 2 for 1 in x"),
        ((["a", "b"], ["alpha"]), [None], r"x\[1\] must hold one text per row, got 1 for 2 in x\[0\]"),
        (
            [("b", "alpha"), ("alpha " * 12, "alpha")],
            [None] * 2,
            r"x\[0\]\[1\] has 12 tokens, and a question may have 10, half of the room in a sequence of 24: 'alpha",
        ),
        (
            ["alpha"],
            [None],
            r"x must be a tuple of 2 columns of texts, or a list of tuples of 2 texts; got x\[0\] = .alpha.",
        ),
    ],
)
def test_what_is_wrong_is_named(answerer, x, y, message):
    with pytest.raises((TypeError, ValueError), match=message):
        answerer.fit(x, y, verbose=0)


def test_answers_of_a_dataset_stand_where_they_say(answerer):
    rows = ((["a"], ["alpha beta"]), (["beta"], [5]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Every answer must stand at its first character"):
        answerer.evaluate(tf.data.Dataset.from_tensor_slices(rows).batch(1), verbose=0)
