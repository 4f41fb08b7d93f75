"""What README.md says of KerasHub and Transformers, as far as the installed libraries tell."""

import importlib.metadata
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ROWS = [line.strip("| ").split(" | ") for line in README.splitlines() if line.startswith("| ")]
# converters of images, audio, proteins and several of these together
NOT_TEXT = set("blip2 deit dinov2 dinov3 esm metaclip_2 pali_gemma sam3 swin_transformer vit".split())


def cell(row, column):
    """A cell of the table of what others lack; columns are 1 for this project, 2 for KerasHub, 3 for Transformers."""
    (found,) = [cells for cells in ROWS if cells[0].startswith(row)]
    return found[column]


def source_of(package):
    """The folder of an installed package, which is not imported; the test is skipped without it."""
    found = importlib.util.find_spec(package)
    if found is None:
        pytest.skip(f"{package} is not installed")
    return Path(found.submodule_search_locations[0])


def require_version(package):
    """Skips where another version is installed than the README speaks of."""
    (stated,) = re.findall(rf"\[{package}\]\([^)]*\) ([\d.]+) \|", README)
    if not importlib.metadata.version(package.lower().replace("kerashub", "keras-hub")).startswith(stated):
        pytest.skip(f"the README speaks of {package} {stated}")


def test_families_that_are_read_and_written_here():
    """`test_families.py` compares this page with what is found."""
    page = (ROOT / "docs" / "families.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if re.match(r"\| `[\w-]+` \| yes \|", line)]
    assert all(row[-2] == "yes" for row in rows), "a family is not written"
    assert cell("model families", 1) == f"{len(rows)} text families, both ways"


def test_families_that_keras_hub_reads_and_writes():
    folder = source_of("keras_hub")
    require_version("KerasHub")
    files = folder / "src" / "utils" / "transformers"
    read = {path.stem.removeprefix("convert_") for path in files.glob("convert_*.py")} - NOT_TEXT
    written = {path.stem for path in (files / "export").glob("*.py")} - {"__init__", "hf_exporter"}
    assert cell("model families", 2) == f"reads {len(read)} text families, writes {len(written)}"


def test_gguf_files_are_read_by_transformers_and_not_by_keras_hub():
    assert [cell("GGUF files", column) for column in (1, 2, 3)] == ["read and written", "no", "read"]
    folder = source_of("keras_hub")
    require_version("KerasHub")
    assert not any("gguf" in path.read_text(encoding="utf-8").lower() for path in (folder / "src").rglob("*.py"))


def test_keras_hub_has_no_tasks_for_words_and_questions_and_no_recurrent_encoder_decoders():
    folder = source_of("keras_hub")
    require_version("KerasHub")
    names = {path.stem for path in (folder / "src" / "models").rglob("*.py")}
    assert {"text_classifier", "masked_lm", "bert_text_classifier"} <= names
    assert not [name for name in names if re.search("token_classifier|question|seq2seq_rnn|bahdanau|luong", name)]
    assert cell("tasks for tagging", 2) == cell("recurrent", 2) == "no"


def test_beam_search_of_keras_hub_has_no_length_penalty():
    keras_hub = pytest.importorskip("keras_hub")
    require_version("KerasHub")
    assert "penalty" not in str(inspect.signature(keras_hub.samplers.BeamSampler))
    assert cell("beam search", 2) == "without length penalty"


def test_keras_hub_exports_no_strings():
    keras_hub = pytest.importorskip("keras_hub")
    require_version("KerasHub")
    import keras

    # the forward pass of Keras
    assert keras_hub.models.CausalLM.export is keras.Model.export
    assert cell("SavedModel", 2) == "the forward pass on token ids"


def test_transformers_is_of_pytorch_alone():
    folder = source_of("transformers")
    assert not list(folder.glob("modeling_tf_*")) and not list((folder / "models").rglob("modeling_flax_*"))
    assert cell("backends", 3) == "PyTorch" and cell("SavedModel", 3) == "no"
