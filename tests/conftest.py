"""What several folders of tests use: a small tokenizer and a small sequence-to-sequence model."""

import collections
import ctypes
import gc
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from one_stack import keep_one_stack

# Graphs are millions of objects that live as long as their test; looking through them again and again takes an eighth
# of the time.
gc.set_threshold(100_000, 20, 100)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of a test with the mark `sampled(count)` so many cases run, spread from first to last; the others are `slow`.

    On JAX one case of each test runs: it compiles each anew.
    """
    cases = collections.defaultdict(list)
    on_jax = os.environ.get("KERAS_BACKEND") == "jax"
    for item in items:
        if (on_jax or item.get_closest_marker("sampled")) and not item.get_closest_marker("slow"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for of_test in cases.values():
        count = 1 if on_jax else of_test[0].get_closest_marker("sampled").args[0]
        kept = {index * len(of_test) // count for index in range(count)}
        for index, item in enumerate(of_test):
            if index not in kept:
                item.add_marker(pytest.mark.slow)


def pytest_collection_finish():
    """Makes graphs cheaper, and takes what was imported out of all later searches for rubbish."""
    keep_one_stack()
    gc.collect()
    gc.freeze()


def pytest_configure(config):
    """What all processes of this run share: threads, programs that JAX has compiled, processes that have imported."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    config.pluginmanager.register(FailuresAtOnce(config))
    folder = tempfile.mkdtemp()
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    # what XLA compiles for tests runs for milliseconds: code that took less time to make is quicker
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")
    # as many processes compute as there are processors: more threads wait for each other, a tenth of the time
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    # what JAX compiles in one process of this run, the others read: compiling is half of a short run's time
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(folder, "jax_programs"))
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"
    if sys.platform == "linux":
        import fork_server  # knows what other systems lack

        os.environ.update(fork_server.interpreter(folder))


class FailuresAtOnce:
    """Names what has failed when it fails: a run that is stopped comes to no summary."""

    def __init__(self, config):
        self.config = config

    def pytest_runtest_logreport(self, report):
        if report.failed:
            terminal = self.config.pluginmanager.get_plugin("terminalreporter")
            crash = getattr(report.longrepr, "reprcrash", None)
            message = "" if crash is None else f" - {crash.message.partition(chr(10))[0][:300]}"
            terminal.write_line(f"\nFAILED {report.nodeid}{message}")


@pytest.fixture(scope="session", autouse=True)
def forked_programs():
    """Programs of `recipes` that tests start are forked from a process that has imported TensorFlow: seconds less."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", os.environ.get("ZOO_TESTS_PYTHON", sys.executable))
        yield


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """Makes a folder of a name by a function in the first worker that asks for it; the others wait for it."""
    filelock = pytest.importorskip("filelock")
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent  # that of all workers

    def folder(name, make):
        made = place / "made_once" / name
        made.parent.mkdir(exist_ok=True)
        with filelock.FileLock(f"{made}.lock"):
            if not made.exists():
                make(made.with_suffix(".begun"))
                made.with_suffix(".begun").rename(made)
        return made

    return folder


# Linux tells how much memory a process has; elsewhere rubbish stays until Python looks for it.
MEMORY = Path("/proc/self/statm")
# Searching takes a second, and JAX compiles again what was forgotten: often is slow.
MOST_GROWTH = 2_000_000_000 // max(2, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
_after_last_search = 0


def resident_bytes():
    return int(MEMORY.read_text().split()[1]) * 4096


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    """Searches for rubbish when the process has grown, and hands its memory back.

    Python counts objects, of which a graph has few: its memory is TensorFlow's, or JAX's.
    """
    global _after_last_search
    result = yield
    if MEMORY.exists() and resident_bytes() > _after_last_search + MOST_GROWTH:
        if "jax" in sys.modules:
            sys.modules["jax"].clear_caches()  # it keeps all programs that it has compiled
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        _after_last_search = resident_bytes()
    return result


WORDS = "alpha beta gamma kappa iota lambda omega theta".split()


@pytest.fixture(scope="session")
def texts():
    """Texts of two to four words."""
    generator = random.Random(0)
    return [" ".join(generator.choices(WORDS, k=generator.randint(2, 4))) for _ in range(200)]


@pytest.fixture(scope="session")
def tiny_tokenizer(texts):
    """A tokenizer in which each of the words is one token."""
    pytest.importorskip("sentencepiece")
    from zoo.tokenizers import SentencePieceTokenizer

    return SentencePieceTokenizer.train(texts, vocabulary_size=26)


@pytest.fixture(scope="session")
def tiny_config(tiny_tokenizer):
    from zoo import AttentionConfig, EmbeddingConfig, FeedForwardConfig, NormConfig, TransformerConfig

    return TransformerConfig(
        "encoder_decoder",
        vocabulary_size=tiny_tokenizer.vocabulary_size,
        hidden_dim=32,
        num_layers=1,
        max_length=32,
        attention=AttentionConfig(num_heads=4),
        feed_forward=FeedForwardConfig(64),
        norm=NormConfig(placement="pre"),
        embedding=EmbeddingConfig(scale=True),
        dropout=0.0,
    )


@pytest.fixture
def untrained(tiny_config, tiny_tokenizer):
    """A fresh model with random weights."""
    import keras

    from zoo import Backbone, Seq2SeqLM

    keras.utils.set_random_seed(0)
    return Seq2SeqLM(Backbone.from_config(tiny_config), tiny_tokenizer)


@pytest.fixture(scope="session")
def copied(texts):
    """The texts that `trained` has learned to copy."""
    return texts[:24]


@pytest.fixture(scope="session")
def trained(tiny_config, tiny_tokenizer, copied):
    """A model that copies `copied`, after some ninety steps; not to be changed. Its losses are in `losses_by_epoch`."""
    import keras

    from zoo import Backbone, Seq2SeqLM
    from zoo.training.losses import TokenCrossEntropy

    keras.utils.set_random_seed(0)
    model = Seq2SeqLM(Backbone.from_config(tiny_config), tiny_tokenizer)
    rate = keras.optimizers.schedules.CosineDecay(0.01, 92)
    model.compile(keras.optimizers.Adam(rate, beta_2=0.98), TokenCrossEntropy())
    # each epoch has every text 30 times, because an epoch costs more than a step
    model.losses_by_epoch = model.fit(copied * 30, copied * 30, epochs=4, verbose=0).history["loss"]
    return model


@pytest.fixture(scope="session")
def tiny_llama(texts):
    """A language model as Llama is, with random weights and a tokenizer whose special tokens are called as Llama's."""
    import keras

    from zoo import (
        AttentionConfig,
        Backbone,
        CausalLM,
        EmbeddingConfig,
        FeedForwardConfig,
        NormConfig,
        PositionConfig,
        TransformerConfig,
    )
    from zoo.tokenizers import SentencePieceTokenizer

    keras.utils.set_random_seed(0)
    tokenizer = SentencePieceTokenizer.train(texts, vocabulary_size=26, start_token="<s>", end_token="</s>")
    config = TransformerConfig(
        "decoder",
        tokenizer.vocabulary_size,
        hidden_dim=16,
        num_layers=1,
        max_length=32,
        attention=AttentionConfig(2, num_key_value_heads=1, use_bias=False),
        position=PositionConfig("rotary"),
        norm=NormConfig("rms", "pre"),
        feed_forward=FeedForwardConfig(16, "silu", gated=True, use_bias=False),
        embedding=EmbeddingConfig(tie_output=False),
    )
    return CausalLM(Backbone.from_config(config), tokenizer)
