"""What a model came from: it goes back as that family, with its special ids, in its dtype."""

import json
import warnings

import keras
import ml_dtypes
import numpy as np
import pytest
from keras import ops
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

tf = pytest.importorskip("tensorflow")

import zoo  # noqa: E402
from zoo import huggingface  # noqa: E402
from zoo.tasks.students import keep_layers  # noqa: E402


def load(folder):
    return huggingface.load_task(getattr(zoo, huggingface.task_of(folder)), folder)


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def dtypes_of(folder):
    with safe_open(folder / "model.safetensors", "np") as file:
        return {file.get_slice(name).get_dtype() for name in file.keys()}


# others can express these too
OTHERS = ("distilbert_classifier", "distilbert_masked_lm", "xlm-roberta_cross_encoder", "mt5", "phi3_long")
SOME = (*OTHERS, "distilbert_token_classifier", "distilbert_question_answerer", "electra_classifier", "mt5_classifier")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", SOME)
def test_goes_back_as_the_family(case, reference, tmp_path):
    task, family = load(reference / case), config_of(reference / case)["model_type"]
    assert task.save_to_huggingface(tmp_path / "model") == family
    # whatever is made of it meanwhile
    task.save_to_preset(tmp_path / "preset")
    assert zoo.Task.from_preset(tmp_path / "preset").save_to_huggingface(tmp_path / "second") == family
    if case == "distilbert_masked_lm":
        task.save(tmp_path / "model.keras")
        kept = keras.saving.load_model(tmp_path / "model.keras"), keep_layers(task, [0])
        assert [each.save_to_huggingface(tmp_path / "third") for each in kept] == [family] * 2
        task.enable_lora(1)
        assert task.save_adapter(tmp_path / "adapter") == family
    if case in OTHERS:
        task = load(reference / case)
        task.backbone.origin = None
        assert task.save_to_huggingface(tmp_path / "new") != family


def test_a_family_that_needs_segments_gets_one_of_zeros(reference, golden, tmp_path):
    """In the library a table of no rows fails."""
    task, (inputs, expected) = load(reference / "distilbert_masked_lm"), golden("distilbert_masked_lm")
    task.save_to_huggingface(tmp_path / "model", model_type="bert")
    assert config_of(tmp_path / "model")["type_vocab_size"] == 1
    table = load_file(tmp_path / "model" / "model.safetensors")["bert.embeddings.token_type_embeddings.weight"]
    np.testing.assert_array_equal(table, np.zeros((1, 16)))
    mask = inputs["padding_mask"]
    logits = ops.convert_to_numpy(load(tmp_path / "model")(inputs))
    np.testing.assert_allclose(logits[mask], expected["logits"][mask], atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize(
    ("case", "ids"),
    [
        ("llama_classifier", {"pad_token_id": 5, "bos_token_id": 4, "eos_token_id": [2, 7]}),
        ("mbart", {"pad_token_id": 1, "decoder_start_token_id": 9, "bos_token_id": 3, "eos_token_id": 2}),
        ("t5", {"pad_token_id": 4, "decoder_start_token_id": 6, "eos_token_id": 3}),
        ("bert_masked_lm", {"pad_token_id": 0, "cls_token_id": 4, "sep_token_id": 5}),
    ],
)
def test_special_ids_are_kept_without_a_tokenizer(case, ids, copy, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        load(copy(case, **ids)).save_to_huggingface(tmp_path / "model")
    assert ids.items() <= config_of(tmp_path / "model").items()
    generation = tmp_path / "model" / "generation_config.json"
    if generation.exists():  # where it is, the library looks for them there alone
        written = json.loads(generation.read_text())
        assert ids.items() <= written.items()


@pytest.mark.parametrize(
    ("case", "key"), [("bart", "decoder_start_token_id"), ("gpt2_classifier", "pad_token_id"), ("t5", None)]
)
def test_missing_special_ids_are_named(case, key, reference, tmp_path):
    task = load(reference / case)
    task.backbone.origin = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        task.save_to_huggingface(tmp_path / "model")
    named = [str(warning.message) for warning in caught if "library needs" in str(warning.message)]
    assert named == [] if key is None else key in named[0]


@pytest.mark.parametrize(
    ("case", "heads"),
    [
        ("bert_masked_lm", ("cls.seq_relationship",)),
        ("albert_masked_lm", ("sop_classifier.classifier",)),
    ],
)
def test_further_heads_are_named(case, heads, copy, tmp_path, recwarn):
    folder = copy(case)
    tensors = load_file(folder / "model.safetensors")
    for head in heads:
        tensors |= {f"{head}.weight": np.ones((2, 16), "float32"), f"{head}.bias": np.ones(2, "float32")}
    save_file(tensors, folder / "model.safetensors")
    task = load(folder)
    task.save_to_preset(tmp_path / "preset")
    assert not [warning for warning in recwarn if "further heads" in str(warning.message)]
    for each in (task, zoo.Task.from_preset(tmp_path / "preset")):
        with pytest.warns(UserWarning, match=f"further heads, which a MaskedLM .* not written: {heads[0]}"):
            each.save_to_huggingface(tmp_path / "model")
    recwarn.clear()
    # of another task nobody expects them
    zoo.TextClassifier(task.backbone, labels=2, pooling="pooler" if task.backbone.config.pooler else "first")
    load(tmp_path / "model").save_to_huggingface(tmp_path / "again")
    assert not [warning for warning in recwarn if "further heads" in str(warning.message)]


@pytest.mark.parametrize(("case", "dtype"), [("llama", "BF16"), ("llama_dynamic", "F16")])
def test_half_precision_is_kept(case, dtype, reference, tmp_path):
    task = load(reference / case)
    task.save_to_huggingface(tmp_path / "model")
    with safe_open(reference / case / "model.safetensors", "np") as theirs:
        with safe_open(tmp_path / "model" / "model.safetensors", "np") as ours:
            assert set(ours.keys()) == set(theirs.keys()) and dtypes_of(tmp_path / "model") == {dtype}
            for name in ours.keys():
                np.testing.assert_array_equal(ours.get_tensor(name), theirs.get_tensor(name))
    assert config_of(tmp_path / "model")["dtype"] == config_of(reference / case)["dtype"]


def test_another_precision_is_written_if_asked_for(reference, tmp_path):
    task = load(reference / "llama")
    task.save_to_huggingface(tmp_path / "float32", dtype="float32")
    assert dtypes_of(tmp_path / "float32") == {"F32"} and config_of(tmp_path / "float32")["dtype"] == "float32"
    task = load(reference / "bert_classifier")
    task.save_to_huggingface(tmp_path / "half", dtype="bfloat16")
    assert dtypes_of(tmp_path / "half") == {"BF16"} and config_of(tmp_path / "half")["dtype"] == "bfloat16"
    kernel = load_file(tmp_path / "half" / "model.safetensors")["classifier.weight"]
    np.testing.assert_array_equal(kernel.T, np.array(task.head.projection.kernel).astype(ml_dtypes.bfloat16))
    with pytest.raises(ValueError, match="dtype must be one of .*'float16'.* or None, got 'float8'"):
        task.save_to_huggingface(tmp_path / "other", dtype="float8")
    assert not (tmp_path / "other").exists()
