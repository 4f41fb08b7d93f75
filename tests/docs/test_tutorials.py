"""The pages of docs/start and docs/tutorials: their commands, pictures, tables and notebooks.

Their Python blocks run in test_documentation_code.py.
"""

import configparser
import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest
from page_code import python_blocks
from page_commands import background, commands, config_class, free_port, recipe_words, run

ROOT = Path(__file__).parents[2]
START, TUTORIALS = ROOT / "docs" / "start", ROOT / "docs" / "tutorials"
PAGES = sorted([*START.glob("*.md"), *TUTORIALS.glob("*.md")])
OF_RECIPES = [(page, *found) for page in PAGES for line in commands(page) if (found := recipe_words(line))]
PICTURE = re.compile(r"!\[[^]]*\]\(images/([^)]+)\)")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


# Commands: their recipes understand all of them, and the quick ones run.


@pytest.mark.parametrize(
    ("page", "recipe", "words"), OF_RECIPES, ids=[f"{page.stem}-{recipe}" for page, recipe, _ in OF_RECIPES]
)
def test_command_is_understood(page, recipe, words, monkeypatch):
    from recipes import compare
    from recipes.common.config import parse
    from recipes.common.recipe_modules import config_class_of, find_recipe
    from recipes.common.varied_runs import read_choices

    monkeypatch.chdir(ROOT)  # configurations are named by their path in the project
    if recipe == "benchmark":
        recipe = f"benchmark.{words.pop(0)}"
        parse(find_recipe(f"recipes.{recipe}").Config, words)
        return
    config = parse(config_class(recipe), words)
    if recipe == "compare":
        module = find_recipe(config.recipe)
        choices = read_choices(config.vary)
        compare.make_runs(config, module.__name__, config_class_of(module), Path("runs/none"), choices)


@pytest.mark.slow
@pytest.mark.pages
def test_classify_by_command(folder):
    page = TUTORIALS / "classify.md"
    exec(python_blocks(page)[0].code, {})  # it writes the CSV files
    small = """--training.epochs 1 --model.options '{"num_layers": 1, "hidden_dim": 32}' --export false"""
    run(f"{commands(page)[0]} {small}")
    assert {"errors.tsv", "model", "model_card.md", "plots", "results.json"} <= set(os.listdir("runs/tickets"))
    assert "TF-IDF + logistic regression" in json.loads(Path("runs/tickets/results.json").read_text())


@pytest.mark.slow
@pytest.mark.pages
def test_chat_by_command(folder):
    import zoo
    from zoo.tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer.train(["What is the capital?"] * 2, 280).with_chat_format("plain")
    config = zoo.preset_config("llama_shakespeare", num_layers=1, vocabulary_size=tokenizer.vocabulary_size)
    zoo.CausalLM(zoo.Backbone.from_config(config), tokenizer).save_to_preset("chat")
    (talk,) = [command for command in commands(TUTORIALS / "chat_lora.md") if command.startswith("echo")]
    assert run(talk)


QUICK = """--data.train pairs.tsv --data.validation pairs.tsv --training.epochs 1 --training.warmup_steps 2
 --training.samples 1 --tokenizer.vocabulary_size 40 --model.options '{"num_layers": 1, "hidden_dim": 16}'"""
SERVING = ("starlette", "uvicorn", "openai")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.pages
def test_first_model_by_commands(folder):
    for name in SERVING:
        pytest.importorskip(name, reason="the extras serve and test are not installed")
    pairs = [f"{day} may {year}\t{year}-05-{day}" for day in range(10, 28) for year in (1976, 1999, 2003, 2011)]
    Path("pairs.tsv").write_text("\n".join(pairs) + "\n")
    train, generate, serve, ask = commands(START / "first_model.md")
    run(f"{train} {' '.join(QUICK.splitlines())}")
    shown = re.findall(r"^\| (`.*?) \|", (START / "first_model.md").read_text("utf-8"), re.MULTILINE)
    for name in re.findall(r"`([^`]+)`", " ".join(shown)):
        assert Path("runs/dates", name).exists(), f"the page names {name}"
    assert [json.loads(line)["text"] for line in run(generate).splitlines()] == [
        "thursday, 27 may 1976",
        "am 3. Juni 2001",
    ]
    port = free_port()
    with background(serve.replace(" &", f" --port {port} &")):
        answer = json.loads(run(ask.replace("8501", port)))
    assert list(answer) == ["predictions"] and len(answer["predictions"]) == 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.pages
