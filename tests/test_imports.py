"""Which package may import which, and that each imports where it should."""

import ast
import importlib
import importlib.util
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from recipes import APART, LAZY

ROOT = Path(__file__).parents[1]
PACKAGES = ("layers", "zoo", "recipes")
# what may be imported below each package; the standard library always may
ALLOWED = {
    "layers": {"layers", "keras", "numpy"},
    "zoo": {"layers", "zoo"},
    "recipes": {"layers", "zoo", "recipes"},
}


def modules(package):
    """`{dotted name: file}`."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path, everywhere=True):
    """Dotted names that a file imports: all of them, or only those that run when it is imported itself."""
    names, waiting = [], [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        if everywhere:
            waiting += ast.iter_child_nodes(node)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)
    return names


def test_the_packages_are_found():
    assert {"layers.attention.multi_head_attention", "layers"} <= set(modules("layers"))
    assert {"zoo.tasks.seq2seq_lm", "zoo"} <= set(modules("zoo"))


@pytest.mark.parametrize("package", PACKAGES)
def test_import_directions(package):
    for name, path in modules(package).items():
        for imported in imports(path):
            top = imported.split(".")[0]
            if top in PACKAGES or top == "tests":
                assert top in ALLOWED[package], f"{name} imports {imported}"


# what asks the backend that is running for more than Keras offers, when it is called
BACKENDS = {
    "layers.devices": {"tensorflow", "jax", "torch"},
    "layers.fusion": {"tensorflow"},
    "layers.attention.kernels.fused": {"jax"},
}


def test_layers_need_keras_and_numpy_only():
    for name, path in modules("layers").items():
        allowed = ALLOWED["layers"] | BACKENDS.get(name, set())
        for imported in imports(path):
            top = imported.split(".")[0]
            assert top in allowed or top in sys.stdlib_module_names, f"{name} imports {imported}"


def test_tensorflow_is_imported_late():
    for package in ("layers", "zoo"):
        for name, path in modules(package).items():
            tops = {imported.split(".")[0] for imported in imports(path, everywhere=False)}
            if name.startswith("zoo.serving."):  # what runs in processes of its own
                continue
            late = tops & {"tensorflow", "tensorflow_text", "jax", "torch", "keras_hub", "keras_nlp", "matplotlib"}
            assert not late, f"{name} imports {late} when it is imported"


# each runs in a process of its own
CONTESTANTS = "recipes.benchmark.libraries."


def test_recipes_wait_with_what_is_heavy():
    """`from zoo import CausalLM` at the top would load it: `import zoo` waits until it is used."""
    for name, path in modules("recipes").items():
        if name.startswith((*LAZY, CONTESTANTS)):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom):
                is_light = f"{node.module}.".startswith(tuple(f"{each}." for each in APART)) and node.module not in LAZY
                waits = not f"{node.module}.".startswith(tuple(f"{each}." for each in LAZY))
                assert waits or is_light, f"{name}: {node.module}"


def test_no_circles():
    known = {name: path for package in PACKAGES for name, path in modules(package).items()}
    edges = {}
    for name, path in known.items():
        targets = set()
        for imported in imports(path, everywhere=False):
            while imported not in known and "." in imported:
                imported = imported.rpartition(".")[0]
            if imported in known and imported != name:
                targets.add(imported)
        edges[name] = targets
    done, trail = set(), []

    def visit(name):
        assert name not in trail, " -> ".join([*trail[trail.index(name) :], name])
        if name in done:
            return
        trail.append(name)
        for target in edges[name]:
            visit(target)
        done.add(trail.pop())

    for name in edges:
        visit(name)


def test_no_circle_hides_in_a_function():
    """Packages of our own are imported at the top of a file."""
    # what is made on demand: training of tokenizers, the table of presets
    lazy = {"zoo.tokenizers.byte_level_bpe", "zoo.tokenizers.wordpiece", "zoo.presets.registry"}
    # what an extra must be there for
    lazy |= {"zoo.serving", "recipes.__main__", "recipes.benchmark.__main__", "recipes.benchmark.peak_memory"}
    for package in PACKAGES:
        for name, path in modules(package).items():
            inside = set(imports(path)) - set(imports(path, everywhere=False))
            own = {imported for imported in inside if imported.split(".")[0] in PACKAGES}
            assert not own or name in lazy, f"{name} imports {own} inside a function"


@pytest.mark.parametrize("package", ["layers", "zoo"])
def test_every_module_imports(package):
    for name in modules(package):
        importlib.import_module(name)


def run(code, folder, **environment):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=folder)


HELP_OF_ALL = """
import contextlib, importlib, io, sys
from recipes import APART
from recipes.command.lists import recipes
from recipes.benchmark.__main__ import BENCHMARKS
from recipes.common.config import ConfigError, parse
from recipes.common.recipe_modules import find_recipe
import dataclasses, zoo

