"""Greedy generation with Transformers, in bfloat16, as `generate` does it by default.

Nothing here imports Keras: the module runs in a Python that has `torch` and `transformers` alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from recipes.benchmark.accelerator.devices import torch_device, torch_peak_bytes
from recipes.benchmark.accelerator.jobs import Job, generation_row
from recipes.benchmark.accelerator.torch_training import decoder, device
from recipes.benchmark.timing import first_and_median

__all__ = ["device", "measure"]


def measure(library: str, job: Job) -> Iterator[dict[str, Any]]:
    """Generates twice and yields the row.

    Args:
        library: "transformers".
        job: The job.
    """
    torch.manual_seed(0)
    place = torch_device()
    model = decoder(job).to(place, torch.bfloat16).eval()
    ids = torch.from_numpy(job.batch(0)["token_ids"].copy()).long().to(place)
    options = {
        "max_new_tokens": job.new_tokens,
        "min_new_tokens": job.new_tokens,
        "do_sample": False,
        "pad_token_id": 0,
        "attention_mask": torch.ones_like(ids),
    }

    def generate() -> None:
        with torch.inference_mode():
            model.generate(ids, **options).cpu()

    first, seconds = first_and_median(generate, 1)
    yield generation_row(job, seconds=seconds, first_call=first, peak_bytes=torch_peak_bytes())
