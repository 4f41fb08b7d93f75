"""What `inspect` returns: against the scores of the model, a shorter model, finite differences and formulas."""

import dataclasses

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

import keras  # noqa: E402
import served_tasks  # noqa: E402
from keras import ops  # noqa: E402

import zoo  # noqa: E402

TEXT = "Ada lives in London"
INPUTS = {"answers": ("who are you", TEXT), "masks": "Ada <mask> in London"}


def softmax(x):
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def tasks():
    tasks = served_tasks.make_tasks()
    tokenizer = tasks["names"].tokenizer
    tasks["stories"] = zoo.CausalLM(served_tasks.make_backbone("decoder", tokenizer, 7), tokenizer)
    config = zoo.RecurrentConfig(
        tokenizer.vocabulary_size, embedding_dim=8, hidden_dim=8, attention="previous_state", num_layers=2
    )
    keras.utils.set_random_seed(3)
    tasks["recurrent"] = zoo.Seq2SeqLM(zoo.Backbone.from_config(config), tokenizer)
    for weight in tasks["recurrent"].weights:
        weight.assign(weight * 3)
    return tasks


def inspected(tasks, name, **options):
    target = {"translations": "you are in", "recurrent": "you are in"}.get(name)
    return tasks[name].inspect(INPUTS.get(name, TEXT), target, **options)


@pytest.fixture(scope="module")
def found(tasks):
    return {name: inspected(tasks, name) for name in tasks}


def test_attention_is_a_distribution_over_what_is_seen(tasks, found):
    for name, each in found.items():
        lengths = (len(each.tokens), len(each.source_tokens or ()))
        kinds = [(each.attention, 0, 0), (each.source_attention, 1, 1), (each.cross_attention, 0, 1)]
        for weights, queries, keys in kinds:
            if weights is None:
                continue
            layers, heads = (1, 1) if name == "recurrent" else (2, 2)
            assert weights.shape == (layers, heads, lengths[queries], lengths[keys])
            np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
            assert weights.min() >= 0
        has_encoder = each.attention is not None and each.last_stack == "encoder"
        if each.attention is not None and not has_encoder:
            assert not np.triu(each.attention, 1).any()  # nothing that comes later
    assert found["recurrent"].attention is None and found["recurrent"].source_attention is None
    each = found["translations"]
    np.testing.assert_allclose(each.alignment, (each.cross_attention[1, 0] + each.cross_attention[1, 1]) / 2, rtol=1e-6)


def test_attention_of_one_head_by_hand(tasks, found):
    """Of the first layer, from its weights: softmax(q k / sqrt(d))."""
    backbone, each = tasks["stories"].backbone, found["stories"]
    table, block = np.asarray(backbone.token_embedding.table.embeddings), backbone.decoder.blocks[0]
    length, width, half = len(each.tokens), 16, 8
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    x = table[each.token_ids] + np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, width)
    np.testing.assert_allclose(each.norms[0], np.linalg.norm(x, axis=-1), rtol=1e-5)
    query, key = (
        x @ np.asarray(layer.kernel) + np.asarray(layer.bias)
        for layer in (block.attention.query_projection, block.attention.key_projection)
    )
    for head in range(2):
        part = slice(head * half, (head + 1) * half)
        scores = query[:, part] @ key[:, part].T / np.sqrt(half)
        scores[np.triu_indices(length, 1)] = -np.inf
        np.testing.assert_allclose(each.attention[0, head], softmax(scores), atol=1e-5)


def test_probabilities_add_up_to_the_score(tasks, found):
    each = found["stories"]
    assert each.targets == (*each.tokens[1:], None) and np.isnan(each.probabilities[-1])
    np.testing.assert_allclose(np.log(each.probabilities[:-1]).sum(), tasks["stories"].score([TEXT])[0], rtol=1e-4)
    for name in ("translations", "recurrent"):
        each = found[name]
        expected = tasks[name].score(TEXT, "you are in")
        np.testing.assert_allclose(np.log(each.probabilities).sum(), expected, rtol=1e-4)
        assert each.targets[:-1] == each.tokens[1:]
    each = tasks["translations"].inspect(TEXT, gradients=False)  # what the model writes
    written = tasks["translations"].generate(TEXT, jit_compile=False)
    ids = tasks["translations"].tokenizer.detokenize([each.token_ids.tolist()[1:]])
    assert ids.numpy()[0].decode().split() == written.split()


