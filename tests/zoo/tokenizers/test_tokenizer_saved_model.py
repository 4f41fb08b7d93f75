"""A SavedModel with a tokenizer, loaded by a process that imports only tensorflow and tensorflow_text."""

import base64
import functools
import json
import subprocess
import sys

import keras
import pytest
import tensorflow as tf

SERVE = """
import base64, json, sys
import tensorflow as tf
import tensorflow_text

texts = tf.constant([base64.b64decode(line) for line in sys.stdin.read().split("\\n")])
results = []
for directory in sys.argv[1:]:
    reloaded = tf.saved_model.load(directory)
    before = reloaded.tokenize(texts).to_list()
    tf.random.set_seed(0)
    ids = reloaded.tokenize(texts)
    assert ids.to_list() == before  # seeds leave the model loaded
    decoded = reloaded.detokenize(ids.to_tensor(0)).numpy()
    results.append([ids.to_list(), [base64.b64encode(text).decode() for text in decoded]])
assert not {"keras_hub", "sentencepiece", "zoo"} & set(sys.modules)
print(json.dumps(results))
"""


def serve(directories, texts):
    stdin = "\n".join(base64.b64encode(text).decode() for text in texts)
    run = subprocess.run([sys.executable, "-c", SERVE, *directories], input=stdin, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    return [(ids, [base64.b64decode(text) for text in decoded]) for ids, decoded in json.loads(run.stdout)]


def test_reloaded_in_another_process(tmp_path, trained, wordpiece, byte_level, awkward_texts):
    text_signature = [tf.TensorSpec([None], tf.string)]
    ids_signature = [tf.TensorSpec([None, None], tf.int32)]

    tokenizer = trained["unigram"]
    module = tf.Module()
    module.tokenizer_resources = tokenizer.trackables
    module.tokenize = tf.function(tokenizer.tokenize, input_signature=text_signature)
    module.detokenize = tf.function(tokenizer.detokenize, input_signature=ids_signature)
    tf.saved_model.save(module, str(tmp_path / "module"))

    tokenizer = trained["bytes"]
    archive = keras.export.ExportArchive()
    for resource in tokenizer.trackables:
        archive.track(resource)
    archive.add_endpoint("tokenize", tokenizer.tokenize, input_signature=text_signature)
    archive.add_endpoint("detokenize", tokenizer.detokenize, input_signature=ids_signature)
    archive.write_out(str(tmp_path / "archive"), verbose=False)

    for name, tokenizer in (("wordpiece", wordpiece), ("byte_level", byte_level)):
        module = tf.Module()
        module.tokenizer_resources = tokenizer.trackables
        module.tokenize = tf.function(tokenizer.tokenize, input_signature=text_signature)
        module.detokenize = tf.function(tokenizer.detokenize, input_signature=ids_signature)
        tf.saved_model.save(module, str(tmp_path / name))

    names = ("module", "archive", "wordpiece", "byte_level")
    tokenizers = (trained["unigram"], trained["bytes"], wordpiece, byte_level)
    results = serve([str(tmp_path / name) for name in names], awkward_texts)
    for tokenizer, (ids, decoded) in zip(tokenizers, results, strict=True):
        eager = tokenizer.tokenize(awkward_texts)
        assert ids == eager.to_list()
        assert decoded == tokenizer.detokenize(eager.to_tensor(0)).numpy().tolist()


@pytest.mark.slow
def test_words_offsets_and_special_tokens_in_a_saved_model(tmp_path, byte_level, wordpiece):
    texts = tf.constant(["the dog<|endoftext|> [SEP]", "", "\u00e9"])
    words = tf.ragged.constant([["the", "dog"], [], ["\u00e9"]])
    for name, tokenizer in (("byte_level", byte_level), ("wordpiece", wordpiece)):
        calls = {
            "offsets": (functools.partial(tokenizer.tokenize_with_offsets, unit="bytes", special_tokens=True), texts),
            "words": (tokenizer.tokenize_words, words),
        }
        module = tf.Module()
        module.tokenizer_resources = tokenizer.trackables
        for call, (function, example) in calls.items():
            setattr(module, call, tf.function(function, input_signature=[tf.type_spec_from_value(example)]))
        tf.saved_model.save(module, str(tmp_path / name))
        reloaded = tf.saved_model.load(str(tmp_path / name))
        for call, (function, example) in calls.items():
            expected = [part.to_list() for part in function(example)]
            assert [part.to_list() for part in getattr(reloaded, call)(example)] == expected


def test_same_ids_in_tf_data(byte_level, wordpiece, awkward_texts):
    dataset = tf.data.Dataset.from_tensor_slices(awkward_texts)
    for tokenizer in (byte_level, wordpiece):
        eager = tokenizer.tokenize(awkward_texts).to_list()
        assert [row.tolist() for row in dataset.map(tokenizer.tokenize).as_numpy_iterator()] == eager
        batched = dataset.batch(4).map(tokenizer.tokenize, num_parallel_calls=2)
        assert [row for batch in batched for row in batch.to_list()] == eager
        keras.backend.clear_session()
        keras.utils.set_random_seed(1)
        assert tokenizer.tokenize(awkward_texts).to_list() == eager
