"""Folders that servers take: versions, requests to warm up with, the card, and operations that servers have."""

import json

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo import (  # noqa: E402
    AttentionConfig,
    Backbone,
    Beam,
    CausalLM,
    FeedForwardConfig,
    MaskedLM,
    PositionConfig,
    QuestionAnswerer,
    ReplacedTokenDetector,
    Sample,
    Seq2SeqLM,
    TextClassifier,
    TextEmbedder,
    TokenClassifier,
    TransformerConfig,
)
from zoo.config import RecurrentConfig  # noqa: E402
from zoo.export import new_version, newest_version, serving_versions, versions  # noqa: E402
from zoo.generation import NoRepeatNGram, RepetitionPenalty  # noqa: E402
from zoo.tokenizers import (  # noqa: E402
    ByteLevelBPETokenizer,
    MarianTokenizer,
    SentencePieceTokenizer,
    WordPieceTokenizer,
)

TALK = [
    {"role": "user", "content": "alpha"},
    {"role": "assistant", "content": "beta"},
    {"role": "user", "content": "x"},
]


def test_versions(tmp_path):
    folder = tmp_path / "models" / "dates"
    assert versions(folder) == {} and new_version(folder) == folder / "1"
    with pytest.raises(FileNotFoundError, match="holds no version of a model"):
        newest_version(folder)
    for name in ("2", "10", "0009", ".11.abc.incomplete", "12.old", "latest"):
        (folder / name).mkdir(parents=True)
    (folder / "13").write_text("a file")
    assert versions(folder) == {2: folder / "2", 9: folder / "0009", 10: folder / "10"}
    assert newest_version(folder) == folder / "10" and new_version(folder) == folder / "11"
    assert new_version(folder, 3) == folder / "3"
    for version in (2, 9):
        with pytest.raises(FileExistsError, match="servers do not read a version again: leave version out for 11"):
            new_version(folder, version)
    for version in (0, -1, True, "4", 10**18):
        with pytest.raises(ValueError, match="version must be an integer from 1 to"):
            new_version(folder, version)


