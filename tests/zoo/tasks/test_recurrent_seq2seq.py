"""Recurrent encoder-decoders as a task: text in, text out; training modes; files."""

import keras
import numpy as np
import pytest

from zoo import Backbone, Beam, Sample, Seq2SeqLM
from zoo.config import RecurrentConfig
from zoo.training.losses import TokenCrossEntropy


def make(tokenizer, **options):
    keras.utils.set_random_seed(0)
    config = RecurrentConfig(
        vocabulary_size=tokenizer.vocabulary_size, embedding_dim=16, hidden_dim=32, max_length=32, **options
    )
    return Seq2SeqLM(Backbone.from_config(config), tokenizer)


@pytest.fixture(scope="module")
def learned(tiny_tokenizer, copied):
    """A model with attention that copies `copied`; not to be changed."""
    model = make(tiny_tokenizer, attention="previous_state", score="additive", readout="maxout", cell="gru")
    rate = keras.optimizers.schedules.CosineDecay(0.02, 92)
    model.compile(keras.optimizers.Adam(rate), TokenCrossEntropy())
    model.fit(copied * 30, copied * 30, epochs=4, verbose=0)
    return model


def test_learns_to_copy(learned, copied):
    assert learned.generate(copied, jit_compile=False) == copied
    # each step looks at the word that it writes
    inputs, _, _ = learned.preprocessor.training_batch(copied[:4], copied[:4])
    weights = np.asarray(learned.backbone.attention_weights(inputs)["cross"][0])[:, 0]
    lengths = np.asarray(inputs["encoder_padding_mask"]).sum(axis=1)
    for row, length in enumerate(lengths):
        assert np.trace(weights[row, :length, :length]) / length > 0.5


@pytest.mark.slow
def test_xla_and_batches_give_the_same(learned, texts):
    some = [*texts[60:67], ""]
    expected = learned.generate(some, jit_compile=True)
    assert learned.generate(some, jit_compile=False) == expected
    assert [learned.generate(text, jit_compile=False) for text in some[:3]] == expected[:3]


@pytest.mark.slow
def test_beam_search_finds_the_more_probable(learned, texts):
    some = texts[60:72]
    beam = learned.generate(some, sampler=Beam(num_beams=4, length_penalty=0.0), jit_compile=False)
    greedy = learned.generate(some, jit_compile=False)
    # the search ends when nothing better can come, so no text of greedy search is better
    assert (learned.score(some, beam) >= learned.score(some, greedy) - 1e-3).all()


def test_sampling(learned, texts):
    some = texts[60:66]
    options = {"jit_compile": False, "max_length": 8}
    greedy = learned.generate(some, **options)
    assert learned.generate(some, sampler=Sample(top_k=1), **options) == greedy
    first, again, other = (
        learned.generate(some, sampler=Sample(temperature=2.0), seed=seed, **options) for seed in (1, 1, 2)
    )
    assert first == again != other and first != greedy


def test_saved_and_loaded(learned, copied, tmp_path):
    learned.save(tmp_path / "model.keras")
    learned.save_to_preset(tmp_path / "preset")
    for loaded in (keras.models.load_model(tmp_path / "model.keras"), Seq2SeqLM.from_preset(tmp_path / "preset")):
        np.testing.assert_allclose(
            loaded.score(copied[:4], copied[:4]), learned.score(copied[:4], copied[:4]), rtol=1e-5
        )


def test_export_says_what_the_model_says(learned, texts, tmp_path):
    tf = pytest.importorskip("tensorflow")
    learned.export(tmp_path / "export", sampler=Beam(num_beams=2), jit_compile=False)
    loaded = tf.saved_model.load(str(tmp_path / "export"))
    some = texts[60:65]
    outputs = [text.decode() for text in loaded.serve(tf.constant(some)).numpy()]
    assert outputs == learned.generate(some, sampler=Beam(num_beams=2), jit_compile=False)
    np.testing.assert_allclose(loaded.score(some, some), learned.score(some, some), rtol=1e-4)


@pytest.mark.slow
def test_trains_on_its_own_output_and_resumes_the_schedule(tiny_tokenizer, copied, tmp_path):
    model = make(
        tiny_tokenizer,
        attention="current_state",
        score="bilinear",
        readout="attentional",
        input_feeding=True,
        dropout=0.1,
        feeding="scheduled_sampling",
        schedule="inverse_sigmoid",
        schedule_constant=4.0,
    )
    model.compile(keras.optimizers.Adam(0.01), TokenCrossEntropy())
    history = model.fit(copied * 2, copied * 2, batch_size=8, epochs=3, verbose=0, validation_data=(copied, copied))
    losses = history.history["loss"]
    assert losses[-1] < losses[0]
    # validation reads the true tokens and does not count
    assert int(model.backbone.sampling.batches) == 18
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert int(loaded.backbone.sampling.batches) == 18
    loaded.fit(copied, copied, batch_size=8, epochs=1, verbose=0)
    assert int(loaded.backbone.sampling.batches) == 21
