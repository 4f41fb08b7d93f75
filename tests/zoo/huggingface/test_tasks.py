"""Heads of the Transformers library: the logits of whole tasks, in both directions."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from keras import ops
from safetensors import safe_open

from zoo import huggingface, keras_hub
from zoo.backbones import Transformer
from zoo.backbones.backbone import default_policy
from zoo.preprocessing import TextClassifierPreprocessor
from zoo.tasks.causal_lm import CausalLM
from zoo.tasks.masked_lm import MaskedLM
from zoo.tasks.question_answerer import QuestionAnswerer
from zoo.tasks.replaced_tokens import ReplacedTokenDetector
from zoo.tasks.seq2seq_lm import Seq2SeqLM
from zoo.tasks.text_classifier import TextClassifier
from zoo.tasks.text_embedder import TextEmbedder
from zoo.tasks.token_classifier import TokenClassifier
from zoo.tokenizers import WordPieceTokenizer

REFERENCE = Path(__file__).parents[2] / "reference" / "huggingface"
# float32, other orders of summation, three to five layers deep
TOLERANCE = {"atol": 2e-5, "rtol": 2e-5}
TASKS = {
    "bert_masked_lm": MaskedLM,
    "roberta_masked_lm": MaskedLM,
    "distilbert_masked_lm": MaskedLM,
    "modernbert_masked_lm": MaskedLM,
    "bert_classifier": TextClassifier,
    "roberta_classifier": TextClassifier,
    "distilbert_classifier": TextClassifier,
    "modernbert_classifier": TextClassifier,
    "bert_token_classifier": TokenClassifier,
    "llama_classifier": TextClassifier,
    "gpt2_classifier": TextClassifier,
    "qwen2_token_classifier": TokenClassifier,
    "phi_classifier": TextClassifier,
    "phi_token_classifier": TokenClassifier,
    "gptj_classifier": TextClassifier,
    "gpt_neo_classifier": TextClassifier,
    "gpt_neo_token_classifier": TokenClassifier,
    "gpt_bigcode_classifier": TextClassifier,
    "gpt_bigcode_token_classifier": TokenClassifier,
    "stablelm_classifier": TextClassifier,
    "glm_token_classifier": TokenClassifier,
    "gpt_neox_token_classifier": TokenClassifier,
    "bloom_token_classifier": TokenClassifier,
    "gpt2": CausalLM,
    "qwen2": CausalLM,
    "gemma2": CausalLM,
    "t5_gated": Seq2SeqLM,
    "bart": Seq2SeqLM,
    "xlm-roberta_masked_lm": MaskedLM,
    "xlm-roberta_cross_encoder": TextClassifier,
    "camembert_masked_lm": MaskedLM,
    "camembert_classifier": TextClassifier,
    "camembert_token_classifier": TokenClassifier,
    "data2vec-text_masked_lm": MaskedLM,
    "eurobert_masked_lm": MaskedLM,
    "eurobert_biased_masked_lm": MaskedLM,
    "eurobert_classifier": TextClassifier,
    "eurobert_mean_classifier": TextClassifier,
    "eurobert_token_classifier": TokenClassifier,
    "electra_discriminator": ReplacedTokenDetector,
    "electra_masked_lm": MaskedLM,
    "electra_classifier": TextClassifier,
    "electra_token_classifier": TokenClassifier,
    "roformer_masked_lm": MaskedLM,
    "roformer_classifier": TextClassifier,
    "esm_masked_lm": MaskedLM,
    "esm_classifier": TextClassifier,
    "longformer_masked_lm": MaskedLM,
    "longformer_classifier": TextClassifier,
    "rembert_masked_lm": MaskedLM,
    "rembert_classifier": TextClassifier,
    "albert_masked_lm": MaskedLM,
    "albert_classifier": TextClassifier,
    "albert_token_classifier": TokenClassifier,
    "nomic_bert_masked_lm": MaskedLM,
    "nomic_bert_classifier": TextClassifier,
    "nomic_bert_token_classifier": TokenClassifier,
    "mpnet_masked_lm": MaskedLM,
    "mpnet_classifier": TextClassifier,
    "mpnet_token_classifier": TokenClassifier,
    "deberta-v2_masked_lm": MaskedLM,
    "deberta-v2_classifier": TextClassifier,
    "deberta-v2_token_classifier": TokenClassifier,
    "bart_uneven": Seq2SeqLM,
    "mt5": Seq2SeqLM,
    "mbart": Seq2SeqLM,
    "marian": Seq2SeqLM,
    "pegasus": Seq2SeqLM,
    "m2m_100": Seq2SeqLM,
    "blenderbot": Seq2SeqLM,
    "blenderbot_unscaled": Seq2SeqLM,
    "umt5": Seq2SeqLM,
    "umt5_tied": Seq2SeqLM,
    "m2m_100_unscaled": Seq2SeqLM,
    "roberta_token_classifier": TokenClassifier,
    "distilbert_token_classifier": TokenClassifier,
    "modernbert_token_classifier": TokenClassifier,
    "bart_classifier": TextClassifier,
    "mbart_classifier": TextClassifier,
    "t5_classifier": TextClassifier,
    "mt5_classifier": TextClassifier,
    "umt5_classifier": TextClassifier,
    "t5_token_classifier": TokenClassifier,
    **{path.name: QuestionAnswerer for path in REFERENCE.glob("*_question_answerer")},
}
# of ESM: a head that no task has, and a constant
NOT_WRITTEN = r"\.contact_head\.|\.inv_freq$"


def new_name(name):
    """The name of a tensor for every version of the library: 5.24 writes ESM's as those of TensorFlow."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def tensors(directory):
    found = {}
    for path in directory.glob("*.safetensors"):
        with safe_open(path, "np") as file:
            found |= {name: file.get_tensor(name) for name in file.keys()}
    return found


