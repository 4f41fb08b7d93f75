from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipes.common.config import differences, parse, save, setting
from recipes.common.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Data:
    """Where the text comes from."""

    train: list[str] = setting([], "Training files, 100 % of them.")
    max_length: int = setting(64, "Longest text.")
    on_error: Literal["raise", "skip"] = setting("raise", "Policy.")
    share: float | None = setting(None, "Share of the data.")


@dataclasses.dataclass(frozen=True)
class Config:
    """Learn something.

    Not shown.
    """

    data: Data = Data(max_length=128)
    seed: int = setting(1, "Seed of everything.")
    rate: float = setting(0.001, "Peak learning rate.")
    options: dict[str, Any] = setting({}, "Choices.")
    shuffle: bool = setting(True, "Whether to shuffle.")
    language: str = setting("en", "Language.")
    lengths: tuple[int, ...] | None = setting(None, "Lengths.")
    verbose: int = setting(1, "How much to print.", may_change=True)

    def __post_init__(self):
        if self.seed < 0:
            raise ConfigError(f"seed must be at least 0, got {self.seed}")


@dataclasses.dataclass(frozen=True)
class Bounded:
    """Bounds."""

    seed: int = setting(1, "Seed.", least=0, most=9)
    rate: float | None = setting(0.1, "Rate.", above=0, below=1)
    sizes: list[int] = setting([1], "Sizes.", least=1)
    patience: int = setting(1, "Patience.")
    tokens_per_batch: int = setting(1, "Tokens.")


@dataclasses.dataclass(frozen=True)
class Derived(Bounded):
    """Another default."""

    seed: int = setting(2, "Seed.")


@dataclasses.dataclass(frozen=True)
class Export:
    """Export."""

    model: str = setting(help="Folder of the model.")


@dataclasses.dataclass(frozen=True)
class Several:
    """Words of each kind."""

    models: list[str] = setting(help="Models.", words="first")
    vary: list[str] = setting([], "Choices.", words="again")
    settings: dict[str, list[str]] = setting({}, "Keys of another class.", words="rest")


def parse_yaml(tmp_path: Path, text: str, *arguments: str, config_class=Config):
    file = tmp_path / "c.yaml"
    file.write_text(text, encoding="utf-8")
    return parse(config_class, ["--config", str(file), *arguments])


def test_no_argument_gives_the_defaults_of_the_outer_class():
    assert parse(Config, []) == Config()
    assert parse(Config, []).data.max_length == 128


def test_command_line_overrides_file_and_file_overrides_default(tmp_path):
    text = "# a comment\nseed: 5\nrate: 5e-4\ndata:\n  train: [a.en, a.de]\n  max_length: 10\n"
    config = parse_yaml(tmp_path, text, "--data.max_length", "20", "--shuffle=false")
    expected = Config(Data(["a.en", "a.de"], 20), seed=5, rate=0.0005, shuffle=False)
    assert config == expected
    assert isinstance(config.rate, float)


def test_later_file_wins(tmp_path):
    (tmp_path / "a.yaml").write_text("seed: 1\nlanguage: fr\n")
    (tmp_path / "b.yaml").write_text("seed: 2\n")
    config = parse(Config, ["--config", str(tmp_path / "a.yaml"), f"--config={tmp_path / 'b.yaml'}"])
    assert (config.seed, config.language) == (2, "fr")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--data.train", "a", "b"], ["a", "b"]),
        (["--data.train", "2016"], ["2016"]),
        (["--data.train=a"], ["a"]),
        (["--data.train"], []),
        (["--data.train", "x: y", "null", "-"], ["x: y", "null", "-"]),
    ],
)
def test_list_on_the_command_line(words, expected):
    assert parse(Config, words).data.train == expected


