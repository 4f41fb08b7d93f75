"""Training on preferences: what a row is, the reference that is kept, one tiny run with its resume."""

import json
import shutil

import keras
import numpy as np
import pytest

import zoo
from recipes import evaluate, prefer
from recipes.common.config import parse
from recipes.common.data.data_sets import Splits
from recipes.common.data.preference_data import PREFERENCES, Preference, PreferenceRows, read_preferences
from recipes.common.errors import BadLines, ConfigError, DataError, RunFolderError
from recipes.common.evaluation.preferences import closeness, count_cut_prompts, wins
from recipes.common.run_folder import RunFolder
from recipes.common.training.reference import likelihoods
from zoo.preprocessing.conversations import reply_tokens
from zoo.tokenizers import ByteLevelBPETokenizer
from zoo.tokenizers.chat import CHAT_FORMATS
from zoo.training import ReplyLikelihoods

pytestmark = pytest.mark.usefixtures("without_xla", "eagerly")
CHATML = CHAT_FORMATS["chatml"]


def user(text):
    return {"role": "user", "content": text}


def reply(text):
    return {"role": "assistant", "content": text}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    tokenizer = ByteLevelBPETokenizer.train(["a"], 259, special_tokens=["<|im_start|>"], end_token="<|im_end|>")
    config = zoo.TransformerConfig(
        "decoder",
        tokenizer.vocabulary_size,
        hidden_dim=8,
        num_layers=1,
        max_length=80,
        attention=zoo.AttentionConfig(num_heads=1),
        feed_forward=zoo.FeedForwardConfig(8),
        dropout=0.0,
    )
    folder = tmp_path_factory.mktemp("start")
    keras.utils.set_random_seed(0)
    zoo.CausalLM(zoo.Backbone.from_config(config), tokenizer.with_chat_format("chatml")).save_to_preset(folder / "chat")
    return folder / "chat"


def write(folder, rows, name="a.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


ROWS = [
    {"prompt": "2 plus 3", "chosen": "It is 5.", "rejected": "5"},
    {"prompt": [user("2 plus 3")], "chosen": [reply("It is 5.")], "rejected": "5"},
    {"chosen": [user("2 plus 3"), reply("It is 5.")], "rejected": [user("2 plus 3"), reply("5")]},
    {"prompt": "2 plus 3", "chosen": [user("2 plus 3"), reply("It is 5.")], "rejected": [user("2 plus 3"), reply("5")]},
]


def test_texts_and_messages(tmp_path):
    options = {"keys": ["prompt", "chosen", "rejected"]}
    rows = read_preferences([write(tmp_path, ROWS)], BadLines("raise"), chat_format=CHATML, **options)
    assert {(str(row.prompt), row.chosen, row.rejected) for row in rows} == {
        (str([user("2 plus 3")]), "It is 5.", "5"),
    }
    (plain,) = read_preferences([write(tmp_path, ROWS[:1])], BadLines("raise"), chat_format=None, **options)
    assert plain.prompt == "2 plus 3" and plain.origin.endswith("a.jsonl:1")
    assert [len(part) for part in PREFERENCES["date_preferences"]()] == [2000, 200, 100]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "x", "chosen": "y"}, "key missing: 'rejected'"),
        ({"chosen": "y", "rejected": "z"}, "key missing: 'prompt', and no message precedes the replies"),
        ({"prompt": "x", "chosen": "y", "rejected": "y"}, "the two replies are equal: 'y'"),
        ({"prompt": "x", "chosen": "y", "rejected": " "}, "a reply is empty"),
        ({"prompt": 1, "chosen": "y", "rejected": "z"}, "'prompt' must be a text or a list of .*, got 1"),
        ({"prompt": "x", "chosen": [user("y")], "rejected": "z"}, "'chosen' must end with a message of the assistant"),
        (
            {"prompt": "x", "chosen": [user("a"), reply("y")], "rejected": [user("b"), reply("z")]},
            "must have the same messages before the last one",
        ),
        (
            {"prompt": "x", "chosen": [user("a"), reply("y")], "rejected": [user("a"), reply("z")]},
            "the messages before the reply must hold the 'prompt' 'x'",
        ),
        ({"prompt": [{"role": "bot", "content": "x"}], "chosen": "y", "rejected": "z"}, "must be one of .*, got 'bot'"),
    ],
)
def test_rows_that_are_no_preference(tmp_path, row, message):
    with pytest.raises(DataError, match=rf"a\.jsonl:2: not a preference: .*{message}"):
        read_preferences(
            [write(tmp_path, [ROWS[0], row])],
            BadLines("raise"),
            chat_format=CHATML,
            keys=["prompt", "chosen", "rejected"],
        )