def check_logits(task, inputs, expected):
    logits = ops.convert_to_numpy(task(inputs))
    if logits.ndim == 3:
        mask = inputs.get("padding_mask", inputs.get("decoder_padding_mask"))
        logits, expected = logits[mask], expected[mask]
    np.testing.assert_allclose(logits, expected.reshape(logits.shape), **TOLERANCE)


@pytest.mark.sampled(15)
@pytest.mark.parametrize("case", TASKS)
def test_logits_and_back(case, reference, golden, tmp_path):
    inputs, expected = golden(case)
    if TASKS[case] is not Seq2SeqLM and "encoder_token_ids" in inputs:  # the decoder is given the same
        inputs = {name: inputs[f"encoder_{name}"] for name in ("token_ids", "padding_mask")}
    task = huggingface.load_task(TASKS[case], reference / case)
    check_logits(task, inputs, expected["logits"])
    family = json.loads((reference / case / "config.json").read_text())["model_type"]
    assert huggingface.save_task(task, tmp_path / "model", model_type=family) == family
    ours, theirs = tensors(tmp_path / "model"), tensors(reference / case)
    theirs = {new_name(name): tensor for name, tensor in theirs.items() if not re.search(NOT_WRITTEN, name)}
    assert set(ours) == set(theirs)
    for name, tensor in theirs.items():
        np.testing.assert_array_equal(ours[name], tensor, err_msg=name)
    configs = [json.loads((folder / "config.json").read_text()) for folder in (tmp_path / "model", reference / case)]
    assert configs[0]["architectures"] == configs[1]["architectures"]
    assert (configs[0]["pad_token_id"] or 0) < 48  # not that of another vocabulary
    check_logits(huggingface.load_task(TASKS[case], tmp_path / "model"), inputs, expected["logits"])


def test_global_tokens_by_default(reference, golden):
    inputs, expected = golden("longformer_classifier")
    del inputs["global_mask"]  # the first token of each text
    check_logits(huggingface.load_task(TextClassifier, reference / "longformer_classifier"), inputs, expected["logits"])
    inputs, _ = golden("longformer_masked_lm")
    task = QuestionAnswerer(huggingface.load_backbone(reference / "longformer_masked_lm"), separator_id=2)
    ids = np.array([[0, 5, 6, 2, 2, 7, 8, 9, 2], [0, 5, 6, 7, 8, 9, 6, 5, 4]])  # no separator: no question
    inputs = {"token_ids": ids, "padding_mask": np.ones((2, 9), "bool")}
    question = np.array([[True] * 3 + [False] * 6, [False] * 9])
    np.testing.assert_array_equal(task(inputs), task({**inputs, "global_mask": question}))
    assert np.abs(np.asarray(task({**inputs, "global_mask": ~question})) - np.asarray(task(inputs))).max() > 1e-3


