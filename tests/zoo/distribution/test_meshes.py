"""`keras.distribution` on four simulated devices of one process trains as one device does."""

import pytest
from distributed_runs import assert_same, fit, needs_jax

pytestmark = needs_jax
SHAPES = ["decoder", "encoder", "encoder_decoder"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shape", SHAPES)
def test_same_as_one_device(tmp_path, shape):
    one, _ = fit(tmp_path, "one", {"shape": shape}, KERAS_BACKEND="jax")
    four = {"KERAS_BACKEND": "jax", "JAX_NUM_CPU_DEVICES": "4"}
    for name in ("data", "model"):
        found, printed = fit(tmp_path, name, {"shape": shape, "distribution": name}, **four)
        assert_same(found, one)
        parts = [layout for layout in printed.values() if "model" in layout]
        assert bool(parts) == (name == "model")


FSDP = [
    ("decoder", "fsdp", 8, 0.0),
    ("decoder", {"fsdp": 2, "model": 2}, 4, 0.2),
    pytest.param("encoder_decoder", "fsdp", 2, 0.2, marks=pytest.mark.slow),
    pytest.param("encoder", "fsdp", 4, 0.2, marks=pytest.mark.slow),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("shape", "distribution", "devices", "dropout"), FSDP)
def test_weights_divided_along_data(tmp_path, shape, distribution, devices, dropout):
    """Each device keeps a part of each matrix and of its moments."""
    options = {"shape": shape, "dropout": dropout}
    one, _ = fit(tmp_path, "one", options, KERAS_BACKEND="jax")
    several = {**options, "distribution": distribution}
    found, printed = fit(tmp_path, "several", several, KERAS_BACKEND="jax", JAX_NUM_CPU_DEVICES=str(devices))
    assert_same(found, one)
    kernels = {path: layout for path, layout in printed.items() if path.endswith(("kernel", "embeddings"))}
    # a vocabulary of 26 is divided by its width
    assert kernels and all("'data'" in layout for layout in kernels.values() if layout)
    assert not any("'data'" in layout for path, layout in printed.items() if path not in kernels)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "options",
    [
        {"experts": 5},
        pytest.param({"optimizer": "Adafactor"}, marks=pytest.mark.slow),
        pytest.param({"optimizer": "Muon"}, marks=pytest.mark.slow),
        pytest.param({"optimizer": "Lion", "accumulate": 2}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_divided_weights_with_experts_and_other_optimizers(tmp_path, options):
    """Adafactor factorizes its moments, and Muon makes whole matrices orthogonal: both need more than a part."""
    one, _ = fit(tmp_path, "one", options, KERAS_BACKEND="jax")
    several = {**options, "distribution": {"fsdp": 2, "model": 2} if "experts" in options else "fsdp"}
    found, printed = fit(tmp_path, "several", several, KERAS_BACKEND="jax", JAX_NUM_CPU_DEVICES="4")
    assert_same(found, one)
    assert any("'data'" in layout for layout in printed.values())


@pytest.mark.slow
def test_mesh_of_both_with_dropout(tmp_path):
    """Random numbers do not depend on the devices."""
    options = {"shape": "decoder", "dropout": 0.2}
    one, _ = fit(tmp_path, "one", options, KERAS_BACKEND="jax")
    mesh = {**options, "distribution": {"data": 2, "model": 2}}
    found, printed = fit(tmp_path, "mesh", mesh, KERAS_BACKEND="jax", JAX_NUM_CPU_DEVICES="4")
    assert_same(found, one)
    kernel = next(layout for path, layout in printed.items() if path.endswith("query/kernel"))
    assert "None, 'model'" in kernel


@pytest.mark.slow
@pytest.mark.parametrize("distribution", ["data", "model", {"data": 2, "model": 2}], ids=str)
def test_experts(tmp_path, distribution):
    """Each device routes the tokens of its rows, and has a part of each expert."""
    options = {"shape": "decoder", "experts": 5}
    one, _ = fit(tmp_path, "one", options, KERAS_BACKEND="jax")
    several = {**options, "distribution": distribution}
    found, printed = fit(tmp_path, "several", several, KERAS_BACKEND="jax", JAX_NUM_CPU_DEVICES="4")
    assert_same(found, one)
    kernel = next(layout for path, layout in printed.items() if path.endswith("up_kernel"))
    assert ("None, None, 'model'" in kernel) == (distribution != "data")