def test_serve_by_commands(folder, capsys):
    """With models of the page's names that have not been trained."""
    for name in SERVING:
        pytest.importorskip(name, reason="the extras serve and test are not installed")
    import zoo
    from zoo.tokenizers import SentencePieceTokenizer

    page = TUTORIALS / "serve.md"
    texts = ["the courier is late", "the cat sat on the mat", "the fox met the dog"]
    tokenizer = SentencePieceTokenizer.train(texts, vocabulary_size=22)
    sizes = {"vocabulary_size": tokenizer.vocabulary_size, "num_layers": 1, "hidden_dim": 32, "max_length": 64}
    encoder, decoder = (
        zoo.Backbone.from_config(zoo.preset_config(name, **sizes)) for name in ("encoder_tiny", "llama_tiny")
    )
    zoo.TextClassifier(encoder, tokenizer, labels=["billing", "delivery"]).export(
        zoo.export.new_version("models/tickets"), examples=texts[:1]
    )
    zoo.CausalLM(decoder, tokenizer).export(
        zoo.export.new_version("models/stories"), max_new_tokens=16, examples=texts[:1]
    )
    serve, *asks = (line for line in commands(page) if not line.startswith("pip"))
    (program,) = re.findall(r"^```py\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    port = free_port()
    with background(serve.replace(" &", f" --port {port} &")):
        labels, stories, status = (json.loads(run(ask.replace("8501", port))) for ask in asks)
        (row,) = labels["predictions"]
        assert row["label"] in ("billing", "delivery") and len(row["probabilities"]) == 2
        assert len(stories["predictions"]) == 2
        assert [each["version"] for each in status["model_version_status"]] == ["1"]
        exec(compile(program.replace("8501", port), page.name, "exec"), {"__name__": "documentation"})
        assert capsys.readouterr().out.strip()
        shutil.copytree("models/tickets/1", "models/tickets/2")
        for _ in range(120):
            status = json.loads(run(asks[-1].replace("8501", port)))
            states = {each["version"]: each["state"] for each in status["model_version_status"]}
            if states.get("2") == "AVAILABLE":
                break
            time.sleep(0.5)
        assert states["2"] == "AVAILABLE"


# Pictures.


@pytest.mark.pages
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_makes_its_pictures(page):
    code = "\n".join(block.code for block in python_blocks(page))
    script = TUTORIALS / f"make_{page.stem}_picture.py"  # takes a picture in a browser
    if script.is_file():
        code += script.read_text(encoding="utf-8")
    for picture in PICTURE.findall(page.read_text(encoding="utf-8")):
        assert f'"{picture}"' in code, f"{page.name} shows {picture}, which neither its code nor its script writes"
        assert picture.startswith(f"{page.stem}_"), "by this docs/make_tutorial_pictures.py finds the page"


def test_each_picture_is_shown():
    shown = {name for page in PAGES for name in PICTURE.findall(page.read_text(encoding="utf-8"))}
    assert shown == {path.name for path in (TUTORIALS / "images").iterdir()}


# Tables.


@pytest.fixture(scope="module")
def setup_cfg():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def test_install_names_all_extras_and_versions(setup_cfg):
    text = (START / "install.md").read_text(encoding="utf-8")
    table = text[text.index("| extra |") :].split("\n\n")[0]
    extras = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}
    assert set(setup_cfg["options.extras_require"]) <= extras
    versions = re.findall(r"Python :: (3\.\d+)", setup_cfg["metadata"]["classifiers"])
    assert f"Python {', '.join(versions[:-1])} or {versions[-1]}" in text


def test_choosing_names_presets_that_there_are():
    import zoo

    presets = zoo.list_presets()
    text = (START / "choosing.md").read_text(encoding="utf-8")
    table = text[text.index("| you want | task |") :].split("\n\n")[0].splitlines()[2:]
    assert len(table) == 7
    for row in table:
        _, task, own, published = (re.findall(r"`([\w.]+)`", cell) for cell in row.strip("|").split("|"))
        kind = getattr(zoo, task[0])
        for name in own + published:
            assert presets[name].config.architecture in kind.architectures, f"{name} in {row}"
        assert all(presets[name].weights is None for name in own), row
        assert all(presets[name].weights is not None for name in published), row