def test_low_rank_updates_are_added_in_full_precision(reference, tmp_path):
    with default_policy("mixed_bfloat16"):
        task = huggingface.load_task(TextClassifier, reference / "bert_classifier")
    task.enable_lora(2, alpha=3.0, targets=["query"])
    factors = task.backbone.adapters.updates("default")["encoder/block_0/attention/query"]
    factors.lora_b.assign(np.random.default_rng(0).normal(size=factors.lora_b.shape))
    huggingface.save_task(task, tmp_path / "model", model_type="bert")
    ours, theirs = tensors(tmp_path / "model"), tensors(reference / "bert_classifier")
    name = "bert.encoder.layer.0.attention.self.query.weight"
    update = 1.5 * np.matmul(factors.lora_a, factors.lora_b)
    np.testing.assert_allclose(ours.pop(name), theirs[name] + update.T, rtol=1e-6, atol=1e-7)
    for name, tensor in ours.items():
        np.testing.assert_array_equal(tensor, theirs[name], err_msg=name)


@pytest.mark.parametrize("case", ["bert_classifier", "gpt2_classifier", "bert_token_classifier"])
def test_temperature_divides_the_last_map(case, reference, golden, tmp_path):
    inputs, expected = golden(case)
    task = huggingface.load_task(TASKS[case], reference / case)
    task.temperature = 2.5
    family = json.loads((reference / case / "config.json").read_text())["model_type"]
    huggingface.save_task(task, tmp_path / "model", model_type=family)
    ours, theirs = tensors(tmp_path / "model"), tensors(reference / case)
    last = {name for name in theirs if name.startswith(("classifier.", "score."))}
    assert last and set(ours) == set(theirs)
    for name, tensor in theirs.items():
        np.testing.assert_array_equal(ours[name], tensor / np.float32(2.5) if name in last else tensor, err_msg=name)
    # what the Transformers library computed, at this temperature; the model itself is as it was
    again = huggingface.load_task(TASKS[case], tmp_path / "model")
    assert again.temperature == 1
    check_logits(again, inputs, expected["logits"] / 2.5)
    check_logits(task, inputs, expected["logits"])


def test_labels_with_the_names_of_no_names(copy, tmp_path):
    task = huggingface.load_task(TextClassifier, copy("bert_classifier"))
    names = [f"LABEL_{number}" for number in range(len(task.labels))]
    named = TextClassifier(task.backbone, task.tokenizer, **{**task.options(), "labels": names})
    assert huggingface.save_task(named, tmp_path / "model", model_type="bert") == "bert"
    assert huggingface.load_task(TextClassifier, tmp_path / "model").options()["labels"] == len(names)


def test_without_weights(reference):
    task = huggingface.load_task(MaskedLM, reference / "bert_masked_lm", load_weights=False)
    assert task.head_activation == "gelu_tanh" and task.backbone.config.hidden_dim == 16


def test_a_head_that_the_file_lacks_starts_untrained(reference):
    with pytest.warns(
        UserWarning, match="bert_base/model.safetensors has no weights for this head .projection.: it starts untrained"
    ) as found:
        huggingface.load_task(TextClassifier, reference / "bert_base", labels=["no", "yes"])
    assert found[0].filename == __file__
    with pytest.warns(UserWarning, match="has this head .projection. for other labels than those given: it starts un"):
        task = huggingface.load_task(TextClassifier, reference / "bert_classifier", labels=["no", "yes", "so", "such"])
    assert len(task.labels) == 4
    with pytest.warns(UserWarning, match="starts untrained"):  # the head of another task
        huggingface.load_task(MaskedLM, reference / "bert_classifier")


