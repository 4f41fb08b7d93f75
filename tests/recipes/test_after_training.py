"""What recipes do behind the training must not fail on data that one can train on, and loses nothing where it fails."""

import dataclasses
import functools
from types import SimpleNamespace

import keras
import pytest
import tensorflow as tf

import zoo
from recipes import finetune, pretrain_masked_lm, tag, translate
from recipes.common.training import fitting
from zoo.tokenizers import ByteLevelBPETokenizer
from zoo.tokenizers.chat import tokenize_chat

pytestmark = pytest.mark.usefixtures("eagerly")

CONFIG = zoo.TransformerConfig(
    "encoder",
    vocabulary_size=64,
    hidden_dim=8,
    num_layers=1,
    max_length=24,
    attention=zoo.AttentionConfig(num_heads=1),
    feed_forward=zoo.FeedForwardConfig(8),
)


class Served:
    """Stands in the place of a SavedModel: the endpoints of a task, run eagerly."""

    def __init__(self, task):
        for name, endpoint in task.endpoints().items():
            setattr(self, name, lambda texts, function=endpoint.function: function(tf.constant(texts)))


def test_words_that_are_several_as_text(tiny_tokenizer):
    task = zoo.TokenClassifier(zoo.Backbone.from_config(CONFIG), tiny_tokenizer, labels=["O", "B-PER"])
    sentences = [["alpha", "'s", "beta"], ["@gamma", "...", "10%"]]
    rows = list(tag.try_export(task, sentences, Served(task)))
    assert [text for text, *_ in rows] == ["alpha 's beta", "@gamma ... 10%"]
    # ' and s, @, three full stops, and %
    assert [len(tags) for _, tags, _ in rows] == [4, 7]
    assert all(tags == expected for _, tags, expected in rows)


@pytest.mark.parametrize(("length", "place"), [(9, 4), (40, 20), (400, 12)])
def test_a_gap_where_the_model_sees_it(texts, length, place):
    from zoo.tokenizers import SentencePieceTokenizer

    tokenizer = SentencePieceTokenizer.train(texts, vocabulary_size=27, special_tokens=["<mask>"])
    tokenizer = SentencePieceTokenizer.from_config({**tokenizer.get_config(), "mask_token": "<mask>"})
    task = zoo.MaskedLM(zoo.Backbone.from_config(CONFIG), tokenizer, truncate=True)
    text = pretrain_masked_lm.with_gap(task, " ".join(["alpha"] * length))
    assert len(text.split()) == length
    assert text.split().index("<mask>") == place
    assert len(task.fill_mask([text])[0]) == 1


@dataclasses.dataclass(frozen=True)
class Writes(zoo.generation.LogitProcessor):
    """Writes given tokens in each row."""

    rows: tuple

    def __call__(self, logits, context):
        chosen = keras.ops.convert_to_tensor(self.rows)[:, context.position]
        return 100.0 * keras.ops.one_hot(chosen, logits.shape[-1])


@pytest.mark.parametrize("end", ["<|endoftext|>", "<|im_end|>"])
def test_replies_end_with_the_token_of_the_format_or_with_the_room(end):
    """A base model may have another end token than the format, and no padding token."""
    special = [token for token in ("<|im_start|>", "<|im_end|>", "<|endoftext|>") if token != end]
    tokenizer = ByteLevelBPETokenizer.train(["a"], 260, end_token=end, special_tokens=special)
    tokenizer = ByteLevelBPETokenizer.from_config(
        {**tokenizer.get_config(), "pad_token": None, "chat_format": "chatml"}
    )
    talks = [finetune.Conversation([{"role": "user", "content": text}, {}], "") for text in ("q", "q", "qqqq", "q")]
    longest = len(tokenize_chat(tokenizer, talks[0].messages[:1])) + 5
    config = dataclasses.replace(
        CONFIG, architecture="decoder", vocabulary_size=tokenizer.vocabulary_size, max_length=longest
    )
    task = zoo.CausalLM(zoo.Backbone.from_config(config), tokenizer)
    a, b, stop = (tokenizer.token_to_id(token) for token in ("a", "b", "<|im_end|>"))
    script = Writes(((a, b, stop, b, b), (a, a, a, a, a), (stop, a, a, a, a), (b, a, a, a, a)))
    task.generate = functools.partial(task.generate, processors=[script], jit_compile=False)
    # in the order of their lengths, which is that of the batch
    talks = [talks[place] for place in (0, 1, 3, 2)]
    assert finetune.replies(task, finetune.FinetuneConfig(new_tokens=5), talks) == ["ab", "aaaaa", "", "ba"]


def test_texts_fit_with_all_tokens_that_are_added(untrained):
    longest = untrained.backbone.config.max_length
    pairs = [translate.TextPair(" ".join(["alpha"] * count), "", "") for count in range(longest - 3, longest + 1)]
    # as in BART, both ends of a source are marked
    both = zoo.Seq2SeqLM(untrained.backbone, untrained.tokenizer, decoder_start_token="<eos>")
    for task, added in ((untrained, 1), (both, 2)):
        shown = translate.pairs_that_fit(task, pairs, 9)
        assert [len(pair.source.split()) for pair in shown] == list(range(longest - 3, longest - added + 1))
        task.generate([pair.source for pair in shown], max_new_tokens=1, jit_compile=False)


def test_a_picture_of_an_output_that_is_longer_as_text(untrained, tmp_path, monkeypatch):
    monkeypatch.setattr(untrained, "generate", lambda *arguments, **options: "alpha " * 99)
    drawn = []
    monkeypatch.setattr(zoo.inspect, "plot_attention", lambda *arguments, **options: drawn.append(arguments))
    translate.draw_seq2seq(SimpleNamespace(plots=tmp_path), untrained, "alpha beta")
    ((weights, written, read, _),) = drawn
    assert len(written) == 32 and read == ("alpha", "beta", "<eos>")
    assert weights.shape == (32, len(read))


def test_a_model_is_saved_before_anything_that_can_fail(tmp_path, monkeypatch):
    events = []

    def plot_curves(*arguments, **options):
        raise OSError("no space")

    class Task:
        backbone = SimpleNamespace(adapters={})

        def fit(self, *arguments, **options):
            events.append("fit")
            return SimpleNamespace(history={"loss": [1.0], "val_loss": [1.0]})

        def save_to_preset(self, directory):
            events.append(directory)

    monkeypatch.setattr(zoo.inspect, "plot_curves", plot_curves)
    monkeypatch.setattr(zoo.distribution, "move_to_one_device", lambda model: True)
    monkeypatch.setattr(zoo.storage, "average_weights", lambda paths, model: events.append("average"))

    def draw(name, plot, *arguments, **options):
        plot(*arguments, **options)

    run = SimpleNamespace(path=tmp_path, folder=lambda name: tmp_path / name, draw=draw)
    batches = SimpleNamespace(dataset=None, number_of_batches=1)
    with pytest.raises(OSError, match="no space"):
        fitting.train(Task(), run, fitting.TrainingConfig(), batches, None, curves={"training": "loss"})
    assert events == ["fit", "average", tmp_path / "model"]