def test_typed_values_on_the_command_line():
    config = parse(Config, ["--lengths", "8", "16", "--data.share", "0.5", "--language", "no", "--seed", "3"])
    assert config.lengths == (8, 16)
    assert config.data.share == 0.5
    assert config.language == "no"
    assert parse(Config, ["--lengths", "null", "--data.share", "null"]) == Config()
    # A negative number is a value, not a key.
    assert parse(Config, ["--rate", "-1.5"]).rate == -1.5


def test_entries_of_dicts_on_the_command_line(tmp_path):
    text = "options: {position: {kind: rotary, base: 1}, depth: 2}"
    words = ["--options.position.kind", "alibi", "--options.new.deep=null", "--options.depth", "3"]
    options = parse_yaml(tmp_path, text, *words).options
    assert options == {"position": {"kind": "alibi", "base": 1}, "depth": 3, "new": {"deep": None}}
    assert parse(Config, []).options == {}
    with pytest.raises(ConfigError, match=r"options.depth.x: depth is 2, which has no entries"):
        parse_yaml(tmp_path, text, "--options.depth.x", "1")
    with pytest.raises(ConfigError, match=r"--options.depth takes one value .*, got \['1', '2'\]"):
        parse(Config, ["--options.depth", "1", "2"])


def test_words_before_the_keys_of_each_time_and_of_unknown_keys():
    words = ["a", "b", "--vary", "x=1", "--config", "c.yaml", "--lr", "1", "--vary=y=2", "z=3"]
    config = parse(Several, words)
    assert config == Several(["a", "b"], ["x=1", "y=2", "z=3"], {"config": ["c.yaml"], "lr": ["1"]})
    assert parse(Several, ["a", "--settings.lr", "1", "2"]).settings == {"lr": ["1", "2"]}
    given = {"options.depth": [1, "2"], "data.train": ["a"], "data.share": None}
    config = parse(Config, ["--options.x", "1", "--data.share", "0.5"], values=given)
    assert (config.options, config.data.train, config.data.share) == ({"x": 1, "depth": [1, "2"]}, ["a"], None)
    with pytest.raises(ConfigError, match="unknown key data.trian; did you mean data.train"):
        parse(Config, [], values={"data.trian": ["a"]})
    with pytest.raises(ConfigError, match="given: data.train: value 1 is not allowed; allowed: a list of str"):
        parse(Config, [], values={"data.train": 1})
    with pytest.raises(ConfigError, match="no value given for: --models"):
        parse(Several, [])


