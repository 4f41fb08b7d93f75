"""Every configuration file names its recipe, is understood by it, and describes a model that exists."""

import dataclasses
import importlib
import re
from pathlib import Path

import pytest

import zoo
from recipes import (
    answer,
    chat,
    classify,
    distill,
    embed,
    evaluate,
    export,
    finetune,
    generate,
    inspect,
    language_model,
    prefer,
    prepare_text,
    pretrain_masked_lm,
    rerank,
    summarize,
    tag,
    translate,
)
from recipes.common.config import parse
from zoo.presets import Preset

FILES = sorted((Path(__file__).parents[2] / "recipes" / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file(path):
    text = path.read_text(encoding="utf-8")
    command = re.search(rf"python -m recipes\.(\w+) --config recipes/configs/{path.name}", text)
    assert command, "a comment says how the file is run"
    recipe = importlib.import_module(f"recipes.{command[1]}")
    (config_class,) = [
        value for name, value in vars(recipe).items() if name.endswith("Config") and hasattr(value, "run_folder")
    ]
    config = parse(config_class, ["--config", str(path)])
    # counted in a way that allocates nothing, now or later
    architecture = zoo.preset_config(config.model.preset, **config.model.choices)
    assert Preset(path.stem, architecture, "", "").parameter_count() > 0


@pytest.mark.parametrize(
    "kind",
    [
        *(chat.ChatConfig, classify.ClassifyConfig, embed.EmbedConfig, evaluate.EvaluateConfig, export.ExportConfig),
        *(distill.DistillConfig, prefer.PreferConfig, prepare_text.PrepareTextConfig),
        answer.AnswerConfig,
        inspect.InspectConfig,
        *(finetune.FinetuneConfig, generate.GenerateConfig, language_model.LanguageModelConfig),
        *(pretrain_masked_lm.MaskedLMConfig, rerank.RerankConfig, summarize.SummarizeConfig, tag.TagConfig),
        translate.TranslateConfig,
    ],
)
def test_help_lists_every_key_with_its_text(kind, capsys):
    with pytest.raises(SystemExit):
        parse(kind, ["--help"])
    # lines end at spaces and at hyphens
    said = "".join(capsys.readouterr().out.split())

    def check(group, prefix):
        for field in dataclasses.fields(group):
            if dataclasses.is_dataclass(field.default):
                check(field.default, f"{prefix}{field.name}.")
            else:
                assert f"--{prefix}{field.name}VALUE" in said and "".join(field.metadata["help"].split()) in said

    check(kind, "")