def config_class_of(module):
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and dataclasses.is_dataclass(kind)]
    return next(kind for kind in kinds if kind.__module__ == module.__name__ and kind.__name__.endswith("Config"))

def loaded():
    heavy = {name for name in sys.modules if name.startswith(("keras.", "layers.", "tensorflow.", "zoo.", "torch"))}
    return {name for name in heavy if not f"{name}.".startswith(tuple(f"{each}." for each in APART))}

configs = {name: config_class_of(find_recipe(name)) for name in recipes() if name not in ("benchmark", "launch")}
# "accelerator" reads its words itself, because it runs without what reads those of others
others = BENCHMARKS.keys() - {"accelerator"}
configs |= {name: importlib.import_module(f"recipes.benchmark.{name}").Config for name in others}
assert len(configs) > 25
for name, kind in configs.items():
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.suppress(SystemExit):
        parse(kind, ["--help"], prog=name)
    assert output.getvalue().startswith(f"usage: {name}"), output.getvalue()
    try:
        parse(kind, ["--no_such_key", "3"])
    except ConfigError:
        pass
    assert not loaded(), f"{name} loads {loaded()}"
assert zoo.CausalLM.__module__ == "zoo.tasks.causal_lm" and "keras.src" in sys.modules
"""


def test_help_of_recipes_does_not_wait_for_tensorflow(tmp_path):
    result = run(HELP_OF_ALL, tmp_path)
    assert result.returncode == 0, result.stderr[-3000:]


TENSORFLOW_FIRST = """
import recipes, sys
import keras, tensorflow as tf, zoo
import keras, tensorflow
assert "keras.src" not in sys.modules and "tensorflow.python" not in sys.modules
# in the middle of its import TensorFlow looks where Keras is, and at the end imports it
assert int(tf.constant(1) + 1) == 2 and "keras.src" in sys.modules and "zoo.tasks" not in sys.modules
from zoo.tasks import CausalLM
assert keras.saving.get_registered_object("keras_transformer_zoo>CausalLM") is CausalLM is zoo.CausalLM
"""


# a module of a package that waits, which that package imports itself
PART_FIRST = """
import recipes, sys
import layers, zoo
from layers.block import TransformerBlock
from zoo.preprocessing import words
import zoo.tasks

assert layers.TransformerBlock is TransformerBlock is layers.block.TransformerBlock
assert sys.modules["layers.block"] is layers.block and layers.block.__spec__.origin == layers.block.__file__
assert sys.modules["zoo.preprocessing"] is zoo.preprocessing and zoo.preprocessing.words is words
"""


# parts that a server's process needs, with which the rest goes on waiting
APART_FIRST = """
import recipes, sys
from zoo.serving import application
from zoo.version import __version__
import zoo.serving.options

assert application.app and "keras.src" not in sys.modules and "zoo.tasks" not in sys.modules
assert zoo.__version__ == __version__ and zoo.serving.app is application.app and "zoo.tasks" in sys.modules
"""


@pytest.mark.parametrize("code", [TENSORFLOW_FIRST, PART_FIRST, APART_FIRST], ids=["tensorflow", "part", "apart"])
def test_modules_that_wait_load_in_any_order(tmp_path, code):
    result = run(code, tmp_path)
    assert result.returncode == 0, result.stderr[-3000:]


NAMES = """
import ast, importlib, pathlib, recipes

