"""The works made of Transformers and PyTorch, which need not be installed in the environment of the benchmark.

Nothing here imports Keras: the module runs in a Python that has `torch` and `transformers` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers

from recipes.benchmark.libraries.batches import padding_mask, token_ids
from recipes.benchmark.works import Work


def make(work: Work, *, dtype: str = "float32", jit_compile: bool = False) -> Callable[[], Any]:
    """Returns a function that does the work once.

    Args:
        work: The work.
        dtype: "mixed_bfloat16" for autocast in training, and for weights in bfloat16 where nothing is trained.
        jit_compile: Whether `torch.compile` compiles the model.
    """
    torch.manual_seed(0)
    half = dtype == "mixed_bfloat16"
    ids = torch.tensor(token_ids(work), dtype=torch.int64)
    mask = torch.tensor(padding_mask(work))
    model = _model(work)
    if work.job == "train":
        return _training(model, work, ids, mask, half=half, compiled=jit_compile)
    model = (model.bfloat16() if half else model).eval()
    if work.job == "generate":
        return _generation(model, work, ids, compiled=jit_compile)
    called = torch.compile(model) if jit_compile else model

    def infer() -> Any:
        with torch.inference_mode():
            return called(input_ids=ids, attention_mask=mask.long()).last_hidden_state

    return infer


def _model(work: Work) -> Any:
    if work.model == "encoder":
        config = transformers.BertConfig(
            vocab_size=work.vocabulary_size,
            hidden_size=work.hidden_dim,
            num_hidden_layers=work.num_layers,
            num_attention_heads=work.num_heads,
            intermediate_size=work.intermediate_dim,
        )
        return transformers.BertModel(config, add_pooling_layer=False)
    if work.model == "encoder_decoder":
        sides = {
            f"{side}_{name}": value
            for side in ("encoder", "decoder")
            for name, value in (
                ("layers", work.num_layers),
                ("attention_heads", work.num_heads),
                ("ffn_dim", work.intermediate_dim),
            )
        }
        config = transformers.MarianConfig(
            vocab_size=work.vocabulary_size,
            d_model=work.hidden_dim,
            **sides,
            max_position_embeddings=512,
            activation_function="relu",
            dropout=work.dropout,
            attention_dropout=work.dropout,
            activation_dropout=0.0,
            pad_token_id=0,
            eos_token_id=1,
            decoder_start_token_id=0,
            scale_embedding=True,
        )
        return transformers.MarianMTModel(config)
    config = transformers.GPT2Config(
        vocab_size=work.vocabulary_size,
        n_positions=1024,
        n_embd=work.hidden_dim,
        n_layer=work.num_layers,
        n_head=work.num_heads,
        n_inner=work.intermediate_dim,
        resid_pdrop=work.dropout,
        embd_pdrop=work.dropout,
        attn_pdrop=work.dropout,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config)


def _training(model: Any, work: Work, ids: Any, mask: Any, *, half: bool, compiled: bool) -> Callable[[], Any]:
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, fused=True)
    inputs = {"input_ids": ids, "attention_mask": mask.long(), "decoder_input_ids": ids}
    if work.model == "decoder":
        inputs = {"input_ids": ids}
    labels = torch.where(mask, ids, -100) if work.model == "encoder_decoder" else ids
    called = torch.compile(model) if compiled else model

    def train() -> float:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            logits = called(**inputs).logits
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1).float(),
                labels.flatten(),
                label_smoothing=0.1 if work.model == "encoder_decoder" else 0.0,
            )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return train


def _generation(model: Any, work: Work, ids: Any, *, compiled: bool) -> Callable[[], Any]:
    options = {
        "max_new_tokens": work.new_tokens,
        "min_new_tokens": work.new_tokens,
        "do_sample": False,
        "num_beams": work.beams,
        "pad_token_id": 0,
    }
    if compiled:
        # a cache of fixed shape is what torch.compile wants, and generate() compiles by itself with it
        options["cache_implementation"] = "static"
        model.forward = torch.compile(model.forward)
    mask = torch.ones_like(ids)

    def generate() -> Any:
        with torch.inference_mode():
            return model.generate(ids, attention_mask=mask, **options)

    return generate
