"""Distillation: a tiny run of each kind of teacher, what the teacher wrote, keys that do not go together."""

import dataclasses
import json

import numpy as np
import pytest

import zoo
from recipes import distill
from recipes.common.config import differences, parse
from recipes.common.errors import ConfigError, RunFolderError
from recipes.common.run_folder import RunFolder
from recipes.common.training.distill_data import require_keys_of
from recipes.common.training.students import load_teacher, make_student
from recipes.common.training.teacher_outputs import teacher_outputs
from recipes.distill import StudentConfig
from zoo.tokenizers import SentencePieceTokenizer

pytestmark = pytest.mark.usefixtures("without_xla", "eagerly")
KINDS = {"MaskedLM": "encoder", "CausalLM": "decoder", "Seq2SeqLM": "encoder_decoder"}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, texts):
    proto = SentencePieceTokenizer.train(texts, vocabulary_size=27, special_tokens=["<mask>"]).proto
    tokenizer = SentencePieceTokenizer(proto, mask_token="<mask>")
    folder = tmp_path_factory.mktemp("teachers")

    def make(kind):
        config = zoo.TransformerConfig(
            KINDS[kind],
            tokenizer.vocabulary_size,
            hidden_dim=8,
            num_layers=3,
            max_length=24,
            attention=zoo.AttentionConfig(num_heads=1),
            feed_forward=zoo.FeedForwardConfig(8),
            dropout=0.0,
        )
        path = folder / kind
        if not path.exists():
            getattr(zoo, kind)(zoo.Backbone.from_config(config), tokenizer).save_to_preset(path)
        return str(path)

    return make


def config_of(teacher, tmp_path, kind, texts, **more):
    files = []
    for name, count in (("train", 24), ("validation", 6)):
        path = tmp_path / (f"{name}.tsv" if kind == "Seq2SeqLM" else f"{name}.txt")
        path.write_text("".join(f"{text}\t{text}\n" if kind == "Seq2SeqLM" else f"{text}\n" for text in texts[:count]))
        files.append(path)
    options = {
        "run_folder": tmp_path / "run",
        "teacher.start_from": teacher(kind),
        "data.train": files[0],
        "data.validation": files[1],
        "training.batch_size": 8,
        "training.epochs": 2,
        "export": "false",
        **({"distillation.beams": 2} if kind == "Seq2SeqLM" else {"data.unit": "line"}),
        **({"training.length": 16, "training.batches_per_epoch": 3} if kind == "CausalLM" else {}),
        **more,
    }
    return parse(distill.DistillConfig, [word for key, value in options.items() for word in (f"--{key}", str(value))])


def test_a_teacher_of_another_kind_is_trained_anew(tmp_path, monkeypatch):
    trained = []

    def train(config):
        trained.append(type(config).__name__)
        with RunFolder(config.run_folder, config) as run:
            run.write_text("results.json", "{}")

    for recipe in (distill.language_model, distill.pretrain_masked_lm):
        monkeypatch.setattr(recipe, "main", train)
    for kind in ("CausalLM", "CausalLM", "MaskedLM"):
        config = parse(distill.DistillConfig, ["--run_folder", str(tmp_path), "--teacher.task", kind])
        with RunFolder(config.run_folder, config) as run:
            assert distill.train_teacher(config, run) == str(tmp_path / "teacher" / "model")
    assert trained == ["LanguageModelConfig", "MaskedLMConfig"]


@pytest.mark.parametrize(
    "kind", [*[pytest.param(kind, marks=pytest.mark.slow) for kind in ("MaskedLM", "Seq2SeqLM")], "CausalLM"]
)
def test_a_run(teacher, tmp_path, texts, kind, monkeypatch, capsys):
    # searches of this size are tested with the engine; one output has no end
    monkeypatch.setattr(zoo.Seq2SeqLM, "generate", lambda task, sources, **options: ["alpha " * 24, *list(sources)[1:]])
    config = config_of(teacher, tmp_path, kind, texts)
    results = distill.main(config)
    run = tmp_path / "run"
    assert json.loads((run / "results.json").read_text()) == results
    assert results["task"] == kind and results["parameters"] < results["teacher_parameters"]
    assert results["validation_nll_per_token"] > 0 and results["teacher_validation_nll_per_token"] > 0
    parts = {"MaskedLM": {"soft", "hard", "cosine"}, "CausalLM": {"soft", "hard"}, "Seq2SeqLM": {"hard"}}[kind]
    assert {f"validation_{part}_loss" for part in parts} == {name for name in results if name.endswith("_loss")}
    assert (run / "plots" / "loss.png").stat().st_size > 5000
    student = zoo.Task.from_preset(run / "model")
    assert type(student).__name__ == kind and student.backbone.config.num_layers == 2
    if kind == "Seq2SeqLM":
        assert "sacreBLEU" in results and "teacher_sacreBLEU" in results
        lines = (run / "teacher_outputs.jsonl").read_text().splitlines()
        assert len(lines) == 25
        assert "training: 23 pairs; validation: 6; skipped 1: longer than 24 tokens 1" in capsys.readouterr().out