def test_labels(copy):
    changes = {"id2label": {"1": "good", "0": "bad", "2": "fair"}, "problem_type": "multi_label_classification"}
    task = huggingface.load_task(TextClassifier, copy("bert_classifier", **changes, classifier_dropout=0.3))
    options = task.options()
    assert (options["labels"], options["problem"], options["head_dropout"]) == (
        ["bad", "good", "fair"],
        "multi_label",
        0.3,
    )
    with pytest.raises(ValueError, match="id2label must number the labels from 0 on"):
        huggingface.load_task(TextClassifier, copy("roberta_classifier", id2label={"1": "a", "2": "b"}))


def test_a_head_of_another_kind_is_not_written(reference, tmp_path):
    task = huggingface.load_task(TextClassifier, reference / "bert_classifier", pooling="mean")
    with pytest.raises(ValueError, match="bert: its BertForSequenceClassification has pooling='pooler', this task"):
        huggingface.save_task(task, tmp_path / "model")


class Shouted(WordPieceTokenizer, kind="shouted_for_tests"):
    pass


def own(kind):
    """A subclass of the same name."""
    return type(kind.__name__, (kind,), {})


@pytest.mark.parametrize("save", [huggingface.save_task, huggingface.write_backbone, keras_hub.save_task])
def test_classes_of_ones_own_are_not_written(save, reference, tmp_path):
    task = huggingface.load_task(TextClassifier, reference / "bert_classifier")
    options = task.options()
    backbones = {"Transformer": own(Transformer), "Halved": type("Halved", (Transformer,), {})}
    for name, kind in backbones.items():
        with pytest.raises(ValueError, match=f"backbone must be a Transformer itself .*got a .*{name}"):
            backbone = kind(task.backbone.config)
            save(
                backbone if save is huggingface.write_backbone else TextClassifier(backbone, **options),
                tmp_path / "model",
            )
    if save is not huggingface.write_backbone:
        with pytest.raises(ValueError, match="task must be a TextClassifier itself .*got a .*TextClassifier"):
            save(own(TextClassifier)(task.backbone, **options), tmp_path / "model")
    if save is huggingface.save_task:
        with pytest.raises(ValueError, match="no family here with the task Mine"):
            save(type("Mine", (TextClassifier,), {})(task.backbone, **options), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_preprocessor_of_ones_own_is_named(reference, tmp_path, recwarn):
    task = huggingface.load_task(TextClassifier, reference / "bert_classifier")
    huggingface.save_task(task, tmp_path / "model")
    assert "preprocessor" not in "".join(str(warning.message) for warning in recwarn.list)
    kind = type("Censored", (TextClassifierPreprocessor,), {})
    other = TextClassifier(task.backbone, kind(**task.preprocessor.options()), **task.own_options())
    with pytest.warns(UserWarning, match="no place for the preprocessor Censored"):
        huggingface.save_task(other, tmp_path / "model")


def test_a_tokenizer_of_ones_own_is_not_written(reference, tmp_path):
    task = huggingface.load_task(TextClassifier, reference / "bert_classifier")
    letters = [f"{start}{chr(97 + place)}" for start in ("", "##") for place in range(26)]
    size = task.backbone.config.vocabulary_size
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters][:size]
    task = huggingface.load_task(
        TextClassifier, reference / "bert_classifier", tokenizer=Shouted(tokens, lowercase=True)
    )
    with pytest.raises(ValueError, match="A 'shouted_for_tests' tokenizer can't be written"):
        huggingface.save_task(task, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_task_that_a_family_does_not_have(reference):
    with pytest.raises(ValueError, match="task of a 'gpt2' model must be one of .'CausalLM', .* got 'MaskedLM'"):
        huggingface.load_task(MaskedLM, reference / "gpt2")


@pytest.mark.parametrize(("case", "role"), [("t5", "pad_id"), ("bart", "end_id")])
def test_encoder_decoders_start_with_the_token_of_the_configuration(case, role, copy, tiny_tokenizer):
    start_id = getattr(tiny_tokenizer, role)
    folder = copy(case, decoder_start_token_id=start_id)
    (folder / "tokenizer.model").write_bytes(tiny_tokenizer.proto)
    names = {"pad_token": tiny_tokenizer.pad_id, "eos_token": tiny_tokenizer.end_id}
    roles = {name: tiny_tokenizer.id_to_token(index) for name, index in names.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps(roles))
    model = Seq2SeqLM.from_preset(folder)
    assert (model.preprocessor.decoder_start_id, model.tokenizer.end_id) == (start_id, tiny_tokenizer.end_id)
    assert len(model.generate(["alpha beta"], max_length=4, jit_compile=False)) == 1


def test_sentence_models(copy, golden, tmp_path):
    folder = copy("bert_base")
    (folder / "1_Pooling").mkdir()
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules))
    pooling = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "word_embedding_dimension": 16}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 20}))
    prompts = {"prompts": {"query": "q: ", "document": ""}, "default_prompt_name": "query", "similarity_fn_name": "dot"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    task, (inputs, expected) = huggingface.load_task(TextEmbedder, folder), golden("bert_base")
    options = {"pooling": "mean", "normalize": True, "sequence_length": 20, "truncate": True}
    options |= {"prompts": prompts["prompts"], "default_prompt": "query"}
    assert options.items() <= task.options().items()
    mask = inputs["padding_mask"][..., None]
    vectors = (expected["hidden"] * mask).sum(1) / mask.sum(1)
    vectors = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    np.testing.assert_allclose(ops.convert_to_numpy(task(inputs)), vectors, **TOLERANCE)
    task.save_to_preset(tmp_path / "preset")
    for each in (task, TextEmbedder.from_preset(tmp_path / "preset")):
        huggingface.save_task(each, tmp_path / "saved", model_type="bert")
        assert huggingface.load_task(TextEmbedder, tmp_path / "saved").options() == task.options()
        settings = json.loads((tmp_path / "saved" / "config_sentence_transformers.json").read_text())
        assert settings["similarity_fn_name"] == "dot"
    (folder / "config_sentence_transformers.json").write_text(json.dumps({**prompts, "similarity_fn_name": "angle"}))
    with pytest.raises(ValueError, match="json: similarity_fn_name must be one of .*'cosine', .* got 'angle'"):
        huggingface.load_task(TextEmbedder, folder)
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    with pytest.raises(ValueError, match="width must be None to be written as a sentence model, got 4: .*truncate_dim"):
        huggingface.save_task(huggingface.load_task(TextEmbedder, folder, width=4), tmp_path / "cut")
    (folder / "config_sentence_transformers.json").write_text(json.dumps({**prompts, "default_prompt_name": "x"}))
    with pytest.raises(ValueError, match="transformers.json: default_prompt_name must be one of the prompts, got 'x'"):
        huggingface.load_task(TextEmbedder, folder)
    (folder / "config_sentence_transformers.json").unlink()
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 1000}))
    with pytest.raises(
        ValueError, match=r"sentence_bert_config.json: max_seq_length must be an integer from 1 to \d+, .*"
    ):
        huggingface.load_task(TextEmbedder, folder)
    assert huggingface.load_task(TextEmbedder, folder, sequence_length=16).preprocessor.sequence_length == 16
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({**pooling, "pooling_mode_cls_token": True}))
    with pytest.raises(
        ValueError, match="1_Pooling/config.json: one of .* must be true, got .*_cls_token', 'pooling_mode_mean"
    ):
        huggingface.load_task(TextEmbedder, folder)
    modules.insert(2, {"path": "2_LSTM", "type": "sentence_transformers.models.LSTM"})
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ValueError, match="modules.json: type must be Transformer, Pooling, .* got .*'LSTM'"):
        huggingface.load_task(TextEmbedder, folder)