def test_the_lens_of_a_layer_is_a_model_that_ends_there(tasks, found):
    for name in ("stories", "translations", "names", "labels", "masks"):
        task, each = tasks[name], found[name]
        row = task.row_of(INPUTS.get(name, TEXT), "you are in" if name == "translations" else None)
        outputs = np.asarray(task.decisions(task(row.inputs, training=False), each.tokens).scores)[0]
        order = np.sort(np.exp(outputs), axis=-1)[:, ::-1]
        shown = each.choice_probabilities.shape[-1]
        np.testing.assert_allclose(each.choice_probabilities[-1], order[:, :shown], rtol=1e-4)
        # one layer less, with the same weights
        config = task.backbone.config
        layers = {"num_layers": 2 if name == "translations" else 1}
        if name == "translations":
            layers["num_decoder_layers"] = 1
        backbone = zoo.Backbone.from_config(dataclasses.replace(config, **layers))
        by_path = {weight.path.partition("/")[2]: weight for weight in task.backbone.weights}
        for weight in backbone.weights:
            weight.assign(by_path[weight.path.partition("/")[2]])
        whole, task.backbone = task.backbone, backbone
        try:
            outputs = np.asarray(task.decisions(task.call(row.inputs), each.tokens).scores)[0]
        finally:
            task.backbone = whole
        order = np.sort(np.exp(outputs), axis=-1)[:, ::-1]
        np.testing.assert_allclose(each.choice_probabilities[1], order[:, :shown], rtol=1e-3)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["stories", "labels", "names", "answers", "masks", "translations", "recurrent"])
