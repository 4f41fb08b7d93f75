"""What is installed with what: core, extras, the command `zoo`, and errors where a part is missing."""

import ast
import configparser
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import zoo
from recipes.command.lists import configs, presets
from recipes.command.lists import recipes as all_recipes
from zoo.extras import EXTRAS

ROOT = Path(__file__).parents[1]
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
# packages whose modules have other names
MODULES = {
    "pyyaml": "yaml",
    "protobuf": "google",
    "rouge_score": "rouge_score",
    "markdown_it_py": "markdown_it",
    "scikit_learn": "sklearn",
    "tensorflow_serving_api": "tensorflow_serving",
    "keras_nlp": "keras_nlp",
    "tensorflow_text": "tensorflow_text",
    "ai_edge_litert": "ai_edge_litert",
    "opentelemetry_sdk": "opentelemetry",
    "opentelemetry_exporter_otlp_proto_http": "opentelemetry",
}
# what comes with a package of the core or of an extra and is used beside it
COMPANIONS = {"keras_hub": "keras_nlp", "grpc": "tensorflow_serving", "psutil": "locust", "portpicker": "jax"}
# other libraries that benchmarks compare with, and backends, which users install themselves
NEVER_REQUIRED = {"torch", "transformers", "peft", "libtpu", "pytest"}
PACKAGES = {"layers", "zoo", "recipes", "run_model"}


def modules_of(extra=None):
    """The modules that the core, or an extra without those that it names, installs."""
    lines = SETUP["options"]["install_requires"] if extra is None else SETUP["options.extras_require"][extra]
    names = [re.match(r"[\w-]+", line)[0].lower().replace("-", "_") for line in lines.split("\n") if line]
    return {MODULES.get(name, name) for name in names if name != "keras_transformer_zoo"}


def third_party(package, everywhere=True):
    """`{module: first file that imports it}`, without the standard library."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        waiting = [ast.parse(path.read_text(encoding="utf-8"))]
        while waiting:
            node = waiting.pop()
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for top in {name.split(".")[0] for name in names} - sys.stdlib_module_names - PACKAGES:
                found.setdefault(COMPANIONS.get(top, top), path)
            if everywhere or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
                waiting += [] if is_for_types and not everywhere else ast.iter_child_nodes(node)
    return found


def test_table_of_extras_is_that_of_setup():
    for extra, modules in EXTRAS.items():
        listed = modules_of(extra)
        if extra == "benchmark":
            listed |= modules_of("corpus") | modules_of("datasets")
        # without it shells complete nothing, and all else works
        assert set(modules) == listed - {"argcomplete"}, extra


def test_layers_need_keras_and_numpy():
    assert set(third_party("layers", everywhere=False)) == {"keras", "numpy"}


def test_core_is_what_zoo_imports():
    core, imported = modules_of(), third_party("zoo", everywhere=False)
    # a script that runs beside an export, without this package, and one that runs in a process of its own
    runs_alone = {"onnxruntime", "onnxruntime_extensions"}
    serves = {name for name, path in imported.items() if "serving" in path.parts} & modules_of("serve")
    assert set(imported) - runs_alone - serves <= core, {name: imported[name] for name in set(imported) - core}


def test_everything_imported_is_required_somewhere():
    core, all_extras = modules_of(), {extra: modules_of(extra) for extra in SETUP["options.extras_require"]}
    of_zoo = ("gguf", "litert", "onnx", "openvino", "openvino_genai", "serve", "structured", "trace")
    formats = set().union(*(all_extras[extra] for extra in of_zoo))
    plots_and_calibration = {"matplotlib", "scipy"}
    imported = third_party("zoo")
    unknown = set(imported) - core - formats - plots_and_calibration - NEVER_REQUIRED - all_extras["jax"]
    assert not unknown, {name: imported[name] for name in unknown}
    imported = third_party("recipes")
    extras = set().union(*(modules_of(extra) for extra in EXTRAS))
    unknown = set(imported) - core - extras - formats - NEVER_REQUIRED
    assert not unknown, {name: imported[name] for name in unknown}
    # and nothing of the core is there for recipes alone
    assert core - set(third_party("zoo")) - set(third_party("layers")) <= {"keras_nlp", "protobuf"}


def test_versions():
    import keras

    assert "keras>=3.15,<4" in SETUP["options"]["install_requires"].split()
    assert int(keras.__version__.split(".")[0]) == 3
    assert SETUP["metadata"]["version"] == "attr: zoo.version.__version__"
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {zoo.__version__}\n" in citation
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    versions = re.findall(r"Python :: (3\.\d+)", SETUP["metadata"]["classifiers"])
    assert len(versions) == 3 and all(f'"{version}"' in workflow for version in versions)


def run(*words, folder, code=None, **environment):
    """The command `zoo` in a process of its own, which sees this checkout alone."""
    command = [sys.executable, "-P", *(("-c", code) if code else ("-m", "recipes")), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)


def output_of(*words, **options):
    result = run(*words, **options)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


QUICK = """
import sys
sys.argv = {words}
from recipes.__main__ import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
loaded = [name for name in sys.modules if name.startswith(("tensorflow.", "keras.", "zoo.", "jax."))]
loaded = [name for name in loaded if name not in ("zoo.extras", "zoo.version")]
assert not loaded, loaded
"""


@pytest.mark.parametrize(
    "words",
    [
        *("--help", "recipes", "configs", "config copy --help", "translate --help"),
        *("presets --help", "presets", "presets gpt2"),
    ],
)
def test_help_loads_no_tensorflow(words, tmp_path):
    output = output_of(code=QUICK.format(words=["zoo", *words.split()]), folder=tmp_path)
    if words.endswith("--help"):
        assert output.startswith(f"usage: zoo {words.removesuffix('--help')}".strip())


def test_lists(tmp_path):
    lines = output_of("recipes", folder=tmp_path).splitlines()
    assert [line.split()[0] for line in lines] == list(all_recipes())
    lines = output_of("configs", folder=tmp_path).splitlines()
    assert [line.split()[0] for line in lines] == list(configs()) and "multi30k_tiny (translate)" in "\n".join(lines)


@pytest.mark.parametrize("words", ["recipes", "configs", "presets", "translate --help"])
def test_a_reader_that_leaves_is_no_error(words, tmp_path):
    """As `head -1` does."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-P", "-m", "recipes", *words.split()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env=environment, cwd=tmp_path)
    os.close(writing)
    assert (result.returncode, result.stderr) == (1, b"")