roots = {name: importlib.import_module(name) for name in recipes.LAZY if not name.startswith("recipes.")}
missing = []
for path in pathlib.Path(recipes.__file__).parent.rglob("*.py"):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports = (node.names for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    names = {alias.asname or alias.name for aliases in imports for alias in aliases}
    for node in ast.walk(tree):
        text = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        root, *rest = text.split(".")
        if root in roots.keys() & names and all(part.isidentifier() for part in rest):
            found = roots[root]
            for part in rest:
                if not hasattr(found, part):
                    missing.append(f"{path.name}: {text}")
                    break
                found = getattr(found, part)
assert not missing, missing
"""


def test_names_that_recipes_ask_for_later_exist(tmp_path):
    """`zoo.training.TokenCount` is looked up when a recipe comes there, with no more imported than the recipe did."""
    result = run(NAMES, tmp_path)
    assert result.returncode == 0, result.stderr[-3000:]


WITHOUT_TENSORFLOW = """
import importlib, sys

class Blocked:
    def find_spec(self, name, *rest):
        if name.split(".")[0] in ("tensorflow", "tensorflow_text", "keras_hub", "keras_nlp"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import keras
import numpy as np
import layers, zoo

assert keras.backend.backend() == "jax" and "tensorflow" not in sys.modules
config = zoo.preset_config("transformer_tiny", vocabulary_size=20, num_layers=1)
backbone = zoo.Backbone.from_config(config)
ids, mask = np.ones((2, 5), "int32"), np.ones((2, 5), "bool")
inputs = {f"{side}_{name}": value for side in ("encoder", "decoder")
          for name, value in (("token_ids", ids), ("padding_mask", mask))}
full = backbone.logits(backbone(inputs)["decoder_sequence_output"])
assert full.shape == (2, 5, 20)
from zoo.generation import Greedy, decode

state, constants = backbone.start_decoding(inputs, 5)
for index in range(5):
    logits, state = backbone.decode_step(ids[:, index], index, state, constants)
    np.testing.assert_allclose(logits, full[:, index], atol=1e-4)
state, constants = backbone.start_decoding(inputs, 5)
result = decode(backbone.decode_step, state, constants, np.ones(2, "int32"), 0, 5, Greedy(), end_ids=2, pad_id=0)
assert result["token_ids"].shape == (2, 5)
try:
    zoo.Seq2SeqLM(backbone).generate(["text"])
except ValueError as error:
    assert "needs a tokenizer" in str(error)
assert "tensorflow" not in sys.modules
"""


@pytest.mark.backends
def test_jax_without_tensorflow(tmp_path):
    if importlib.util.find_spec("jax") is None:
        pytest.skip("JAX is not installed.")
    result = run(WITHOUT_TENSORFLOW, tmp_path, KERAS_BACKEND="jax")
    assert result.returncode == 0, result.stderr[-3000:]


@pytest.mark.parametrize("kind", ["module", "package"])
def test_another_module_named_layers(tmp_path, kind):
    """A file in the folder where Python is started, even one with a layer of the same name."""
    path = tmp_path / ("layers.py" if kind == "module" else "layers/__init__.py")
    path.parent.mkdir(exist_ok=True)
    path.write_text("class MultiHeadAttention:\n    pass\n")
    result = run("import zoo", folder=tmp_path)
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: `import layers` found {path}"), last
    assert "keras-transformer-zoo" in last and "rename" in last


def test_rooms_of_zoo_import_downwards():
    """Modules beside the rooms, such as `zoo.signatures`, are below all of them."""
    rows = runpy.run_path(str(ROOT / "docs/make_architecture_pictures.py"))["ROOMS"]
    level = {name: row for row, rooms in enumerate(rows) for name, *_ in rooms}
    assert set(level) == {path.parent.name for path in (ROOT / "zoo").glob("*/__init__.py")}
    for name, path in modules("zoo").items():
        room = name.split(".")[1] if "." in name else None
        for imported in imports(path):
            package, _, rest = imported.partition(".")
            other = rest.split(".")[0]
            if package == "zoo" and room in level and other in level and other != room:
                assert level[other] > level[room], f"{name} imports {imported}, which is not below it"


def test_threads_that_use_a_lazy_module_at_the_same_time(tmp_path):
    """All of them see the whole of it, however long its code takes."""
    (tmp_path / "slow_module.py").write_text("import time\nfirst = 1\ntime.sleep(0.3)\nlast = 2\n")
    code = (
        "import sys, threading\n"
        "from recipes.command.lazy_imports import LazyImports\n"
        "sys.meta_path.insert(0, LazyImports('slow_module'))\n"
        "import slow_module\n"
        "seen = []\n"
        "threads = [threading.Thread(target=lambda: seen.append(slow_module.last)) for _ in range(4)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "print(seen)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert result.stdout == "[2, 2, 2, 2]\n", result.stderr
