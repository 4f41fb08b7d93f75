"""Tasks from saved models, from named architectures and from models of other tasks."""

import dataclasses
import time
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo import Backbone, PositionConfig, Seq2SeqLM  # noqa: E402
from zoo.tasks import (  # noqa: E402
    MaskedLM,
    QuestionAnswerer,
    ReplacedTokenDetector,
    TextClassifier,
    TextEmbedder,
    TokenClassifier,
    saving,
)

# Every option of each task, none of them at its default.
TEXT = {"sequence_length": 20, "truncate": True, "segments": False}
OPTIONS = {
    TextClassifier: {
        **TEXT,
        "labels": ["a", "b"],
        "problem": "multi_label",
        "pairs": True,
        "pooling": "mean",
        "hidden_activation": "gelu",
        "inner_bias": False,
        "inner_norm": True,
        "projection_bias": False,
        "head_dropout": 0.2,
        "head_dropout_before": 0.0,
        "pair_separators": 2,
        "stride": None,
        "temperature": 1.5,
        "threshold": [0.25, 0.75],
    },
    TokenClassifier: {
        **TEXT,
        "truncate": False,
        "stride": 3,
        "temperature": 1.5,
        "labels": ["O", "B-X"],
        "split": "space",
        "hidden_activation": "relu",
        "inner_bias": False,
        "inner_norm": True,
        "projection_bias": False,
        "head_dropout": 0.0,
    },
    QuestionAnswerer: {
        **TEXT,
        "stride": 3,
        "pair_separators": 2,
        "hidden_activation": "relu",
        "inner_bias": False,
        "inner_norm": True,
        "projection_bias": False,
        "head_dropout": 0.2,
        "max_answer_length": 4,
        "no_answer_threshold": 1.5,
        "separator_id": 3,
    },
    ReplacedTokenDetector: {**TEXT, "replace_rate": 0.3, "hidden_activation": "relu"},
    TextEmbedder: {
        **TEXT,
        "pooling": "max",
        "projections": [{"units": 5, "activation": "tanh", "use_bias": False}],
        "normalize": False,
        "width": 3,
        "objective": "cosine_regression",
        "prompts": {"query": "alpha ", "document": ""},
        "default_prompt": "query",
        "training_prompts": ["query", None],
    },
    MaskedLM: {
        **TEXT,
        "mask_rate": 0.3,
        "mask_share": 0.5,
        "random_share": 0.5,
        "whole_words": True,
        "head": "transform",
        "head_activation": "relu",
        "head_bias": False,
        "head_norm_epsilon": 1e-6,
    },
}


def outputs(task, texts):
    rows = [b"alpha beta", b"omega"]
    has_pairs = task.options().get("pairs") or isinstance(task, QuestionAnswerer)
    rows = (rows, rows[::-1]) if has_pairs else rows
    inputs = {name: value.numpy() for name, value in task.preprocessor(rows).items()}
    return np.array(task(inputs)) if not isinstance(task, TokenClassifier) else task.predict(texts)[0]


@pytest.mark.parametrize("task_class", OPTIONS, ids=lambda kind: kind.__name__)
def test_saved_and_loaded(make_task, task_class, texts, tmp_path):
    task = make_task(task_class, **OPTIONS[task_class])
    if task_class is TokenClassifier:
        expected = task.predict(texts[:1])[0]
    else:
        expected = outputs(task, texts)
    assert task.options() == OPTIONS[task_class]
    task.save_to_preset(tmp_path / "preset")
    task.save(tmp_path / "task.keras")
    for loaded in (task_class.from_preset(tmp_path / "preset"), keras.models.load_model(tmp_path / "task.keras")):
        assert loaded.options() == task.options()
        assert loaded.tokenizer.get_vocabulary() == task.tokenizer.get_vocabulary()
        again = loaded.predict(texts[:1])[0] if task_class is TokenClassifier else outputs(loaded, texts)
        np.testing.assert_allclose(again, expected, rtol=1e-5, atol=1e-6)