def test_presets(tmp_path, capsys):
    from recipes.__main__ import main

    main(["presets", "gpt2_small", "t5_small"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["gpt2_small", "decoder", "124,439,808"],
        ["t5_small", "encoder_decoder", "60,506,624"],
        ["flan_t5_small", "encoder_decoder", "76,961,152"],
    ]
    assert lines[0].endswith("  GPT-2 small.")
    with pytest.raises(SystemExit) as stop:
        main(["presets", "bret"])
    said = "zoo presets: error: no preset has bret in its name; `zoo presets` lists all\n"
    assert (stop.value.code, capsys.readouterr().err) == (2, said)


def test_presets_are_those_of_python():
    def kind(config):
        return config.architecture if isinstance(config, zoo.TransformerConfig) else "recurrent"

    listed = zoo.list_presets().items()
    assert presets() == {name: (kind(each.config), each.parameters, each.description) for name, each in listed}


def test_copy_of_a_config(tmp_path, monkeypatch, capsys):
    from recipes.__main__ import main

    monkeypatch.chdir(tmp_path)
    main(["config", "copy", "multi30k_tiny", "my.yaml"])
    assert capsys.readouterr().out == "my.yaml: run it with: zoo translate --config my.yaml\n"
    text = (tmp_path / "my.yaml").read_text()
    assert "#   python -m recipes.translate --config my.yaml\n" in text
    original = configs()["multi30k_tiny"].path.read_text()
    assert text == original.replace("recipes/configs/multi30k_tiny.yaml", "my.yaml")
    main(["config", "copy", "multi30k_tiny", "of mine.yaml"])
    assert capsys.readouterr().out.endswith("run it with: zoo translate --config 'of mine.yaml'\n")
    assert "recipes.translate --config 'of mine.yaml'\n" in (tmp_path / "of mine.yaml").read_text()
    with pytest.raises(SystemExit) as stop:
        main(["config", "copy", "multi30k_tiny", "my.yaml"])
    said = "zoo config copy: error: FILE.yaml must not exist, got 'my.yaml', which does\n"
    assert (stop.value.code, capsys.readouterr().err) == (2, said)
    with pytest.raises(SystemExit):
        main(["config", "copy", "multi30k_tny", "other.yaml"])
    assert "'multi30k_tny', did you mean 'multi30k_tiny'? known: ag_news, " in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["config", "copy", "multi30k_tiny", "none/my.yaml"])
    assert capsys.readouterr().err == "zoo config copy: error: FILE.yaml: there is no folder 'none'\n"


