"""What is tried for each family of models; `make_family_table.py` writes down what comes out.

Each function takes the `model_type` of a family, does one thing on its models of tests/reference/huggingface, which the
Transformers library wrote with random weights, and compares numbers, tokens or bytes. It returns what the table says; a
ValueError is the reason of a "no".
"""

import tempfile
import warnings
from pathlib import Path

import numpy as np
from family_models import (
    BYTE_LEVEL,
    KINDS,
    MESSAGES,
    PROMPTS,
    TEXTS,
    UNREAD,
    array,
    assert_close,
    families,
    golden,
    task_of,
    task_with_head,
    with_tokenizer,
)


def imports(name: str) -> str:
    """Hidden states and logits of all models equal those of Transformers."""
    from zoo.huggingface import load_backbone

    for path in families()[name]:
        # "dynamic" there depends on the text at hand, here on max_length
        backbone = load_backbone(path, **({"max_length": 9} if path.name == "llama_dynamic" else {}))
        inputs, expected = golden(path)
        hidden, mask = backbone(inputs), inputs.get("decoder_padding_mask", inputs.get("padding_mask"))
        hidden = hidden["decoder_sequence_output"] if isinstance(hidden, dict) else hidden
        if "hidden" in expected:
            assert_close(array(hidden)[mask], expected["hidden"][mask])
        elif backbone.config.architecture != "encoder":
            assert_close(array(backbone.logits(hidden))[mask], expected["logits"][mask])
    return "yes"


def heads(name: str) -> str:
    """A task with a random head is written and read back, and gives the same numbers."""
    import zoo
    from zoo.huggingface import load_task
    from zoo.huggingface.family import get_family

    for kind in get_family(name).heads:
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
            warnings.filterwarnings("ignore", message=".*starts? untrained")
            task, inputs = task_with_head(getattr(zoo, kind), name)
            warnings.filterwarnings("error", message=".*starts? untrained")
            task.save_to_huggingface(Path(folder) / "model", model_type=name)
            again = load_task(type(task), Path(folder) / "model")
            np.testing.assert_array_equal(array(again(inputs)), array(task(inputs)))
    return ", ".join(f"`{kind}`" for kind in get_family(name).heads)


def tokenizer(name: str) -> str:
    """A tokenizer of this kind is written with the model and read back, and gives the same ids."""
    if name in UNREAD:
        raise ValueError(UNREAD[name])
    task = with_tokenizer(name)
    with tempfile.TemporaryDirectory() as folder:
        task.save_to_huggingface(Path(folder) / "model", model_type=name)
        again = type(task).from_preset(Path(folder) / "model")
    assert again.tokenizer.tokenize(TEXTS).to_list() == task.tokenizer.tokenize(TEXTS).to_list()
    return KINDS.get(name, BYTE_LEVEL)


def chat(name: str) -> str:
    """The model continues a conversation, and does the same after it is written and read back with its format."""
    import tensorflow as tf

    from zoo.huggingface import read_config

    architecture = read_config(families()[name][0]).architecture
    if architecture != "decoder":
        return f"no: an {architecture.replace('_', '-')}"
    task, options = with_tokenizer(name, max_length=96), {"max_new_tokens": 3, "jit_compile": False}
    task.chat_format = "chatml"
    tf.config.run_functions_eagerly(True)  # graphs take longer than a few tokens
    try:
        answer = task.generate(MESSAGES, **options)
        with tempfile.TemporaryDirectory() as folder:
            task.save_to_huggingface(Path(folder) / "model", model_type=name)
            again = type(task).from_preset(Path(folder) / "model")
        assert again.chat_format == task.chat_format
        assert again.generate(MESSAGES, **options) == answer
    finally:
        tf.config.run_functions_eagerly(False)
    return "yes"