def test_the_last_reply_alone_counts(start):
    task = zoo.CausalLM.from_preset(start)
    prompts = [[user("q"), reply("one"), user("r")], [user("q")]]
    tokens = reply_tokens(task.preprocessor, prompts, ["two", "three"])
    for ids, learned, text in zip(tokens["ids"].to_list(), tokens["learned"].to_list(), ("two", "three"), strict=True):
        counted = [token for token, is_learned in zip(ids, learned, strict=True) if is_learned]
        assert task.tokenizer.detokenize(counted[:-1]) == text and counted[-1] == task.tokenizer.end_id
    rows = PreferenceRows(task.preprocessor, 80)
    _, pairs = rows.tokenized(PREFERENCES["date_preferences"]().test[:5])
    examples = rows.examples(pairs, np.zeros((5, 2)))
    inputs, targets, _ = rows.collate(*examples.take([0, 3])[:3])
    assert inputs["labels"].shape[:2] == (2, 2) and targets.shape == (2, 2)
    with pytest.raises(
        DataError, match="none of the 5 preferences of a part is left; of all parts skipped 5: longer than 4 tokens 5"
    ):
        PreferenceRows(task.preprocessor, 4).tokenized(PREFERENCES["date_preferences"]().test[:5])


def test_prompts_that_are_cut_are_counted(start, capsys):
    """Of 80 tokens 30 stay where 50 new ones must fit."""
    task = zoo.CausalLM.from_preset(start)
    preferences = [Preference([user(text)], "yes", "no", "-") for text in ("", "a longer question")]
    _, tokens = PreferenceRows(task.preprocessor, 80).tokenized(preferences)
    assert count_cut_prompts("test", task, tokens["learned"], 4) == 0 and not capsys.readouterr().out
    assert count_cut_prompts("test", task, tokens["learned"], 50) == 1
    assert "test: 1 prompts are cut to their last 30 tokens" in capsys.readouterr().out


def test_rule_of_a_win():
    near = closeness(["It is 5.", "5"], ["It is 5.", "It is 5."], ["5", "5"])
    assert near[0] > 0 > near[1]
    assert wins([1.0, 2.0, 3.0, 0.0], [0.0, 2.0, 4.0, -1.0]).tolist() == [1, 0.5, 0, 1]


def options_of(start, tmp_path, files, **more):
    options = {
        "run_folder": tmp_path / "run",
        "model.start_from": start,
        "data.train": files[0],
        "data.validation": files[1],
        "model.lora.rank": 2,
        "training.learning_rate": 0.02,
        "training.batch_size": 8,
        "training.epochs": 2,
        "training.samples": 1,
        "new_tokens": 4,
        "export": "false",
        **more,
    }
    return parse(prefer.PreferConfig, [word for key, value in options.items() for word in (f"--{key}", str(value))])


def test_a_run_and_its_resume(start, tmp_path, capsys):
    rows = [{"prompt": f"{a} and", "chosen": f"yes, {a}", "rejected": f"no {a}"} for a in range(24)]
    files = write(tmp_path, rows), write(tmp_path, rows[:6], "b.jsonl")
    config = options_of(start, tmp_path, files)
    results = prefer.main(config)
    run = tmp_path / "run"
    assert json.loads((run / "results.json").read_text()) == results
    assert results["validation_reward_accuracy"] == results["test_reward_accuracy"] == 1.0
    assert results["validation_reward_margin"] > 0.01 and 0 <= results["test_win_rate"] <= 1
    assert 0 < results["trained_parameters"] < results["parameters"] / 5
    for name in ("loss", "reward_margin", "reward_accuracy", "test_margins"):
        assert (run / "plots" / f"{name}.png").stat().st_size > 3000
    assert len((run / "samples" / "test.tsv").read_text().splitlines()) == 7
    assert isinstance(zoo.Task.from_preset(run / "model"), zoo.CausalLM)
    scores = evaluate.main(evaluate.EvaluateConfig([str(run)], output=str(tmp_path / "scores")))["models"]["run"]
    assert scores["reward_accuracy"] == 1.0 and scores["nearer_to_chosen"] == results["test_nearer_to_chosen"]
    assert scores["reward_margin"] == pytest.approx(results["validation_reward_margin"], abs=1e-3)
    # the reference is not computed again, and what was trained stays
    capsys.readouterr()
    again = prefer.main(config)
    assert "computing the log-likelihoods" not in capsys.readouterr().out
    assert again["validation_reward_margin"] == pytest.approx(results["validation_reward_margin"], abs=1e-3)
    write(tmp_path, [*rows[:-1], {**rows[-1], "chosen": "yes!"}])
    with pytest.raises(RunFolderError, match=r"data.train: .*\.jsonl had"):
        prefer.main(config)


