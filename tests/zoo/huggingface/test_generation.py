"""Settings of generation of the Transformers library: the same tokens, written and read back, checked."""

import json
import shutil
from pathlib import Path

import pytest

from zoo import CausalLM, Seq2SeqLM
from zoo.generation import Beam, Contrastive, Sample, get_sampler
from zoo.huggingface import load_task
from zoo.huggingface.generation import GENERATION_FILE, read_values

REFERENCE = Path(__file__).parents[2] / "reference"
GOLDEN = json.loads((REFERENCE / "generation.json").read_text())


@pytest.fixture
def checkpoint(tmp_path):
    """Returns a function that writes a tiny model with settings of generation, and returns its directory."""

    def write(model, settings, file=GENERATION_FILE):
        folder = tmp_path / "model"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(REFERENCE / "huggingface" / model, folder, copy_function=shutil.copyfile)
        before = json.loads((folder / file).read_text()) if file == "config.json" else {}
        (folder / file).write_text(json.dumps({**before, **settings}))
        return folder

    return write


def loaded(folder):
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] == "bart":
        return load_task(Seq2SeqLM, folder)
    # all 64 tokens fit, behind any prompt
    return load_task(Seq2SeqLM if config["model_type"] == "t5" else CausalLM, folder, max_length=96)


def tokens_of(task, inputs, start=None, **options):
    rows = []
    for row in inputs:
        given = {"prompts": [row]} if start is None else {"prompts": [[start]], "source": [row]}
        result = task.generate_tokens(**given, jit_compile=False, **options)
        rows.append(result["token_ids"][0, : result["lengths"][0]].tolist())
    return rows


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", GOLDEN)
def test_same_tokens_as_the_library(checkpoint, case):
    """Greedy and beam search, with processors; the settings are those of the task, written and read back."""
    golden = GOLDEN[case]
    task = loaded(checkpoint(golden["model"], golden["settings"], golden["file"]))
    # without a limit the library writes 20 tokens, and texts may be longer than the model was trained for
    start = golden["settings"].get("decoder_start_token_id")
    assert tokens_of(task, golden["inputs"], start) == golden["tokens"]


@pytest.mark.parametrize("case", GOLDEN)
def test_written_and_read_back(checkpoint, tmp_path, case):
    golden = GOLDEN[case]
    task = loaded(checkpoint(golden["model"], golden["settings"], golden["file"]))
    task.save_to_huggingface(tmp_path / "written")
    again = load_task(type(task), tmp_path / "written")
    assert again.generation == task.generation
    written = json.loads((tmp_path / "written" / GENERATION_FILE).read_text())
    # without a tokenizer these are those of the configuration of the model
    config = json.loads((tmp_path / "written" / "config.json").read_text())
    known = {f"{role}_token_id" for role in ("bos", "pad", "decoder_start")}
    ids = {key: config[key] for key in known if config.get(key) is not None}
    dropped = {"min_length"} if "min_new_tokens" in written else set()
    expected = {key: value for key, value in golden["settings"].items() if key not in known | dropped} | ids
    if expected.get("bad_words_ids"):
        expected["bad_words_ids"] = [ids for ids in expected["bad_words_ids"] if ids != [2]]
    if "num_beams" in expected:
        expected = {"length_penalty": 1.0, "early_stopping": False, **expected}
    assert written == expected


def read(settings, vocabulary_size=48, has_start=False, **given):
    return read_values(settings, vocabulary_size, has_start, **given)


