"""Operations, memory and traffic of plans against what XLA makes of training steps, and against a measured peak."""

import json
import os
import subprocess
import sys
from pathlib import Path

from distributed_runs import ROOT, needs_jax

import zoo

pytestmark = needs_jax
PROGRAM = Path(ROOT) / "tests/helpers/compiled_step.py"

LLAMA = zoo.TransformerConfig(
    "decoder",
    vocabulary_size=4096,
    hidden_dim=256,
    num_layers=4,
    max_length=512,
    attention=zoo.AttentionConfig(4, num_key_value_heads=2, use_bias=False),
    position=zoo.PositionConfig("rotary"),
    norm=zoo.NormConfig("rms", "pre"),
    feed_forward=zoo.FeedForwardConfig(704, "silu", gated=True, use_bias=False),
    embedding=zoo.EmbeddingConfig(tie_output=False),
    dropout=0.0,
)


def compiled(*jobs, **options):
    """What XLA says of the training steps of jobs, one after the other in a process of its own."""
    cases = []
    for job in jobs:
        case = {"config": job.config.to_dict(), "batch_size": job.batch_size, "length": job.length, **options}
        if job.devices > 1:
            case["mesh"] = {"data": job.data, "model": job.model}
        cases.append({**case, "dtype": job.dtype})
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, str(PROGRAM), json.dumps(cases)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