def test_what_the_teacher_wrote_is_kept(tmp_path):
    class Teacher:
        asked, weights = [], [np.zeros(2)]

        def generate(self, sources, **options):
            self.asked += sources
            return [source.upper() for source in sources]

    @dataclasses.dataclass(frozen=True)
    class Config:
        run_folder: str = str(tmp_path / "run")

    teacher, options = Teacher(), {"options": {"sampler": "greedy"}, "batch_size": 4}
    with RunFolder(tmp_path / "run", Config()) as run:
        sources = [f"a{number}" for number in range(5)]
        assert teacher_outputs(run, teacher, sources, **options) == [source.upper() for source in sources]
        path = run.path / "teacher_outputs.jsonl"
        # killed while the last line was written
        path.write_bytes(path.read_bytes()[:-4])
        teacher.asked = []
        assert teacher_outputs(run, teacher, sources, **options)[-1] == "A4" and teacher.asked == ["a4"]
        # a teacher that was trained on in its folder
        teacher.asked, teacher.weights = [], [np.ones(2)]
        assert teacher_outputs(run, teacher, sources, **options) and teacher.asked == sources
        # nothing was trained, so they may be made anew
        assert len(teacher_outputs(run, teacher, sources[:2], **options)) == 2
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("zoo.training.saved_position", lambda folder: (1, 0))
            with pytest.raises(RunFolderError, match="holds outputs of a teacher with other weights or for other"):
                teacher_outputs(run, teacher, sources, **options)


@dataclasses.dataclass(frozen=True)
class AnyConfig:
    """Of a run."""

    run_folder: str = "run"


def test_a_teacher_that_was_trained_on_meanwhile(teacher, tmp_path):
    path = tmp_path / "teacher"
    task = zoo.CausalLM.from_preset(teacher("CausalLM"))
    task.save_to_preset(path)

    def begin(position):
        with RunFolder(tmp_path / "run", AnyConfig()) as run:
            load_teacher(run, str(path), None)
            (run.path / "checkpoints" / "state" / position).mkdir(parents=True, exist_ok=True)

    begin("epoch-00000-batch-00000000")
    task.backbone.weights[0].assign_add(np.ones(task.backbone.weights[0].shape))
    task.save_to_preset(path)
    # nothing has been trained yet
    begin("epoch-00000-batch-00000002")
    begin("epoch-00000-batch-00000004")
    task.backbone.weights[0].assign_add(np.ones(task.backbone.weights[0].shape))
    task.save_to_preset(path)
    with pytest.raises(RunFolderError, match="the teacher .* has other weights than when the run in .* was begun"):
        begin("epoch-00001-batch-00000000")


def test_a_teacher_that_was_adapted(teacher, tmp_path):
    """By a run with model.lora, or with model.quantize."""
    task = zoo.CausalLM.from_preset(teacher("CausalLM"))
    task.enable_lora(2)
    generator = np.random.default_rng(0)
    for weight in task.trainable_weights:
        weight.assign(generator.normal(size=weight.shape))
    task.save_to_preset(tmp_path / "lora")
    tokens = {"token_ids": np.array([[3, 4, 5]]), "padding_mask": np.ones((1, 3), bool)}
    model = StudentConfig()
    with RunFolder(tmp_path / "run", AnyConfig()) as run:
        found = load_teacher(run, str(tmp_path / "lora"), None)
        np.testing.assert_allclose(found.predict_on_batch(tokens), task.predict_on_batch(tokens), atol=1e-4)
        assert make_student(model, run, found).backbone.config.num_layers == 2
    task = zoo.CausalLM.from_preset(teacher("CausalLM"))
    task.quantize("int8")
    task.save_to_preset(tmp_path / "int8")
    with RunFolder(tmp_path / "other", AnyConfig()) as run:
        found = load_teacher(run, str(tmp_path / "int8"), None)
        with pytest.raises(ConfigError, match=r"model.preset or model.start_from must be given .* stored in int8"):
            make_student(model, run, found)


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        ("CausalLM", {"model.options": '{"hidden_dim": 4}'}, r"model\.options must be empty without model\.preset"),
        ("CausalLM", {"model.layers": "7"}, r"model\.layers: .* from 0 to 2, got 7"),
        (
            "CausalLM",
            {"model.preset": "llama_shakespeare", "model.layers": "0"},
            r"model\.layers must be null with model\.preset",
        ),
        (
            "CausalLM",
            {
                "model.preset": "llama_shakespeare",
                "model.options": '{"num_layers": 1, "max_length": 64}',
                "training.length": 32,
            },
            "training.length must be at most 24, the max_length of teacher or student, got 32",
        ),
        (
            "CausalLM",
            {"distillation.soft": 0, "distillation.hard": 0},
            "distillation: soft, hard and cosine must not all be 0",
        ),
        (
            "MaskedLM",
            {"model.preset": "modern_encoder_tiny", "model.options": '{"num_layers": 1}'},
            "distillation: cosine must be 0 where student and teacher are",
        ),
    ],
)
def test_keys_that_do_not_go_together(teacher, tmp_path, texts, kind, more, message):
    with pytest.raises(ConfigError, match=message):
        distill.main(config_of(teacher, tmp_path, kind, texts, **more))


def test_keys_of_another_kind_of_teacher():
    for kind, name, value, message in (
        ("CausalLM", "distillation.beams", "2", r"distillation\.beams must be 5 with a CausalLM, got 2"),
        ("MaskedLM", "training.length", "16", r"training\.length must be 64 with a MaskedLM, got 16"),
        ("Seq2SeqLM", "data.unit", "line", r"data\.unit must be 'file' with a Seq2SeqLM, got 'line'"),
    ):
        config = parse(distill.DistillConfig, [f"--{name}", value])
        with pytest.raises(ConfigError, match=message):
            require_keys_of(kind, differences(distill.DistillConfig(), config))


def test_data_of_ones_own_need_a_teacher(tmp_path):
    with pytest.raises(ConfigError, match=r"teacher\.start_from must be given with your own data"):
        distill.main(parse(distill.DistillConfig, ["--data.train", "a.txt"]))