def test_renamed_labels_keep_the_weights_of_the_head(reference, golden, recwarn):
    inputs, expected = golden("bert_classifier")
    task = huggingface.load_task(TextClassifier, reference / "bert_classifier", labels=["bad", "fair", "good"])
    assert task.labels.names == ["bad", "fair", "good"]
    check_logits(task, inputs, expected["logits"])
    assert not [warning for warning in recwarn if "untrained" in str(warning.message)]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, "regression"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}, "multi_label"),
    ],
)
def test_cross_encoders(keys, problem, copy, golden, tmp_path):
    inputs, expected = golden("xlm-roberta_cross_encoder")
    task = huggingface.load_task(TextClassifier, copy("xlm-roberta_cross_encoder", **keys))
    options = task.options()
    assert (options["pairs"], options["problem"], options["labels"], options["pair_separators"]) == (
        True,
        problem,
        1,
        2,
    )
    check_logits(task, inputs, expected["logits"])
    huggingface.save_task(task, tmp_path / "model", model_type="xlm-roberta")
    assert huggingface.load_task(TextClassifier, tmp_path / "model").options() == options
    folder = tmp_path / "xlm-roberta_cross_encoder"
    values = json.loads((folder / "config.json").read_text())
    unknown = {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}}
    (folder / "config.json").write_text(json.dumps({**values, **unknown}))
    with pytest.raises(ValueError, match="activation_fn of a cross-encoder must be one of .*'Sigmoid'.*, got 'Tanh'"):
        huggingface.load_task(TextClassifier, folder)


