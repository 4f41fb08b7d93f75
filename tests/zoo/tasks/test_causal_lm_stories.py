"""The text of a published model: stories260K, as its page shows it."""

import os
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from zoo import CausalLM  # noqa: E402
from zoo.presets.llama2c import load_llama2c  # noqa: E402
from zoo.tokenizers import SentencePieceTokenizer  # noqa: E402

FOLDER = Path(os.environ.get("ZOO_DATA", "")) / "checkpoints" / "stories260K"
pytestmark = pytest.mark.skipif(
    "ZOO_DATA" not in os.environ or not FOLDER.is_dir(),
    reason="needs ZOO_DATA, a folder with checkpoints/stories260K (huggingface.co/karpathy/tinyllamas)",
)


def test_greedy_story():
    proto = (FOLDER / "tok512.model").read_bytes()
    tokenizer = SentencePieceTokenizer(proto, pad_token=None, start_token="<s>", end_token="</s>")
    model = CausalLM(load_llama2c(FOLDER / "stories260K.bin"), tokenizer)
    page = (FOLDER / "stories260K.md").read_text(encoding="utf-8")
    story = page.split("-t 0.0\n", 1)[1].split("```", 1)[0].strip()
    options = {"max_new_tokens": 255, "jit_compile": False}
    generated = model.generate("", **options)
    assert len(story) > 500
    assert generated.startswith(story) or story.startswith(generated)
    assert len(generated) > 0.9 * len(story)
    assert "".join(model.stream("", chunk=50, **options)) == generated
