"""Causal language models for `LLMPipeline` and `ContinuousBatchingPipeline`."""

from pathlib import Path
from typing import Any

import numpy as np

from zoo.huggingface import write_text_files
from zoo.openvino_genai.part import Part, differences
from zoo.openvino_genai.stateful import INPUTS, LOGITS, is_plain, require_stateful, stateful_model
from zoo.openvino_genai.tokenizers import write_tokenizers

# What the pipelines read of generation_config.json, besides ids of special tokens that texts do not depend on.
_SETTINGS = {
    *("eos_token_id", "bos_token_id", "pad_token_id", "max_new_tokens", "max_length", "min_new_tokens", "stop_strings"),
    *("do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "no_repeat_ngram_size"),
    *("num_beams", "length_penalty", "early_stopping", "num_return_sequences"),
}
_PAGED = """`openvino_genai.ContinuousBatchingPipeline` and OpenVINO Model Server serve many texts at once from this
folder."""
_NOT_PAGED = """The attention of this model has biases or windows, which continuous batching does not compute.
`LLMPipeline` keeps whole caches: give it one text at a time."""


class LanguageModel(Part):
    """A `CausalLM`: one graph with the keys and values as its state.

    Args:
        task: The task.
    """

    kind, pipeline, output = "A causal language model", "LLMPipeline", LOGITS

    def require(self) -> None:
        require_stateful(self.task.backbone)

    def write_files(self, folder: Path) -> None:
        settings = write_text_files(self.task, folder)
        unknown = sorted(set(settings) - _SETTINGS)
        if unknown:
            named = ", ".join(f"{key}={settings[key]!r}" for key in unknown)
            raise ValueError(
                f"generation: OpenVINO GenAI has nothing for {named}: "
                "load the model with from_preset(..., generation=None), or with a generation without it."
            )
        write_tokenizers(self.task, folder)

    def graph(self) -> Any:
        return stateful_model(self.task.backbone)

    def agreement(self, path: Path, exact: bool) -> dict[str, float]:
        """As in the base, for texts of two lengths that are fed in two parts; also the share of equal choices."""
        import openvino

        backbone = self.task.backbone
        # by default some processors compute in bfloat16, and keep keys and values in 8 bits
        options = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
        request = openvino.Core().compile_model(path, "CPU", options).create_infer_request()
        length = min(8, backbone.config.max_length)
        padding = [0, length // 3]
        ids = np.random.default_rng(0).integers(0, backbone.config.vocabulary_size, (2, length))
        mask = np.array([[0] * pad + [1] * (length - pad) for pad in padding])
        positions = np.maximum(mask.cumsum(axis=1) - mask, 0)
        found = []
        for start, end in ((0, length - 1), (length - 1, length)):
            inputs = dict(zip(INPUTS, (ids[:, start:end], mask[:, :end], positions[:, start:end]), strict=True))
            found.append(request.infer({**inputs, "beam_idx": np.arange(2, dtype="int32")})[LOGITS].copy())
        pairs = []
        for row, pad in enumerate(padding):
            text = ids[row : row + 1, pad:].astype("int32")
            inputs = {"token_ids": text, "padding_mask": mask[row : row + 1, pad:] > 0}
            expected = np.asarray(backbone.logits(backbone(inputs, training=False)))[0]
            pairs.append((np.concatenate(found, axis=1)[row, pad:], expected))
        given, expected = (np.concatenate(each) for each in zip(*pairs, strict=True))
        same = float(np.mean(given.argmax(axis=-1) == expected.argmax(axis=-1)))
        return {**differences(LOGITS, given, expected, exact), "same_choice": same}

    def options(self) -> dict[str, Any]:
        return {} if is_plain(self.task.backbone) else {"ATTENTION_BACKEND": "SDPA"}

    def use(self) -> str:
        prompt = "Hello!" if self.task.tokenizer.chat_format is not None else "Once upon a time"
        return f'print(pipeline.generate("{prompt}", max_new_tokens=64))'

    def notes(self) -> str:
        longest = self.task.backbone.config.max_length
        batching = _PAGED if is_plain(self.task.backbone) else _NOT_PAGED
        return f"A text has at most {longest:,} tokens, its prompt included.\n\n{batching}"