def test_backbone_of_another_task(make_task, texts, tmp_path):
    model = make_task(MaskedLM, sequence_length=20, truncate=True)
    model.save_to_preset(tmp_path / "model")
    with pytest.raises(ValueError, match="labels must be names or a number of labels, got none: .* holds a MaskedLM"):
        TextClassifier.from_preset(tmp_path / "model")
    with pytest.warns(UserWarning, match="has no weights for the head of this task: it starts untrained"):
        classifier = TextClassifier.from_preset(tmp_path / "model", labels=["no", "yes"], truncate=False)
    assert (classifier.longest, classifier.preprocessor.truncate, classifier.pooling) == (20, False, "pooler")
    # of the folder of a run, too, the warning names the line that asked for the model
    model.save_to_preset(tmp_path / "run" / "model")
    for preset in (tmp_path / "model", tmp_path / "run"):
        with pytest.warns(UserWarning, match="starts untrained") as found:
            TextClassifier.from_preset(preset, labels=["no", "yes"], truncate=False)
        assert found[0].filename == __file__
    # the pooler, idle in the masked language model, trains here
    assert any("pooler" in weight.path for weight in classifier.trainable_variables)
    assert not any("pooler" in weight.path for weight in model.trainable_variables)
    for ours, theirs in zip(classifier.backbone.weights, model.backbone.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    classifier.save_to_preset(tmp_path / "classifier")
    with pytest.warns(UserWarning, match="has the head of this task for other labels than those given: it starts"):
        other = TextClassifier.from_preset(tmp_path / "classifier", labels=5)
    assert len(other.labels) == 5 and other.longest == 20
    same = TextClassifier.from_preset(tmp_path / "classifier", sequence_length=10)
    assert same.longest == 10 and same.labels.names == ["no", "yes"]
    np.testing.assert_array_equal(same.head.projection.kernel, classifier.head.projection.kernel)


def test_a_head_without_weights_is_not_said_to_start_untrained(make_task, tmp_path):
    make_task(MaskedLM).save_to_preset(tmp_path / "model")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TextEmbedder.from_preset(tmp_path / "model")


def test_another_length_is_that_of_texts(make_task, tmp_path):
    rotary = {"position": PositionConfig("rotary")}
    make_task(TextEmbedder, config=rotary).save_to_preset(tmp_path / "whole")
    make_task(TextEmbedder, config=rotary, sequence_length=10).save_to_preset(tmp_path / "short")
    # of 24 tokens
    for name, length, longest in (("whole", 12, 12), ("whole", 48, 48), ("short", 12, 10), ("short", 8, 8)):
        task = TextEmbedder.from_preset(tmp_path / name, max_length=length)
        assert (task.backbone.config.max_length, task.longest) == (length, longest)
    assert Backbone.from_preset(tmp_path / "whole", max_length=12).config.max_length == 12
    assert TextEmbedder.from_preset(tmp_path / "whole", max_length=48, sequence_length=16).longest == 16


def test_what_was_fitted_to_other_probabilities_is_left(make_task, tmp_path):
    make_task(TextClassifier, labels=2, temperature=1.5).save_to_preset(tmp_path / "one")
    make_task(TextClassifier, labels=2, problem="multi_label", threshold=[0.2, 0.4]).save_to_preset(
        tmp_path / "several"
    )
    assert TextClassifier.from_preset(tmp_path / "one", problem="multi_label").temperature == 1
    assert TextClassifier.from_preset(tmp_path / "several", problem="single_label").threshold == 0.5
    assert TextClassifier.from_preset(tmp_path / "several", problem="multi_label").threshold != 0.5


def test_numbers_of_numpy_are_saved(make_task, tmp_path):
    model = make_task(TextClassifier, labels=2, head_dropout=np.float32(0.25), head_dropout_before=np.float32(0.5))
    model.save_to_preset(tmp_path / "model")
    assert TextClassifier.from_preset(tmp_path / "model").options()["head_dropout"] == 0.25


def test_labels_as_a_tuple_are_those_of_the_file(make_task, tmp_path):
    model = make_task(TextClassifier, labels=("no", "yes"))
    model.save_to_preset(tmp_path / "model")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = TextClassifier.from_preset(tmp_path / "model", labels=("no", "yes"))
    np.testing.assert_array_equal(loaded.head.projection.kernel, model.head.projection.kernel)
    with pytest.warns(UserWarning, match="starts untrained"):
        TextClassifier.from_preset(tmp_path / "model", labels=("yes", "no"))


def test_choices_that_would_leave_weights_unread(make_task, tmp_path):
    make_task(TextClassifier, labels=2, hidden_activation="tanh").save_to_preset(tmp_path / "classifier")
    make_task(MaskedLM, head="transform").save_to_preset(tmp_path / "masked_lm")
    for kind, name, choice in (
        (TextClassifier, "classifier", {"hidden_activation": None}),
        (MaskedLM, "masked_lm", {"head": "projection"}),
    ):
        with pytest.raises(
            ValueError, match=rf"must not change the weights of the head in .*{name}, got \['{next(iter(choice))}'\]"
        ):
            kind.from_preset(tmp_path / name, **choice)
        assert kind.from_preset(tmp_path / name, load_weights=False, **choice).options().items() >= choice.items()
    assert TextClassifier.from_preset(tmp_path / "classifier", head_dropout=0.25).head.dropout == 0.25


@keras.saving.register_keras_serializable("tests_of_loading")
class Tempered(TextEmbedder):
    """An embedder with weights of its own, one of which does not train."""

    def __init__(self, backbone, preprocessor=None, **options):
        super().__init__(backbone, preprocessor, **options)
        self.temperature = self.add_weight(name="temperature", shape=(), initializer="ones")
        self.seen = self.add_weight(name="seen", shape=(2,), initializer="zeros", trainable=False)


@keras.saving.register_keras_serializable("tests_of_loading")
class Dropped(TextEmbedder):
    """An embedder with an argument that configurations have too."""

    def __init__(self, backbone, preprocessor=None, *, dropout: float = 0.5, **options):
        super().__init__(backbone, preprocessor, **options)
        self.dropout = dropout

    def own_options(self):
        return {**super().own_options(), "dropout": self.dropout}


def test_arguments_of_a_task_come_before_those_of_its_backbone(make_task, tmp_path):
    make_task(Dropped).save_to_preset(tmp_path / "preset")
    loaded = Dropped.from_preset(tmp_path / "preset", dropout=0.25)
    assert (loaded.dropout, loaded.backbone.config.dropout) == (0.25, 0.0)


def test_weights_of_the_task_itself(make_task, tmp_path):
    task = make_task(Tempered)
    task.temperature.assign(3.5)
    task.seen.assign([1.0, 2.0])
    for name in ("plain", "adapted"):
        task.save_to_preset(tmp_path / name)
        task.save(tmp_path / f"{name}.keras")
        for loaded in (Tempered.from_preset(tmp_path / name), keras.models.load_model(tmp_path / f"{name}.keras")):
            assert float(loaded.temperature) == 3.5
            np.testing.assert_array_equal(loaded.seen, [1.0, 2.0])
        if name == "plain":
            task.enable_lora(2)
    TextEmbedder(task.backbone, task.tokenizer).save_weights(tmp_path / "without.weights.h5")
    with pytest.raises(ValueError, match="expected 2 variables, but received 0"):
        make_task(Tempered).load_weights(tmp_path / "without.weights.h5")


def test_tasks_on_one_backbone_train_their_own_parts(make_task, texts):
    first = make_task(TextClassifier, labels=2)
    second = MaskedLM(first.backbone, first.tokenizer)
    pooler = {id(variable) for variable in first.backbone.pooler.variables}
    assert pooler <= {id(variable) for variable in first.trainable_variables}
    for names in (("trainable_variables", "non_trainable_variables"), ("trainable_weights", "non_trainable_weights")):
        trainable, others = ({id(variable) for variable in getattr(second, name)} for name in names)
        assert pooler <= others and not trainable & others
        assert trainable | others == {id(variable) for variable in getattr(second, names[0].removeprefix("trainable_"))}
    before = [np.array(variable) for variable in first.backbone.pooler.variables]
    for model, moves in ((second, False), (first, True)):
        model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
        model.fit(texts[:4], [0, 1, 0, 1] if moves else None, verbose=0)
        after = [np.array(variable) for variable in first.backbone.pooler.variables]
        assert any(np.any(one != other) for one, other in zip(before, after, strict=True)) == moves


def test_what_does_not_fit(make_task, untrained, tmp_path):
    untrained.save_to_preset(tmp_path / "seq2seq")
    with pytest.raises(ValueError, match="holds a Seq2SeqLM, not a TextEmbedder"):
        TextEmbedder.from_preset(tmp_path / "seq2seq")
    make_task(MaskedLM).save_to_preset(tmp_path / "model")
    with pytest.raises(ValueError, match="holds a MaskedLM, not a Seq2SeqLM"):
        Seq2SeqLM.from_preset(tmp_path / "model")
    with pytest.raises(ValueError, match=r"brings its own configuration and tokenizer, .*; got \['hidden_dim'\] too"):
        MaskedLM.from_preset(tmp_path / "model", hidden_dim=8)
    quantized = make_task(MaskedLM)
    quantized.quantize("int8")
    quantized.save_to_preset(tmp_path / "quantized")
    with pytest.raises(ValueError, match="holds int8 weights, which .* as a TextEmbedder"):
        TextEmbedder.from_preset(tmp_path / "quantized")


def test_named_architecture_with_options_of_the_task(mask_tokenizer):
    model = TextClassifier.from_preset(
        "bert_tiny_uncased",
        load_weights=False,
        tokenizer=mask_tokenizer,
        vocabulary_size=27,
        num_layers=1,
        labels=3,
        sequence_length=16,
    )
    assert model.backbone.config.num_layers == 1 and len(model.labels) == 3 and model.longest == 16
    assert model.pooling == "pooler" and model.head.dense is None
    with pytest.raises(ValueError, match="has no 'sequence_lenght' to override"):
        TextClassifier.from_preset("bert_tiny_uncased", load_weights=False, labels=3, sequence_lenght=16)


def test_factorised_embeddings_and_untied_projections(make_task, texts, encoder_config):
    for embedding in ({"factor_dim": 6}, {"tie_output": False, "output_bias": True}):
        embedding = dataclasses.replace(encoder_config.embedding, **embedding)
        model = make_task(MaskedLM, config={"embedding": embedding})
        (best,) = model.fill_mask("alpha <mask>", top_k=27)
        np.testing.assert_allclose(sum(probability for _, probability in best), 1, rtol=1e-5)


def test_tokenizers_of_tasks_that_threads_save(monkeypatch):
    class Tokenizers(weakref.WeakValueDictionary):
        """Waits in the middle of each look at what it holds."""

        def items(self):
            for item in super().items():
                time.sleep(0.001)
                yield item

    monkeypatch.setattr(saving, "_TOKENIZERS", Tokenizers())
    monkeypatch.setattr(saving, "registered_name", lambda kind: "kind")

    class Tokenizer:
        pass

    tokenizers = [Tokenizer() for _ in range(16)]

    def config(tokenizer):
        return saving.SavedPreprocessor(SimpleNamespace(tokenizer=tokenizer, options=dict)).get_config()["tokenizer"]

    with ThreadPoolExecutor(4) as threads:
        keys = list(threads.map(config, tokenizers))
    assert len(set(keys)) == 16 and keys == [config(tokenizer) for tokenizer in tokenizers]