@pytest.mark.parametrize(
    "settings, sampler",
    [
        ({"do_sample": True}, Sample(top_k=50)),
        ({"do_sample": True, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1}, Sample()),
        (
            {"do_sample": True, "top_k": 7, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.8, "temperature": 0.6},
            Sample(0.6, 7, 0.9, 0.1, 0.8),
        ),
        # what samples alone need does not matter here
        ({"do_sample": False, "temperature": 0.0, "top_p": 0.5, "epsilon_cutoff": 0.1}, None),
        ({"num_beams": 4}, Beam(4, 1.0, length_offset=0, early_stopping=False)),
        ({"penalty_alpha": 0.6, "top_k": 4}, Contrastive(4, 0.6)),
        ({"penalty_alpha": 0.6, "top_k": 4, "do_sample": True}, Sample(top_k=4)),
    ],
)
def test_samplers(settings, sampler):
    generation, missing = read(settings)
    assert not missing
    assert generation.get("sampler") is None if sampler is None else get_sampler(generation["sampler"]) == sampler


def test_lengths_and_ends():
    # theirs counts the token that decoding starts with
    assert read({"max_length": 20}, has_start=True)[0] == {"max_length": 19}
    assert read({"max_length": 20, "max_new_tokens": 5})[0] == {"max_new_tokens": 5}
    assert read({"min_length": 7, "min_new_tokens": 5})[0]["processors"] == [{"name": "minimum_length", "length": 5}]
    assert read({"stop_strings": "END"})[0] == {"stop": ["END"]}
    generation, missing = read({"eos_token_id": [3, 50256]})
    assert generation == {"end_ids": [3]} and "50256" in missing[0]
    for settings in ({}, {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "use_cache": True, "top_k": 50}):
        assert read(settings) == ({}, [])


@pytest.mark.parametrize(
    "key, value",
    [
        ("eos_token_id", "2"),
        ("eos_token_id", [True]),
        ("forced_bos_token_id", 48),
        ("forced_eos_token_id", [2, -1]),
        ("suppress_tokens", [48]),
        ("begin_suppress_tokens", 3),
        ("bad_words_ids", [3]),
        ("bad_words_ids", [[]]),
        ("min_length", -1),
        ("max_length", 0),
        ("max_new_tokens", 2.5),
        ("no_repeat_ngram_size", "3"),
        ("repetition_penalty", 0.0),
        ("do_sample", 1),
        ("temperature", -0.1),
        ("top_p", 1.5),
        ("num_beams", 10**9),
        ("early_stopping", "always"),
        ("stop_strings", [""]),
    ],
)
def test_wrong_values_are_named(checkpoint, key, value):
    folder = checkpoint("llama", {key: value})
    with pytest.raises(ValueError, match=rf"{GENERATION_FILE}: {key} must be .*, got "):
        load_task(CausalLM, folder)
    # settings of the user's own
    assert load_task(CausalLM, folder, generation={}).generation == {}


@pytest.mark.parametrize(
    "settings",
    [
        {"num_beam_groups": 2},
        {"do_sample": True, "num_beams": 3},
        {"guidance_scale": 1.5},
        {"top_h": 0.4, "do_sample": True},
    ],
)
def test_what_cannot_be_said_is_named(checkpoint, settings):
    with pytest.warns(
        UserWarning, match=rf"{GENERATION_FILE}: generate\(\) does not do .*{list(settings)[0]}|num_beams"
    ):
        load_task(CausalLM, checkpoint("llama", settings))


@pytest.mark.parametrize(
    "generation, message",
    [
        ({"sampler": "beam"}, "cannot express sampler=Beam.*length_offset=5.*what it has is"),
        ({"processors": [{"name": "presence_penalty", "penalty": 1.0}]}, "it has no PresencePenalty"),
        (
            {"processors": [{"name": "no_repeat_ngram", "size": 2}, {"name": "repetition_penalty", "penalty": 2}]},
            "not here: its order is",
        ),
        ({"stop": ["END", 3]}, "stop_strings must be"),
    ],
)
def test_what_the_library_cannot_do_is_not_written(checkpoint, tmp_path, generation, message):
    task = load_task(CausalLM, checkpoint("llama", {}), generation=generation)
    with pytest.raises(ValueError, match=message):
        task.save_to_huggingface(tmp_path / "written")
    assert not (tmp_path / "written").exists()
