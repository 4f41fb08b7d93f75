"""Commands refuse a place that their output cannot be in before any work."""

import pytest

import zoo
from recipes import classify, export, translate
from recipes.common.config import parse
from recipes.common.errors import ConfigError
from recipes.common.run_folder import RunFolder
from recipes.common.training.fitting import prepare


@pytest.mark.parametrize("name", ["a[1]", "a\\b"])
def test_a_run_whose_export_nobody_could_load_does_not_begin(name, tmp_path):
    words = ["--run_folder", str(tmp_path / name / "run")]
    with pytest.raises(ConfigError, match="run_folder must have neither.* Choose another path, or use --export false$"):
        classify.main(parse(classify.ClassifyConfig, words))
    assert not list(tmp_path.iterdir())
    prepare(parse(classify.ClassifyConfig, [*words, "--export", "false"]))


def test_a_run_folder_without_room_for_its_files_is_refused(tmp_path):
    for path in ("x" * 250, "/".join(["y" * 200] * 19)):
        with pytest.raises(ConfigError, match="run_folder must .* bytes"):
            RunFolder(tmp_path / path, translate.TranslateConfig())
    assert not list(tmp_path.iterdir())


def test_an_export_that_nobody_could_load_is_refused_before_the_model_is_read(tmp_path):
    words = ["no/model", "--output", str(tmp_path / "a[1]")]
    with pytest.raises(ConfigError, match="output must have neither.* Choose another path$"):
        export.main(parse(export.ExportConfig, words))
    with pytest.raises(ValueError, match="directory must have neither"):
        zoo.export.write_saved_model(tmp_path / "a[1]", {}, variables=[])
    assert not list(tmp_path.iterdir())