def test_norwegian_is_a_language_in_yaml(tmp_path):
    assert parse_yaml(tmp_path, "language: no\n").language == "no"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data.trian", "a"], r"unknown key --data\.trian; did you mean --data\.train\?"),
        (["--max_length", "3"], r"unknown key --max_length; did you mean --data\.max_length\?"),
        (["--zzzz", "3"], r"unknown key --zzzz; --help lists"),
        (["--see", "3"], r"unknown key --see; did you mean --seed\?"),
        (["--data", "x"], r"--data is a group of keys.*--data\.train, --data\.max_length"),
        (["--data.max_length", "x"], r"data\.max_length: value 'x' is not allowed; allowed: int"),
        (["--data.max_length", "1.5"], r"data\.max_length: value 1\.5 is not allowed; allowed: int"),
        (["--data.on_error", "stop"], r"data\.on_error: value 'stop' is not allowed; allowed: 'raise' or 'skip'"),
        (["--data.share", "half"], r"data\.share: value 'half' is not allowed; allowed: float or null"),
        (["--options", "null"], r"options: value null is not allowed; allowed: dict\[str, "),
        (["--shuffle", "2"], r"shuffle: value 2 is not allowed; allowed: true or false"),
        (["--lengths", "1", "x"], r"lengths: value \[1, 'x'\] is not allowed; allowed: a list of int or null"),
        (["--seed", "1", "2"], r"--seed takes one value \(int\), got \['1', '2'\]"),
        (["--seed"], r"--seed takes one value"),
        (["word"], r"unexpected word 'word'"),
        (["--config"], r"--config takes one file"),
        (["--config", "does_not_exist.yaml"], r"cannot read the config file 'does_not_exist\.yaml'"),
        (["--seed", "-3"], r"seed must be at least 0, got -3"),
    ],
)
def test_error_on_the_command_line(arguments, message):
    with pytest.raises(ConfigError, match=message):
        parse(Config, arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "seed: 1\ndata:\n  max_lenght: 3\n",
            r"c\.yaml:3: unknown key data\.max_lenght; did you mean data\.max_length",
        ),
        ("data:\n  max_length: long\n", r"c\.yaml:2: data\.max_length: value 'long' is not allowed; allowed: int"),
        ("data:\n  train: a.en\n", r"c\.yaml:2: data\.train: value 'a\.en' is not allowed; allowed: a list of str"),
        ("data:\n  train: [1]\n", r"c\.yaml:2: data\.train: value \[1\] is not allowed"),
        ("shuffle: 1\n", r"c\.yaml:1: shuffle: value 1 is not allowed; allowed: true or false"),
        ("seed: true\n", r"c\.yaml:1: seed: value true is not allowed; allowed: int"),
        ("seed:\n", r"c\.yaml:1: seed: value null is not allowed; allowed: int"),
        ("seed: 1\n\nseed: 2\n", r"c\.yaml:3: key seed is given twice, first at .*c\.yaml:1"),
        ("data: 3\n", r"c\.yaml:1: data must hold keys"),
        ("- seed\n", r"c\.yaml:1: a config file must hold keys"),
        ("seed: [\n", r"c\.yaml:2 is not valid YAML"),
        ("seed: 1\n---\nseed: 2\n", r"c\.yaml:2 is not valid YAML"),
    ],
)
def test_error_in_a_file(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        parse_yaml(tmp_path, text)


def test_undecodable_file(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_bytes(b"language: \xff\n")
    with pytest.raises(ConfigError, match="cannot read the config file"):
        parse(Config, ["--config", str(file)])


def test_empty_file_changes_nothing(tmp_path):
    assert parse_yaml(tmp_path, "# only a comment\n") == Config()


def test_required_key():
    with pytest.raises(ConfigError, match="no value given for: --model"):
        parse(Export, [])
    assert parse(Export, ["--model", "m"]).model == "m"


def test_parsed_lists_are_not_shared():
    parse(Config, []).data.train.append("x")
    assert parse(Config, []).data.train == []


def test_help_lists_every_key_with_text_and_default(capsys):
    with pytest.raises(SystemExit) as stop:
        parse(Config, ["--seed", "2", "--help"], prog="python -m recipes.learn")
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("usage: python -m recipes.learn [--config FILE.yaml] [--key value ...] Learn something.")
    assert "Not shown" not in text
    assert "--data.train VALUE ... Training files, 100 % of them. (type: list[str], default: [])" in text
    assert "data: Where the text comes from." in text
    assert "--data.max_length VALUE Longest text. (type: int, default: 128)" in text
    assert "--data.on_error VALUE Policy. (type: Literal['raise', 'skip'], default: raise)" in text
    assert "--data.share VALUE Share of the data. (type: float | null, default: null)" in text
    with pytest.raises(SystemExit):
        parse(Export, ["-h"])
    assert "--model VALUE Folder of the model. (required, type: str)" in " ".join(capsys.readouterr().out.split())


def test_differences_and_harmless_keys():
    old = Config()
    new = dataclasses.replace(old, seed=2, verbose=0, data=dataclasses.replace(old.data, train=["a"]))
    assert differences(old, new) == {"data.train": ([], ["a"]), "seed": (1, 2), "verbose": (1, 0)}
    assert differences(old, Config()) == {}
    assert differences(old, new, may_change=False) == {"data.train": ([], ["a"]), "seed": (1, 2)}
    with pytest.raises(TypeError, match="Data"):
        differences(old, Data())


# Words that one YAML version or the other would read as something else than text, and any others.
_texts = st.sampled_from(["no", "1e3", "5e-4", "1_000", "null", "~", "", "true", "2001-01-01", "0o17", "1:30", " a "])


# No deadline: the machine may be busy.
@settings(deadline=None, max_examples=60)
@given(
    language=_texts | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    train=st.lists(_texts, max_size=3),
    rate=st.floats(allow_nan=False, allow_infinity=False),
    seed=st.integers(0, 2**63),
)
def test_saved_config_reads_back_equal(tmp_path_factory, language, train, rate, seed):
    config = Config(Data(train=train), seed=seed, rate=rate, language=language, lengths=(3, 4))
    file = tmp_path_factory.mktemp("config") / "config.yaml"
    save(config, file)
    assert parse(Config, ["--config", str(file)]) == config


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "-1"], "seed must be at least 0 and at most 9, got -1"),
        (["--seed", "10"], "seed must be at least 0 and at most 9, got 10"),
        (["--rate", "0"], "rate must be above 0 and below 1, got 0"),
        (["--rate", ".nan"], "rate"),
        (["--rate", "1e999"], "rate must be above 0 and below 1, got inf"),
        (["--sizes", "2", "0"], r"sizes must be at least 1, got \[2, 0\]"),
        (["--patience", "9" * 5000], "patience is not valid YAML: Exceeds the limit"),
        (["--batch_tokens", "3"], r"unknown key --batch_tokens; did you mean --tokens_per_batch\?"),
    ],
)
def test_numbers_out_of_bounds_name_the_key(arguments, message):
    for kind in (Bounded, Derived):
        with pytest.raises(ConfigError, match=message) as error:
            parse(kind, arguments)
        assert "\n" not in str(error.value) and len(str(error.value)) < 400