def test_config_by_its_name(tmp_path, monkeypatch):
    from recipes.common.config import parse
    from recipes.common.errors import ConfigError
    from recipes.translate import TranslateConfig

    monkeypatch.chdir(tmp_path)
    assert parse(TranslateConfig, ["--config", "multi30k_tiny"]).run_folder == "runs/multi30k_tiny"
    (tmp_path / "multi30k_tiny").write_text("run_folder: mine")
    assert parse(TranslateConfig, ["--config", "multi30k_tiny"]).run_folder == "mine"
    with pytest.raises(ConfigError, match="file 'multi30k_tny'.*; did you mean 'multi30k_tiny'?"):
        parse(TranslateConfig, ["--config", "multi30k_tny"])
    with pytest.raises(ConfigError, match="cannot read .* 'q.yaml': there is .*; `zoo configs` lists them"):
        parse(TranslateConfig, ["--config", "q.yaml"])


def test_run_names_its_own_command(tmp_path):
    result = run("translate", "--training.epoch", "3", folder=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith("zoo translate: error: unknown key --training.epoch; did you mean")
    result = run("launch", "--processes", "1", "recipes.translate", folder=tmp_path)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == "zoo launch: error: --processes must be at least 2, got 1"
    result = run("benchmark", folder=tmp_path)
    assert result.returncode == 0 and result.stderr.startswith("zoo benchmark <name> [--key value ...]")
    result = run("transate", folder=tmp_path)
    assert result.returncode == 2 and "'transate', did you mean 'translate'? known: recipes, configs, " in result.stderr


def test_the_benchmarks_are_of_a_checkout(tmp_path):
    """The wheel has none; `.ci/package` installs it."""
    from setuptools import find_packages

    found = SETUP["options.packages.find"]
    include, exclude = (found[name].split("\n")[1:] for name in ("include", "exclude"))
    packages = find_packages(ROOT, include=include, exclude=exclude)
    assert "recipes.command" in packages
    assert not [name for name in packages if name.startswith("recipes.benchmark")]
    code = "import sys, recipes.command.lists as lists\nnames = lists.recipes()\ndel names['benchmark']\n"
    code += "lists.recipes = lambda: names\nsys.argv = ['zoo', 'benchmark', 'start']\n"
    result = run(folder=tmp_path, code=code + "from recipes.__main__ import main\nmain()")
    assert result.returncode == 2
    assert "the benchmarks are no part of the installed package" in result.stderr


WITHOUT = "import sys; sys.modules.update(dict.fromkeys({modules}))\n"


def test_without_the_extra_of_recipes(tmp_path):
    """The command lists and copies; a recipe says in one line what it lacks, and how to get it."""
    blocked = WITHOUT.format(modules=["pooch", "sacrebleu"])
    command = blocked + "sys.argv = ['zoo'] + sys.argv[1:]\nfrom recipes.__main__ import main\nmain()"
    said = 'A recipe needs pooch, sacrebleu, of the extra recipes: pip install "keras-transformer-zoo[recipes]"'
    result = run("translate", folder=tmp_path, code=command)
    assert (result.returncode, result.stderr) == (2, f"zoo: error: {said}\n")
    assert "translate" in output_of("recipes", folder=tmp_path, code=command)
    assert "multi30k_tiny" in output_of("configs", folder=tmp_path, code=command)
    result = run(folder=tmp_path, code=blocked + "import recipes.tag")
    assert result.stderr.strip().splitlines()[-1] == f"zoo.extras.MissingExtraError: {said}"
    command = (
        blocked
        + "sys.argv = sys.argv[1:]\nimport runpy\nrunpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
    )
    for recipe in ("translate", "serve"):
        result = run(f"recipes.{recipe}", folder=tmp_path, code=command)
        assert (result.returncode, result.stderr) == (2, f"recipes.{recipe}: error: {said}\n")


def test_without_the_extra_of_serving(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"")
    blocked = WITHOUT.format(modules=["uvicorn", "msgpack"])
    command = blocked + "sys.argv = ['zoo'] + sys.argv[1:]\nfrom recipes.__main__ import main\nmain()"
    result = run("serve", str(tmp_path), folder=tmp_path, code=command)
    said = 'Serving needs msgpack, uvicorn, of the extra serve: pip install "keras-transformer-zoo[serve]"'
    assert (result.returncode, result.stderr.splitlines()[-1]) == (2, f"zoo serve: error: {said}")


def test_plots_and_calibration_name_their_extra(monkeypatch, tmp_path):
    import numpy as np

    from zoo.inspect import plot_attention
    from zoo.training.calibration import fit_temperature

    extra = re.escape('pip install "keras-transformer-zoo[recipes]"')
    for name in ("matplotlib", "matplotlib.figure", "scipy", "scipy.optimize", "scipy.special"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=f"Plots need matplotlib: {extra}"):
        plot_attention(np.eye(1), ["a"], ["a"], tmp_path / "a.png")
    with pytest.raises(ImportError, match=f"Calibration needs scipy: {extra}"):
        fit_temperature(np.array([[9.0, 0.0]] * 4), np.array([0, 0, 0, 1]))


WITHOUT_TENSORFLOW_TEXT = """
import keras
import numpy as np
import zoo

keras.utils.set_random_seed(0)
config = zoo.TransformerConfig("decoder", 20, hidden_dim=8, num_layers=1, max_length=16)
model = zoo.CausalLM(zoo.Backbone.from_config(config))
ids = np.arange(2, 12).reshape(2, 5)
rows = {"token_ids": ids, "padding_mask": np.ones_like(ids, bool)}
model.compile("adam")
model.fit(rows, ids, verbose=0)
written = model.generate_tokens(ids.tolist(), max_length=8, jit_compile=False)
np.testing.assert_array_equal(written["token_ids"][:, 0], np.asarray(model(rows))[:, -1].argmax(-1))
assert written["lengths"].tolist() == [3, 3]
model.save_to_preset("saved")
loaded = zoo.CausalLM.from_preset("saved")
np.testing.assert_allclose(loaded(rows), model(rows), atol=1e-6)
try:
    zoo.tokenizers.WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"], lowercase=False)("a")
except ImportError as error:
    print(error)
"""


def test_token_ids_need_no_tensorflow_text(tmp_path):
    blocked = WITHOUT.format(modules=["tensorflow_text", "keras_hub", "keras_nlp", "matplotlib", "scipy", "sklearn"])
    said = output_of(folder=tmp_path, code=blocked + WITHOUT_TENSORFLOW_TEXT)
    assert "pip install tensorflow tensorflow-text (on Windows in WSL 2). Token ids need neither." in said


COMPLETE = """
import os, sys
os.environ["COMP_LINE"], os.environ["COMP_POINT"] = sys.argv[1], str(len(sys.argv[1]))
os.environ.update(_ARGCOMPLETE="1", _ARGCOMPLETE_STDOUT_FILENAME=sys.argv[2])
os.environ.update(_ARGCOMPLETE_IFS="\\n", _ARGCOMPLETE_SHELL="bash")
from recipes.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("zoo rec", ["recipes"]),
        ("zoo tran", ["translate"]),
        ("zoo config copy multi30k_ti", ["multi30k_tiny"]),
        ("zoo translate --training.learning_", ["--training.learning_rate"]),
        ("zoo translate --config multi30k_ti", ["multi30k_tiny"]),
        ("zoo translate --tokenizer.kind ", ["bpe", "unigram"]),
        ("zoo translate --export ", ["true", "false"]),
        ("zoo translate --training.optimizer ada", ["adadelta", "adafactor", "adagrad", "adam", "adamax", "adamw"]),
        ("zoo translate --model.preset transformer_", ["transformer_tiny", "transformer_base", "transformer_big"]),
        ("zoo inspect --task Q", ["QuestionAnswerer"]),
        ("zoo inspect a", ["a.tsv"]),
        ("zoo presets minilm_l6 gpt2_s", ["gpt2_small"]),
        ("zoo translate --training.epochs ", []),
        ("zoo translate --data.target_language ", []),
        ("zoo translate --data.train ", ["a.tsv", "of_mine/"]),
        ("zoo presets minilm", ["minilm_l6"]),
        ("zoo benchmark la", ["layers"]),
        ("zoo benchmark start --rou", ["--rounds"]),
        ("zoo benchmark accelerator --parts gp", ["gpt2"]),
        ("zoo launch --processes 2 recipes.langu", ["recipes.language_model"]),
        # nothing is launched
        ("zoo launch --processes 2 recipes.language_model a", []),
    ],
)
def test_completion(line, expected, tmp_path):
    pytest.importorskip("argcomplete", reason="an old environment")
    answer, folder = tmp_path / "answer", tmp_path / "folder"
    (folder / "of_mine").mkdir(parents=True)
    (folder / "a.tsv").touch()
    result = run(line, str(answer), folder=folder, code=COMPLETE)
    assert result.returncode == 0, result.stderr
    assert sorted(word.strip() for word in answer.read_text().splitlines()) == sorted(expected)


def test_packages_are_typed():
    for package in ("layers", "zoo", "recipes"):
        (folder,) = importlib.util.find_spec(package).submodule_search_locations
        assert Path(folder, "py.typed").is_file()
        assert "py.typed" in SETUP["options.package_data"][package].split()