def test_a_version_appears_whole_or_not_at_all(make_task, tmp_path, monkeypatch):
    task, seen = make_task(TextClassifier, labels=2), []
    save = tf.saved_model.save

    def look(*arguments, **options):
        seen.append(list(versions(tmp_path / "dates")))
        save(*arguments, **options)
        seen.append(list(versions(tmp_path / "dates")))

    monkeypatch.setattr(tf.saved_model, "save", look)
    task.export(new_version(tmp_path / "dates"))
    assert seen == [[], []] and list(versions(tmp_path / "dates")) == [1]

    def fail(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(OSError, match="No space left"):
        task.export(new_version(tmp_path / "dates"))
    assert [path.name for path in (tmp_path / "dates").iterdir()] == ["1"]


def warmed(folder):
    """The requests of an export as the library of TensorFlow Serving reads them, and what the export answers."""
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    from google.protobuf.unknown_fields import UnknownFieldSet

    model = tf.saved_model.load(folder)
    answers = []
    for record in tf.data.TFRecordDataset(str(folder / "assets.extra" / "tf_serving_warmup_requests")):
        log = logs.PredictionLog.FromString(record.numpy())
        assert log.WhichOneof("log_type") == "predict_log" and not len(UnknownFieldSet(log))
        request = log.predict_log.request
        name = request.model_spec.signature_name
        inputs = {key: tf.constant(tf.make_ndarray(value)) for key, value in request.inputs.items()}
        answers.append((name, inputs, model.signatures[name](**inputs)))
    return answers


def test_pairs_warm_up(make_task, tmp_path):
    task = make_task(TextClassifier, labels=["no", "yes"], pairs=True)
    pairs = [("alpha", "beta"), ("omega \u00e9", "theta"), ("beta", "")]
    with pytest.raises(ValueError, match=r"examples\[1\] must be a text for each of first_texts, second_texts"):
        task.export(tmp_path / "1", examples=[pairs[0], "a"])
    task.export(tmp_path / "1", examples=pairs)
    answers = warmed(tmp_path / "1")
    assert [(name, len(inputs["first_texts"])) for name, inputs, _ in answers] == [
        *(("serve", 1), ("serve", 3), ("tokens", 3))
    ]
    found = answers[1][2]["probabilities"].numpy()
    np.testing.assert_allclose(found, task.predict(tuple(zip(*pairs, strict=True))), rtol=1e-4, atol=1e-5)
    card = (tmp_path / "1" / "model_card.md").read_text(encoding="utf-8")
    blocks = [json.loads(block.split("```")[0]) for block in card.split("```json\n")[1:]]
    columns = {"first_texts": ["alpha", "omega \u00e9", "beta"], "second_texts": ["beta", "theta", ""]}
    assert blocks[2] == {"signature_name": "serve", "inputs": columns}
    np.testing.assert_allclose(blocks[3]["outputs"]["probabilities"], found, rtol=1e-3)
    assert blocks[3]["outputs"]["label"] == task.classify(pairs)
    assert "| `serve` | `first_texts` string (batch), `second_texts` string (batch) |" in card
    described = json.loads((tmp_path / "1" / "signature.json").read_text())
    assert described["tf_serving"] == "2.12" and "MatMul" in described["operations"]
    assert "TensorFlow Serving 2.12 and later" in card


@pytest.fixture(scope="module")
def tokenizers(texts):
    words = [*texts[:200], "Alpha \u00c9t\u00e9 x"]
    piece = SentencePieceTokenizer.train(texts, 27, special_tokens=["<mask>"]).proto
    marian = SentencePieceTokenizer.train(texts, 26)
    pieces = [marian.id_to_token(number) for number in range(4, marian.vocabulary_size)]
    return {
        "sentencepiece": SentencePieceTokenizer(piece, mask_token="<mask>"),
        "sentencepiece bpe": SentencePieceTokenizer.train(texts, 60, model_type="bpe"),
        "wordpiece": WordPieceTokenizer.train(words, 60, lowercase=True),
        "cased wordpiece": WordPieceTokenizer.train(words, 60, lowercase=False),
        "byte level bpe": ByteLevelBPETokenizer.train(words, 300, special_tokens=["<|im_start|>", "<|im_end|>"]),
        "normalizing byte level bpe": ByteLevelBPETokenizer.train(words, 300, split="qwen2", normalization="NFC"),
        "marian": MarianTokenizer(["</s>", "<unk>", *pieces, "<pad>"], marian.proto, marian.proto),
    }


def backbone(architecture, tokenizer, **options):
    keras.utils.set_random_seed(0)
    config = TransformerConfig(
        architecture,
        vocabulary_size=tokenizer.vocabulary_size,
        hidden_dim=8,
        num_layers=2,
        max_length=options.pop("max_length", 32),
        attention=AttentionConfig(num_heads=2, **options.pop("attention", {})),
        feed_forward=FeedForwardConfig(8),
        **{"dropout": 0.0, **options},
    )
    return Backbone.from_config(config)


SHORT = {"max_new_tokens": 4}
# kind of tokenizer, a function from it to a task, arguments of the export
EXPORTS = {
    "classifier": ("wordpiece", lambda tokenizer: TextClassifier(encoder(tokenizer), tokenizer, labels=["a", "b"]), {}),
    "embedder": (
        "cased wordpiece",
        lambda tokenizer: TextEmbedder(encoder(tokenizer), tokenizer, prompts={"query": "q: "}),
        {},
    ),
    "masked": ("sentencepiece", lambda tokenizer: MaskedLM(encoder(tokenizer), tokenizer), {}),
    "detector": ("wordpiece", lambda tokenizer: ReplacedTokenDetector(encoder(tokenizer), tokenizer), {}),
    "tagger of pieces": ("sentencepiece", lambda tokenizer: tagger(tokenizer), {}),
    "tagger of bytes": ("normalizing byte level bpe", lambda tokenizer: tagger(tokenizer), {}),
    "tagger of words": ("wordpiece", lambda tokenizer: tagger(tokenizer), {}),
    "attention": ("wordpiece", lambda tokenizer: tagger(tokenizer), {"attention": True}),
    "attention of two stacks": (
        "sentencepiece",
        lambda tokenizer: Seq2SeqLM(backbone("encoder_decoder", tokenizer), tokenizer),
        {**SHORT, "attention": True},
    ),
    "several labels": (
        "wordpiece",
        lambda tokenizer: TextClassifier(encoder(tokenizer), tokenizer, labels=["a", "b"], problem="multi_label"),
        {},
    ),
    "several results": (
        "sentencepiece",
        lambda tokenizer: decoder(tokenizer),
        {**SHORT, "sampler": "sample", "num_results": 2, "return_scores": True},
    ),
    "answerer": ("sentencepiece", lambda tokenizer: QuestionAnswerer(encoder(tokenizer), tokenizer, stride=4), {}),
    "chat": ("byte level bpe", lambda tokenizer: decoder(tokenizer.with_chat_format("chatml"), max_length=64), SHORT),
    "windows": (
        "sentencepiece bpe",
        lambda tokenizer: decoder(tokenizer, attention={"window": (5, 0)}, position=PositionConfig("rotary")),
        {**SHORT, "sampler": Sample(top_p=0.9, top_k=5), "truncate": True},
    ),
    "rules": (
        "normalizing byte level bpe",
        lambda tokenizer: decoder(tokenizer),
        {**SHORT, "processors": [RepetitionPenalty(1.3), NoRepeatNGram(3)], "draft": "prompt_lookup"},
    ),
    "contrastive": ("sentencepiece", lambda tokenizer: decoder(tokenizer), {**SHORT, "sampler": "contrastive"}),
    "translation": (
        "marian",
        lambda tokenizer: Seq2SeqLM(backbone("encoder_decoder", tokenizer), tokenizer, decoder_start_token="<pad>"),
        {**SHORT, "sampler": Beam(2)},
    ),
    "recurrent": (
        "sentencepiece",
        lambda tokenizer: Seq2SeqLM(
            Backbone.from_config(RecurrentConfig(tokenizer.vocabulary_size, embedding_dim=4, hidden_dim=6)), tokenizer
        ),
        SHORT,
    ),
}


def encoder(tokenizer):
    return backbone("encoder", tokenizer)


def decoder(tokenizer, **options):
    return CausalLM(backbone("decoder", tokenizer, **options), tokenizer)


def tagger(tokenizer):
    return TokenClassifier(encoder(tokenizer), tokenizer, labels=["O", "B-X", "I-X"])


# what these have is in the others, too
REPEATED = {
    *("classifier", "embedder", "detector", "tagger of pieces", "tagger of words", "attention"),
    *("attention of two stacks", "several results", "windows"),
}
EXAMPLES = {"masked": ["alpha <mask>"], "answerer": [("alpha", "beta omega")], "chat": ["alpha", TALK, "beta"]}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in REPEATED)) for name in EXPORTS]
)
def test_servers_have_the_operations(tokenizers, tmp_path, name):
    """An operation that is missing in the table is to be looked up in the servers, and added."""
    kind, make, options = EXPORTS[name]
    folder = tmp_path / "1"
    make(tokenizers[kind]).export(folder, examples=EXAMPLES.get(name, ["alpha beta", "omega"]), **options)
    described = json.loads((folder / "signature.json").read_text(encoding="utf-8"))
    assert described["unknown_operations"] == []
    assert described["tf_serving"] == "2.12"
    assert not [operation for operation in described["operations"] if operation.startswith("Xla")]
    answers = warmed(folder)
    if name == "chat":
        assert [answer[0] for answer in answers] == ["generate", "generate", "chat_generate"]
        assert all(answer[1]["max_new_tokens"] == 8 for answer in answers)
        assert [text.decode() for text in answers[2][1]["contents"].numpy()[0]] == ["alpha", "beta", "x"]
    assert all(len(next(iter(outputs.values()))) for _, _, outputs in answers) and len(answers) >= 1


def test_unknown_operations():
    described = serving_versions.describe_operations(["MatMul", "MyOwn"])
    assert described["tf_serving"] is None and described["unknown_operations"] == ["MyOwn"]
    assert serving_versions.describe_operations(["MatMul", "TFText>RoundRobinTrim"])["tf_serving"] == "2.20"