def test_bounds_are_inherited_and_null_is_no_number():
    assert parse(Derived, []).seed == 2
    assert parse(Derived, ["--rate", "null"]).rate is None


@pytest.mark.parametrize(
    "text",
    [
        "language: a\0b\n",
        'language: "a\\0b"\n',
        'language: "\\ud800"\n',
        'options: {a: ["\\0"]}\n',
        "seed: 2001-99-99\n",
        "seed: !!timestamp 2001-99-99\n",
        "seed: !!timestamp x\n",
        "seed: !!int x\n",
        "seed: !!bool x\n",
        "seed: !!float x\n",
        "seed: !!binary x\n",
        "seed: !!python/object:os.system x\n",
        "seed: " + "9" * 5000 + "\n",
        "rate: 1e999\n",
        "rate: .nan\n",
        "seed: 0x1\n",
        "seed: 1:30\n",
        "seed: '5'\n",
        "options: " + "[" * 5000 + "\n",
        "options: " + "{a: " * 5000 + "\n",
        "options: {a: 1, a: 2}\n",
        "options: {[1]: 2}\n",
        "options: [1]\n",
        "? [a]\n: 1\n",
        "? {a: b}\n: 1\n",
        "options: &a {b: *a}\n",
        "options: {a: &a [1, 1], b: [*a, *a]}\n",
        "\t\n",
        "seed: @\n",
        "%YAML 9.9\n---\nseed: 1\n",
        "seed: 'a\n",
        "\x01",
        "\ufffe",
    ],
)
def test_odd_yaml_is_one_line_with_the_file(tmp_path, text):
    with pytest.raises(ConfigError) as error:
        parse_yaml(tmp_path, text)
    assert "\n" not in str(error.value) and len(str(error.value)) < 600
    assert "c.yaml" in str(error.value) or any(key in str(error.value) for key in ("language", "options", "rate"))


def test_large_file(tmp_path):
    (tmp_path / "c.yaml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(ConfigError, match="it has more than 1,048,576 bytes"):
        parse(Config, ["--config", str(tmp_path / "c.yaml")])