def test_gradients_are_finite_differences(tasks, found, name):
    """A token's embedding times 1 + e changes the score by e times gradient times input."""
    task, each = tasks[name], found[name]
    row = task.row_of(INPUTS.get(name, TEXT), "you are in" if each.source_tokens else None)
    whole = np.asarray(task.decisions(task(row.inputs, training=False), each.tokens).scores)[0]
    best = whole.argmax(axis=-1)
    numbers = best if row.targets is None else np.where(row.targets < 0, best, row.targets)
    parts = {each.last_stack: each.gradients}
    if each.source_tokens:
        parts["encoder"] = each.source_gradients
    for stack, gradients in parts.items():
        for decided, place in ((0, 0), (len(each.rows) - 1, 1), (len(each.rows) // 2, 0)):
            scores = []
            for step in (-0.0003, 0.0003):  # longer ones pass kinks of the activation
                factors = np.ones((1, gradients.shape[1], 1), "float32")
                factors[0, place] += step
                with zoo.inspect.Capture((), {f"{stack}.embeddings": lambda x, factors=factors: x * factors}):
                    outputs = task(row.inputs, training=False)
                values = np.asarray(task.decisions(outputs, each.tokens).scores, "float64")[0, decided]
                scores.append(values[numbers[decided]])
            difference = (scores[1] - scores[0]) / 0.0006
            scale = max(np.abs(gradients).max(), 0.1)
            np.testing.assert_allclose(gradients[decided, place], difference, atol=0.02 * scale + 0.002)
    if each.last_stack == "decoder" and name != "recurrent":
        # what comes later has no influence
        assert not np.triu(each.gradients, 1).any()


def test_decisions_are_those_of_the_task(tasks, found):
    expected = tasks["labels"].predict([TEXT])[0]
    given = dict(found["labels"].top(0))
    np.testing.assert_allclose([given[name] for name in ("bad", "<b>good</b>", "mäßig")], expected, rtol=1e-4)
    each = found["names"]
    assert each.rows == ("Ada", "lives", "in", "London")
    shares = tasks["names"].predict([TEXT])[0]
    np.testing.assert_allclose(each.choice_probabilities[-1, :, 0], shares.max(axis=-1), rtol=1e-4)
    assert [choice for choice, _ in (each.top(row)[0] for row in range(4))] == tasks["names"].tag(TEXT)
    place = found["masks"].targets.index(None)
    (filled,) = tasks["masks"].fill_mask("Ada <mask> in London")
    assert [choice for choice, _ in found["masks"].top(place)] == [choice.lstrip("▁") or "▁" for choice, _ in filled]
    np.testing.assert_allclose([p for _, p in found["masks"].top(place)], [p for _, p in filled], rtol=1e-4)
    assert found["answers"].rows == ("start", "end") and found["answers"].choices.shape == (3, 2, 5)
    assert found["vectors"].choices is None and found["vectors"].norms.shape == (3, len(found["vectors"].tokens))
    with pytest.raises(ValueError, match="top.. needs a task that decides something, got a TextEmbedder"):
        found["vectors"].top(0)


def test_several_labels_and_values(tasks):
    backbone, tokenizer = tasks["labels"].backbone, tasks["labels"].tokenizer
    several = zoo.TextClassifier(backbone, tokenizer, labels=["a", "b"], problem="multi_label")
    each = several.inspect(TEXT)
    assert each.rows == ("a", "b") and not each.are_values
    np.testing.assert_allclose([dict(each.top(row))["yes"] for row in range(2)], several.predict([TEXT])[0], rtol=1e-4)
    number = zoo.TextClassifier(backbone, tokenizer, labels=1, problem="regression", pairs=True)
    each = number.inspect((TEXT, "who are you"))
    assert each.are_values and each.choices.tolist() == [[["value"]]] * 3
    expected = number.predict([(TEXT, "who are you")])[0, 0]
    np.testing.assert_allclose(each.choice_probabilities[-1, 0, 0], expected, rtol=1e-4)


def test_both_stacks_of_a_classifier(tasks):
    task = zoo.TextClassifier(tasks["translations"].backbone, tasks["labels"].tokenizer, labels=["a", "b"])
    each = task.inspect(TEXT)
    assert each.tokens[1:] == each.source_tokens[:-1] and each.cross_attention.shape[-1] == len(each.source_tokens)
    np.testing.assert_allclose([dict(each.top(0))[name] for name in "ab"], task.predict([TEXT])[0], rtol=1e-4)
    assert each.gradients.shape == (1, len(each.tokens)) and np.abs(each.source_gradients).max() > 0


def test_conversations(tasks):
    task = tasks["stories"]
    tokenizer = zoo.tokenizers.SentencePieceTokenizer.train(
        [served_tasks.WORDS] * 9, vocabulary_size=50, special_tokens=["<|im_start|>", "<|im_end|>"]
    ).with_chat_format("chatml")
    chat = zoo.CausalLM(served_tasks.make_backbone("decoder", tokenizer, 7), tokenizer)
    talk = [{"role": "user", "content": "who are you"}]
    asked = chat.inspect(talk, gradients=False)
    assert asked.token_ids.tolist() == zoo.tokenizers.chat.tokenize_chat(tokenizer, talk)
    answered = chat.inspect([*talk, {"role": "assistant", "content": "Ada"}], gradients=False)
    assert len(answered.tokens) > len(asked.tokens) and answered.gradients is None
    with pytest.raises(ValueError, match="chat format"):
        task.inspect(talk)


def test_what_cannot_be_inspected(tasks):
    with pytest.raises(ValueError, match="target must be None for a TextClassifier, got 'x'"):
        tasks["labels"].inspect(TEXT, "x")
    with pytest.raises(ValueError, match="text must have at most 96 tokens, as many as the model takes"):
        tasks["stories"].inspect(TEXT * 40)
    with pytest.raises(ValueError, match=r"text\[0\] has .* tokens"):
        tasks["labels"].inspect(TEXT * 40)
    with pytest.raises(ValueError, match="top_k must be"):
        tasks["labels"].inspect(TEXT, top_k=0)
    for name, text in (("stories", 3), ("translations", []), ("translations", [TEXT])):
        with pytest.raises(TypeError, match="text must be a string"):
            tasks[name].inspect(text)
    for text in ("", " ", []):
        with pytest.raises(ValueError, match="text must have at least one word to label, got none"):
            tasks["names"].inspect(text)
    for texts in ([TEXT], (), [TEXT, {"role": "user", "content": TEXT}]):
        with pytest.raises(TypeError, match=r"text must be a string, or a list of messages such as .*, got [\[(]"):
            tasks["stories"].inspect(texts)
    with pytest.raises(TypeError, match=r"a list of tuples of 2 texts; got text\[0\] = 'who are you'"):
        tasks["answers"].inspect("who are you")
    with pytest.raises(TypeError, match=r"text\[0\] must be a list of words like other rows, got array\('Ada'"):
        tasks["names"].inspect(np.array("Ada"))


def test_a_model_that_nobody_looks_at_computes_no_weights(tasks, monkeypatch):
    asked = []
    kind = type(tasks["names"].backbone.encoder.blocks[0])
    call = kind.call

    def spied(self, *arguments, **options):
        asked.append(options["return_weights"])
        return call(self, *arguments, **options)

    monkeypatch.setattr(kind, "call", spied)
    task = tasks["names"]
    row = task.row_of(TEXT)
    task(row.inputs)
    with zoo.inspect.Capture(["encoder.hidden"]) as found:
        task(row.inputs)
    assert asked == [False] * 4 and "encoder.attention" not in found and len(found["encoder.hidden"]) == 3
    with pytest.raises(KeyError, match="came by encoder.hidden that is kept, not by 'encoder.attention'"):
        found["encoder.attention"]
    # within a graph, too, where the first of both layers is traced for both
    graph = tf.function(lambda: task(row.inputs))
    names = {operation.name for operation in graph.get_concrete_function().graph.get_operations()}
    assert names and asked == [False] * 5
    assert ops.shape(graph()) == (1, 4, 5)
