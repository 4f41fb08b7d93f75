"""Initial weights as they are configured."""

import keras
import numpy as np
import pytest
from small_transformers import array, config

from zoo import (
    AttentionConfig,
    Backbone,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
)


def test_deep_norm_starts_small():
    def model(residual_scale, deviation=None):
        options = {"hidden_dim": 64, "norm": NormConfig(), "feed_forward": FeedForwardConfig(64)}
        attention = AttentionConfig(num_heads=4)
        return Backbone.from_config(
            config(
                "encoder_decoder",
                attention=attention,
                residual_scale=residual_scale,
                initializer_range=deviation,
                **options,
            )
        )

    keras.utils.set_random_seed(0)
    for deviation in (None, 0.02):
        deep, plain = model("deep_norm", deviation), model(1.0, deviation)
        for stack, depth in (("encoder", (2**4 * 2) ** (1 / 16) / 0.87), ("decoder", 24**0.25)):
            blocks = [getattr(backbone, stack).blocks[0] for backbone in (deep, plain)]
            assert blocks[0].residual_scale == pytest.approx(0.81 * 0.87 * depth if stack == "encoder" else 6**0.25)
            parts = ["attention"] + ["cross_attention"] * (stack == "decoder")
            kernels = [
                {
                    **{f"{part}_{name}": getattr(block, part) for part in parts for name in ("query", "key")},
                    **{f"{part}_{name}": getattr(block, part) for part in parts for name in ("value", "output")},
                }
                for block in blocks
            ]
            for name in kernels[0]:
                projection = name.rsplit("_", 1)[1]
                one, other = (array(getattr(made[name], f"{projection}_projection").kernel).std() for made in kernels)
                # of 4,096 numbers the deviation is known to about 1 %
                assert one / other == pytest.approx(1.0 if projection in ("query", "key") else 1 / depth, rel=0.05)
            for name in ("up", "down"):
                one, other = (array(getattr(block.feed_forward, name).kernel).std() for block in blocks)
                assert one / other == pytest.approx(1 / depth, rel=0.05)


def test_residual_branches_start_small():
    keras.utils.set_random_seed(0)
    options = {"hidden_dim": 64, "feed_forward": FeedForwardConfig(64, num_experts=4), "initializer_range": 0.02}
    attention = AttentionConfig(num_heads=4)
    backbone = Backbone.from_config(
        config("encoder_decoder", attention=attention, scale_residual_initializer=True, **options)
    )
    blocks = (backbone.encoder.blocks[0], backbone.decoder.blocks[0])
    for block, branches in zip(blocks, (4, 6), strict=True):
        attention, feed_forward = block.attention, block.feed_forward
        plain = array(attention.query_projection.kernel).std()
        smaller = [attention.output_projection.kernel, feed_forward.down_kernel]
        smaller += [block.cross_attention.output_projection.kernel] if branches == 6 else []
        for kernel in smaller:
            # of 4,096 numbers the deviation is known to about 1 %
            assert array(kernel).std() / plain == pytest.approx(branches**-0.5, rel=0.05)
        for kernel in (attention.value_projection.kernel, feed_forward.up_kernel):
            assert array(kernel).std() / plain == pytest.approx(1, rel=0.05)


def test_initializer_range():
    backbone = Backbone.from_config(
        config(
            "decoder",
            "learned",
            hidden_dim=64,
            initializer_range=0.02,
            embedding=EmbeddingConfig(num_segments=8, tie_output=False),
        )
    )
    for weight in backbone.weights:
        if len(weight.shape) == 2:
            # truncated at two standard deviations, which leaves 0.88 of the deviation; 512 numbers at least
            assert 0.015 < array(weight).std() < 0.022 and np.abs(array(weight)).max() <= 0.0401, weight.path


# Keeping