def generate(name: str) -> str:
    """Greedy tokens equal those of Transformers or, for other models, the most probable tokens of full passes."""
    from zoo.huggingface import load_backbone

    path = families()[name][0]
    backbone = load_backbone(path)
    if backbone.config.architecture == "encoder":
        return "no: an encoder"
    task, expected = task_of(name, backbone), golden(path)[1].get("greedy")
    options = {"end_ids": (), "jit_compile": False}
    if backbone.config.architecture == "encoder_decoder":
        written = task.generate_tokens([[3]] * 2, source=PROMPTS, max_new_tokens=6, **options)
        side = {"encoder_token_ids": np.array([PROMPTS[0]]), "encoder_padding_mask": np.ones((1, 4), "bool")}
        rows, prefix = np.array([[3, *written["token_ids"][0]]]), "decoder_"
    else:
        prompts = PROMPTS if expected is None else expected[:, :9].tolist()
        written = task.generate_tokens(prompts, max_new_tokens=6 if expected is None else 64, **options)
        side, rows, prefix = {}, np.array([[*prompts[0], *written["token_ids"][0]]]), ""
        if expected is not None:
            np.testing.assert_array_equal(rows, expected[:1])
            return "yes"
    inputs = {**side, f"{prefix}token_ids": rows, f"{prefix}padding_mask": np.ones_like(rows, "bool")}
    hidden = backbone(inputs)
    logits = array(backbone.logits(hidden["decoder_sequence_output"] if side else hidden))
    count = len(written["token_ids"][0])
    np.testing.assert_array_equal(logits[0].argmax(-1)[-count - 1 : -1], rows[0, -count:])
    return "yes"


def lora(name: str) -> str:
    """Training low-rank updates changes the outputs; merging them does not."""
    from zoo.huggingface import load_backbone

    path = families()[name][0]
    task, (inputs, _) = task_of(name, load_backbone(path)), golden(path)
    before = array(task(inputs))
    task.enable_lora(rank=2)
    np.testing.assert_array_equal(array(task(inputs)), before)
    generator = np.random.default_rng(0)
    for weight in task.trainable_weights:
        weight.assign(generator.normal(0, 0.3, weight.shape))
    changed = array(task(inputs))
    assert np.abs(changed - before).max() > 1e-3 * np.abs(before).max()
    task.merge_lora()
    assert_close(task(inputs), changed, 1e-4)
    return "yes"


def int8(name: str) -> str:
    """Outputs with 8-bit weights are close to those before."""
    from layers import MixtureOfExperts
    from zoo.huggingface import load_backbone

    path = families()[name][0]
    backbone = load_backbone(path)
    task, (inputs, _) = task_of(name, backbone), golden(path)
    before = array(task(inputs))
    task.quantize("int8")
    after = array(task(inputs))
    assert 0 < np.abs(after - before).mean() < 0.1 * np.abs(before).mean() + 0.05
    blocks = [] if backbone.decoder is None else backbone.decoder.blocks
    experts = [block.feed_forward for block in blocks if isinstance(block.feed_forward, MixtureOfExperts)]
    if any(network.up_kernel.dtype == "float32" for network in experts):
        return "yes, but the experts stay float32"
    return "yes"


def export_back(name: str) -> str:
    """The written tensors equal those that were read, byte by byte."""
    from safetensors.numpy import load_file

    from zoo.huggingface import load_backbone, write_backbone
    from zoo.huggingface.family import get_family

    path, family = families()[name][0], get_family(name)
    with tempfile.TemporaryDirectory() as folder:
        write_backbone(load_backbone(path), Path(folder) / "model", model_type=name)
        ours = load_file(Path(folder) / "model" / "model.safetensors")
    parts = [load_file(part) for part in path.glob("*.safetensors")]
    theirs = {family.plain_name(key): value.astype("float32") for part in parts for key, value in part.items()}
    ours = {family.plain_name(key): value for key, value in ours.items()}
    for key, value in ours.items():
        assert value.tobytes() == theirs[key].tobytes(), key
    return "yes"


def saved_model(name: str) -> str:
    """The endpoint `serve` of a SavedModel gives the same results for strings as the task."""
    import tensorflow as tf

    from zoo.export import write_saved_model

    task = with_tokenizer(name)
    options = {} if task.backbone.config.architecture == "encoder" else {"max_new_tokens": 3, "jit_compile": False}
    with tempfile.TemporaryDirectory() as folder:
        write_saved_model(
            Path(folder) / "model",
            {"serve": task.endpoints(**options)["serve"]},
            variables=task.variables,
            resources=task.tokenizer.trackables,
            save_assets=task.save_assets,
        )
        model = tf.saved_model.load(str(Path(folder) / "model"))
        served = model.serve(tf.constant(TEXTS)).numpy()
    if options:
        assert [text.decode("utf-8", "replace") for text in served] == task.generate(TEXTS, **options)
    else:
        assert_close(served, array(task.embed(TEXTS)))
    return "yes"
