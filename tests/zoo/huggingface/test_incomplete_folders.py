"""Folders of the Transformers library without weights, without a tokenizer, or with a tokenizer alone."""

import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from zoo import Backbone, CausalLM, MaskedLM, Seq2SeqLM, Task, TextClassifier
from zoo.huggingface import load_backbone, read_config
from zoo.tokenizers import ByteLevelBPETokenizer, Tokenizer
from zoo.tokenizers.byte_alphabet import byte_characters

REFERENCE = Path(__file__).parents[2] / "reference" / "huggingface"
TOKENIZER = REFERENCE.parent / "tokenizers" / "bart"


@pytest.mark.parametrize(
    "case",
    [
        "bert_masked_lm",
        "llama",
        "t5",
        "t5_gated",
        "t5_encoder",
        "mt5",
        "gpt_oss",
        "deepseek_v3",
        "albert_masked_lm",
        "bart",
        *("bert_base", "bert_classifier", "albert_classifier", "nomic_bert_classifier", "roberta_classifier"),
        "mpnet_classifier",
    ],
)
def test_no_weights_are_needed_where_none_are_loaded(copy, case):
    whole = load_backbone(REFERENCE / case)
    folder = copy(case)
    (folder / "model.safetensors").unlink()
    backbone = load_backbone(folder, load_weights=False)
    # biases show in the file only
    embedding = dataclasses.replace(whole.config.embedding, output_bias=backbone.config.embedding.output_bias)
    expected = dataclasses.replace(whole.config, embedding=embedding)
    assert backbone.config == read_config(folder) == expected
    with pytest.raises(ValueError, match="has no model.safetensors"):
        load_backbone(folder)


def test_any_choice_is_replaced_where_no_weights_are_loaded(copy, make_task, tmp_path):
    folder = copy("bert_classifier")
    choices = {"num_layers": 3, "vocabulary_size": 50, "feed_forward": {"intermediate_dim": 20}}
    make_task(MaskedLM).save_to_preset(tmp_path / "preset")
    for source, kind in ((folder, TextClassifier), (tmp_path / "preset", MaskedLM)):
        with pytest.raises(ValueError, match="load_weights=False"):
            kind.from_preset(source, **choices)
        for load in (kind.from_preset, Backbone.from_preset):
            model = load(source, load_weights=False, **choices)
            config = getattr(model, "backbone", model).config
            assert (config.num_layers, config.vocabulary_size, config.feed_forward.intermediate_dim) == (3, 50, 20)
            assert model.count_params() > 0
        with pytest.raises(ValueError, match="has no 'num_layer' to override. Did you mean 'num_layers'"):
            Backbone.from_preset(source, load_weights=False, num_layer=3)
    (folder / "model.safetensors").unlink()
    assert load_backbone(folder, load_weights=False, hidden_dim=32).config.hidden_dim == 32


def test_tasks_without_tokenizer(copy, golden):
    model = Task.from_preset(copy("llama"))
    assert type(model) is CausalLM and model.tokenizer is None
    inputs, arrays = golden("llama")
    mask = inputs["padding_mask"]
    np.testing.assert_allclose(np.asarray(model(inputs))[mask], arrays["logits"][mask], atol=5e-5)
    for use in (lambda: model.generate(["a"]), lambda: model.score(["a"]), lambda: model.fit(["a"])):
        with pytest.raises(ValueError, match=r"needs a tokenizer: .*from_preset\(\.\.\., tokenizer="):
            use()
    assert TextClassifier.from_preset(copy("bert_classifier")).tokenizer is None
    assert MaskedLM.from_preset(REFERENCE / "albert_masked_lm", load_weights=False).tokenizer is None
    assert Seq2SeqLM.from_preset(REFERENCE / "bart", load_weights=False).tokenizer is None


def test_a_tokenizer_alone(tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, tmp_path)
    tokenizer = Tokenizer.from_preset(tmp_path)
    assert type(tokenizer) is ByteLevelBPETokenizer
    assert type(ByteLevelBPETokenizer.from_preset(str(tmp_path))) is ByteLevelBPETokenizer
    # as save writes it
    tokenizer.save(tmp_path / "ours")
    assert Tokenizer.from_preset(tmp_path / "ours").get_config() == tokenizer.get_config()
    # old files
    ByteLevelBPETokenizer(["<s>", *byte_characters()], []).save(tmp_path / "files")
    for folder in (tmp_path, tmp_path / "ours"):
        with pytest.raises(
            ValueError, match="is no saved model.* It has a tokenizer alone, without a model: Tokenizer"
        ):
            CausalLM.from_preset(folder)
    with pytest.raises(ValueError, match="is no saved model"):
        Tokenizer.from_preset(tmp_path.parent)


def test_a_vocabulary_alone(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    message = r"got none, as there is no such file.* Write .* or use WordPieceTokenizer.from_file\('.*vocab.txt', low"
    with pytest.raises(ValueError, match=message):
        Tokenizer.from_preset(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 5}')
    with pytest.raises(ValueError, match=r"got none, only \['model_max_length'\]. Write"):
        Tokenizer.from_preset(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert Tokenizer.from_preset(tmp_path).tokenize("A").numpy().tolist() == [5]


@pytest.mark.slow  # imports PyTorch
@pytest.mark.parametrize("shards", [1, 2])
def test_the_command_for_pickled_weights(copy, shards):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    folder = copy("gpt2")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"]  # shares its memory
    names = sorted(tensors)
    for shard in range(shards):
        file = folder / ("pytorch_model.bin" if shards == 1 else f"pytorch_model-{shard + 1:05}-of-{shards:05}.bin")
        torch.save({name: tensors[name] for name in names[shard::shards]}, file)
    with pytest.raises(ValueError, match="weights_only=True") as caught:
        load_backbone(folder)
    command = re.search(r'python -c "(.*)"', str(caught.value))[1]
    subprocess.run([sys.executable, "-c", command], cwd=folder, check=True)
    whole, again = load_backbone(REFERENCE / "gpt2"), load_backbone(folder)
    for one, other in zip(whole.weights, again.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_pickled_weights_name_the_way_out(copy):
    folder = copy("bert_base")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"only \['pytorch_model.bin'\](.|\n)*weights_only=True"):
        load_backbone(folder)
    (folder / "pytorch_model.bin").rename(folder / "tf_model.h5")
    with pytest.raises(ValueError, match=r"only \['tf_model.h5'\].* Save the model with safetensors"):
        load_backbone(folder)