@pytest.mark.parametrize("lowercase", [True, False])
def test_sentence_models_of_small_letters(lowercase, copy, tmp_path):
    folder, letters = copy("bert_base"), [chr(number) for number in range(ord("A"), ord("G"))]
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 20, "do_lower_case": True}))
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *map(str.lower, letters)]
    tokenizer = WordPieceTokenizer(vocabulary, lowercase=lowercase)
    if lowercase:
        assert huggingface.load_task(TextEmbedder, folder, tokenizer=tokenizer).pooling == "mean"
        return
    with pytest.raises(ValueError, match="sentence_bert_config.json: do_lower_case must be false with a tokenizer"):
        huggingface.load_task(TextEmbedder, folder, tokenizer=tokenizer)


def test_names_of_labels_are_written_whatever_they_name(copy, tmp_path):
    names = {"0": "stars", "1": 5, "2": "price"}
    folder = copy("bert_classifier", id2label=names, problem_type="regression")
    task = huggingface.load_task(TextClassifier, folder)
    assert task.labels.names == ["stars", "5", "price"] and task.preprocessor.problem == "regression"
    huggingface.save_task(task, tmp_path / "model", model_type="bert")
    values = json.loads((tmp_path / "model" / "config.json").read_text())
    assert values["id2label"] == {"0": "stars", "1": "5", "2": "price"} and values["problem_type"] == "regression"
    assert huggingface.load_task(TextClassifier, tmp_path / "model").options() == task.options()


def test_classes_with_further_heads(copy):
    assert huggingface.task_of(copy("bert_masked_lm", architectures=["BertForPreTraining"])) == "MaskedLM"
    with pytest.raises(ValueError, match="one of .*'BertForPreTraining'.* got .'BertForMultipleChoice'"):
        huggingface.task_of(copy("bert_classifier", architectures=["BertForMultipleChoice"]))


def test_multiple_choice_is_refused_as_a_classifier(copy):
    folder = copy("xlm-roberta_cross_encoder", architectures=["XLMRobertaForMultipleChoice"])
    with pytest.raises(ValueError, match="architectures must not name .'XLMRobertaForMultipleChoice'. for a TextClass"):
        huggingface.load_task(TextClassifier, folder)


@pytest.mark.parametrize(("case", "name"), [("llama_classifier", "LlamaModel"), ("bart_classifier", "BartModel")])
def test_base_models_are_written_as_such(case, name, copy, tmp_path):
    backbone = huggingface.load_backbone(copy(case, architectures=[name]))
    huggingface.write_backbone(backbone, tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["architectures"] == [name]
    ours, theirs = tensors(tmp_path / "model"), tensors(tmp_path / case)
    bodies = {key.removeprefix("model."): value for key, value in theirs.items() if key.startswith("model.")}
    assert set(ours) == set(bodies)
    for key, value in bodies.items():
        np.testing.assert_array_equal(ours[key], value)


def test_published_question_answerers(copy):
    """Keys that the files of well-known ones have."""
    keys = {"language": "english", "name": "Roberta", "summary_type": "first", "summary_use_proj": False}
    task = huggingface.load_task(QuestionAnswerer, copy("roberta_question_answerer", **keys), no_answer_threshold=0.0)
    assert task.preprocessor.pair_separators == 2 and task.no_answer_threshold == 0.0
    assert huggingface.task_of(copy("mistral_question_answerer")) == "QuestionAnswerer"
