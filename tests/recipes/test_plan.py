"""The planner as a program: what it prints and writes, and what it says to a mistake."""

import json
from pathlib import Path

import pytest

import zoo
from recipes import plan
from recipes.common.config import parse
from recipes.common.errors import ConfigError


def run(*words):
    return plan.main(parse(plan.PlanConfig, ["--preset", "gpt2_small", "--length", "1024", "--batch", "64", *words]))


def test_a_plan(tmp_path, capsys):
    path = tmp_path / "plans" / "plan.json"
    result = run("--mesh", '{"data": 4, "model": 2}', "--device", "a100", "--output", str(path))
    assert json.loads(path.read_text()) == result
    assert result["parameters"] == 124_439_808
    plain, remat = result["plans"]
    assert (plain["remat"], remat["remat"]) == (False, True)
    assert plain["memory"]["activations"] > 3 * remat["memory"]["activations"]
    assert plain["operations"]["model"] == remat["operations"]["model"] < remat["operations"]["computed"]
    # 20 tokens for each weight (Hoffmann et al. 2022)
    assert plain["updates"] == -(-20 * 124_439_808 // (64 * 1024))
    assert plain["days"] == pytest.approx(plain["updates"] * plain["seconds"]["update"] / 86400)
    assert plain["fits"]
    printed = capsys.readouterr().out
    assert "gpt2_small: 124,439,808 parameters, 124,439,808 train; 64 rows of 1024 tokens, mixed_bfloat16" in printed
    assert "a100, figures by data sheet" in printed and "without a source: network" in printed
    assert "not planned: dropout of attention weights may take several times" in printed
    assert "| mesh | data 4, model 2 | data 4, model 2 |" in printed
    names = {"products": "products", "gradients": "sums of gradients", "activations": "sums of activations"}
    assert f"| bottleneck | {names[plain['bottleneck']]} | {names[remat['bottleneck']]} |" in printed


def test_json_alone_is_printed(capsys):
    result = run("--json", "true", "--lora_rank", "4")
    assert json.loads(capsys.readouterr().out) == result
    # of query and value in 12 layers
    assert result["plans"][0]["trainable_parameters"] == 12 * 2 * 2 * 4 * 768
    assert result["plans"][0]["memory"]["optimizer"] == 8 * 12 * 2 * 2 * 4 * 768


def test_lengths_of_kernels_train_with_dora():
    result = run("--lora_rank", "4", "--lora_dora", "true")
    # beside the two factors, a number for each of the 768 outputs of query and value
    assert result["plans"][0]["trainable_parameters"] == 12 * 2 * (2 * 4 * 768 + 768)


def test_what_is_left_out_is_said():
    assert run("--attention", "flash")["remarks"] == []  # attention in blocks drops weights that it never holds
    dropout, head = "dropout of attention weights may take several times the memory of all else", "the head of a task"
    assert run()["remarks"] == [dropout]
    assert run("--preset", "llama_3_8b")["remarks"] == []
    first, second = run("--preset", "bert_base_uncased", "--length", "512")["remarks"]
    assert first == dropout and second.startswith(head)


def test_weights_divided_along_data_take_a_part_of_the_memory():
    plans = [run("--mesh", mesh, "--device", "a100")["plans"][0] for mesh in ('{"data": 8}', '{"fsdp": 8}')]
    assert plans[1]["mesh"] == {"fsdp": 8, "model": 1}
    whole, parts = (plan["memory"]["weights"] + plan["memory"]["optimizer"] for plan in plans)
    # vectors are whole
    assert whole / 8 < parts < 1.03 * whole / 8
    assert plans[0]["traffic"]["data"]["bytes"] < plans[1]["traffic"]["data"]["bytes"]
    whole, parts = (plan["parameters_of_device"] for plan in plans)
    assert whole == 124_439_808 and whole / 8 < parts < 1.03 * whole / 8


def test_the_smallest_mesh_divides_what_the_given_one_does(capsys):
    """Or a mesh is recommended on which the training does not fit."""
    words = ["--preset", "llama_3_8b", "--attention", "flash", "--device", "h100"]
    remat = run(*words, "--mesh", '{"fsdp": 64}')["plans"][1]
    assert set(remat["smallest_mesh"]) == {"fsdp", "model"}
    assert f"fsdp {remat['smallest_mesh']['fsdp']}, model" in capsys.readouterr().out.splitlines()[-1]
    again = run(*words, "--mesh", json.dumps(remat["smallest_mesh"]))["plans"][1]
    assert again["fits"] and again["smallest_mesh"] == again["mesh"]
    with pytest.raises(ConfigError, match="mesh: No mesh"):
        run(*words, "--figures.memory", "1e9")
    impossible = run(*words, "--mesh", '{"fsdp": 64}', "--figures.memory", "1e8")["plans"][1]["smallest_mesh"]
    assert "with fsdp=64 and model=" in impossible


def test_without_a_mesh_the_smallest_is_planned():
    result = run("--figures.memory", "6e9")
    for found in result["plans"]:
        assert found["mesh"] == found["smallest_mesh"] and found["fits"]
    without, with_remat = (found["mesh"]["data"] * found["mesh"]["model"] for found in result["plans"])
    assert with_remat < without


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--preset", "gpt2_smal"], "preset: There is no preset 'gpt2_smal'. Did you mean 'gpt2_small'?"),
        (["--device", "h1000"], "device: device must be one of .*, got 'h1000'"),
        (["--figures.speed", "3"], "device: Figures of a device must be of .*, got 'speed'"),
        (
            ["--mesh", '{"data": 8}', "--output", "/dev/null/plan.json"],
            "output must be in a folder .*: /dev/null is not a folder",
        ),
        (["--mesh", '{"rows": 2}'], "mesh must have the axes data or fsdp, and model, got {'rows': 2}"),
        (["--mesh", '{"model": 5}'], "mesh: .* must divide the 12 heads of .*, got 5"),
        (["--mesh", '{"data": 65}'], "mesh: data .* at most the 64 rows of a batch, got 65"),
        (["--mesh", '{"data": 0}'], "mesh: data must be an integer of at least 1, got 0"),
        (["--length", "1025"], "plan: length must be at most the 1024 positions of the model .*, got 1025"),
        (["--accumulation", "65"], "accumulation must be at most the 64 rows of batch, got 65"),
        (["--optimizer", "adan"], "plan: optimizer must be one of .*, got 'adan'"),
        (["--freeze", "blok_0"], "freeze: .*'blok_0'"),
        (["--lora_targets", "key"], "lora_targets must be left out without lora_rank"),
        (["--lora_dora", "true"], "lora_dora must be left out without lora_rank, got True"),
        (["--lora_rank", "4", "--lora_targets", "qery"], "lora_targets: .*'qery'"),
        (["--figures.memory", "1e8"], "mesh: No mesh of at most 16384 devices fits into 90% of the 0.1 GB of h100"),
    ],
)
def test_mistakes(words, message):
    with pytest.raises(ConfigError, match=message):
        run(*words)