def test_the_reference_of_an_evaluation_is_what_the_run_began_with(start, tmp_path):
    """In 8 bits and as long as the run had it: a reward is what training changed, not what rounding did."""

    def replies_of(task):
        rows = PreferenceRows(task.preprocessor, 40)
        _, tokens = rows.tokenized([Preference([user("2 and")], "yes, 2", "no 2", "-")])
        return likelihoods(ReplyLikelihoods(task), rows, tokens, 1)[..., 0]

    config = options_of(start, tmp_path, ("a", "b"), **{"model.quantize": "int8", "model.options": "{max_length: 48}"})
    with RunFolder(tmp_path / "run", config) as run:
        began = prefer.load_start(config, run, str(start))
    reference = prefer.rewards_of(config, tmp_path / "run")["reference"]
    assert reference.adaptation.mode == "int8" and reference.backbone.config.max_length == 48
    np.testing.assert_allclose(replies_of(reference), replies_of(began), rtol=1e-6)
    plain = zoo.CausalLM.from_preset(start)
    assert np.abs(replies_of(plain) - replies_of(began)).max() > 1e-4


def test_a_start_model_of_another_config_is_trained_anew(tmp_path, monkeypatch, capsys):
    trained = []

    def train(config):
        trained.append((config.training.seed, config.model.options))
        with RunFolder(config.run_folder, config) as run:
            run.write_text("results.json", "{}")

    monkeypatch.setattr(prefer.finetune, "main", train)
    words = ["--run_folder", str(tmp_path / "run")]
    for more in ([], [], ["--training.seed", "1"], ["--training.learning_rate", "1"], ["--model.options", "{}"]):
        config = parse(prefer.PreferConfig, [*words, *more])
        with RunFolder(config.run_folder, config) as run:
            assert prefer.train_start(config, run) == str(tmp_path / "run" / "start" / "model")
        (tmp_path / "run" / "start" / "notes.txt").write_text(more[-1] if more else "first")
    # what the start model does not depend on changes nothing
    assert trained == [(0, None), (1, None), (0, None), (0, {})]
    assert "start belongs to a run with another config, and begins anew" in capsys.readouterr().out
    # those before are kept, with what somebody has put there
    kept = {path.parent.name: path.read_text() for path in tmp_path.rglob("notes.txt")}
    assert kept == {"start.before_1": "first", "start.before_2": "1", "start.before_3": "1", "start": "{}"}


@pytest.mark.slow
def test_a_run_whose_folder_was_moved_goes_on(start, tmp_path, monkeypatch, capsys):
    pairs = [Preference([user(f"{a} and")], f"yes, {a}", f"no {a}", "-") for a in range(6)]
    monkeypatch.setitem(PREFERENCES, "date_preferences", lambda: Splits(pairs, pairs[:2], pairs[:2]))

    def train(config):
        with RunFolder(config.run_folder, config) as run:
            shutil.copytree(start, run.path / "model")
            run.write_text("results.json", "{}")

    monkeypatch.setattr(prefer.finetune, "main", train)
    words = ["--training.epochs", "1", "--training.samples", "0", "--new_tokens", "2", "--export", "false"]
    for name in ("before", "after"):
        prefer.main(parse(prefer.PreferConfig, [*words, "--run_folder", str(tmp_path / name)]))
        said = capsys.readouterr().out
        assert ("computing the log-likelihoods of the reference" in said) == (name == "before")
        if name == "before":
            (tmp_path / "before").rename(tmp_path / "after")


def test_keys_that_do_not_go_together(start, tmp_path):
    files = ["a.jsonl", "b.jsonl"]
    config = options_of(start, tmp_path, files, **{"method": "orpo", "training.label_smoothing": 0.1})
    with pytest.raises(ConfigError, match=r"training\.label_smoothing must be 0 with method 'orpo', got 0\.1"):
        prefer.main(config)
    with pytest.raises(ConfigError, match=r"model\.start_from must be given with your own data"):
        prefer.main(parse(prefer.PreferConfig, ["--data.train", "a.jsonl"]))
    rows = write(tmp_path, ROWS)
    with pytest.raises(ConfigError, match=r"data\.max_length must be at most the model's max_length=80, got 99"):
        prefer.main(options_of(start, tmp_path, [rows, rows], **{"data.max_length": 99}))
