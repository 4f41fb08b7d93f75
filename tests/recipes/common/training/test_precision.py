"""Advice about the dtype policy."""

import keras
import pytest

from layers.devices import has_accelerator
from recipes.common.training.precision import advise_policy, describe_step, multiplies_bfloat16

WITH, WITHOUT = (f"processor: 0\nflags\t\t: fpu avx2 {flag}\nbugs:\n" for flag in ("avx512_bf16", "avx512f"))


@pytest.mark.skipif(has_accelerator(), reason="the processor does not count here")
def test_who_is_advised():
    assert multiplies_bfloat16(WITH) and not multiplies_bfloat16(WITHOUT)
    assert "mixed_bfloat16" in advise_policy(128, WITH)
    assert advise_policy(127, WITH) is None and advise_policy(128, WITHOUT) is None
    before = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        assert advise_policy(128, WITH) is None
    finally:
        keras.config.set_dtype_policy(before)


@pytest.mark.parametrize(("compiled", "words"), [(True, "compiled by XLA"), (False, "without XLA")])
def test_the_log_says_how_a_model_trains(compiled, words, monkeypatch):
    step = f"trains in float32, {words} (training.dtype, training.jit_compile)"
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "3")
    assert describe_step(compiled) == f"{step}, on 3 threads (TF_NUM_INTRAOP_THREADS)"