def test_defaults_are_those_of_the_planner():
    """They stand in the recipe once more, whose help does not wait for the planner."""
    fields = plan.PlanConfig.__dataclass_fields__
    assert fields["share_of_peak"].default == zoo.planning.SHARE_OF_PEAK
    assert fields["latency"].default == zoo.planning.LATENCY
    named = fields["device"].metadata["help"].rstrip(".").partition(": ")[2]
    assert named.split(", ") == list(zoo.planning.DEVICES)


def test_table_of_the_page():
    """What docs/guides/scale.md says of up to ten thousand devices is what its command prints."""
    page = (Path(__file__).parents[2] / "docs/guides/scale.md").read_text()
    table = page[page.index("| devices | rows, batches") :].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        devices, sizes, sent, *seconds, share, hours = (
            cell.strip().replace(",", "") for cell in line.replace(", ", " ").strip("| ").split("|")
        )
        rows, batches = sizes.split()
        words = ["--preset", "llama_3_8b", "--length", "8192", "--attention", "flash", "--batch", rows]
        words += ["--accumulation", batches, "--mesh", json.dumps({"data": int(devices) // 8, "model": 8})]
        _, found = plan.main(parse(plan.PlanConfig, words))["plans"]
        names = ("products", "gradients", "activations", "update")
        assert [float(cell) for cell in seconds] == [round(found["seconds"][name], 1) for name in names]
        assert float(sent) == pytest.approx(found["traffic"]["data"]["bytes"] / 1e9, rel=0.02)
        assert share == f"{found['share_of_peak']:.1%}".replace("%", " %")
        assert hours == f"{found['hours_between_failures']:.0f}"
