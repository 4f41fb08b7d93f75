"""A SavedModel with a tokenizer, loaded by a process that imports only tensorflow and tensorflow_text."""

import base64
import json
import subprocess
import sys

import keras
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
    assert ids.to_list() == before
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


def test_reloaded_in_another_process(tmp_path, trained, awkward_texts):
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

    results = serve([str(tmp_path / "module"), str(tmp_path / "archive")], awkward_texts)
    for name, (ids, decoded) in zip(("unigram", "bytes"), results, strict=True):
        eager = trained[name].tokenize(awkward_texts)
        assert ids == eager.to_list()
        assert decoded == trained[name].detokenize(eager).numpy().tolist()
