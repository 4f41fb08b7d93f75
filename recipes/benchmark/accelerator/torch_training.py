"""Training steps of Transformers: `torch.compile`, attention by `sdpa`, autocast to bfloat16, fused AdamW.

Nothing here imports Keras: the module runs in a Python that has `torch` and `transformers` alone.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers

from recipes.benchmark.accelerator.devices import torch_device, torch_peak_bytes
from recipes.benchmark.accelerator.jobs import Job, UnavailableError, training_row


def device() -> str:
    """Returns the name of the device."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def measure(library: str, job: Job) -> Iterator[dict[str, Any]]:
    """Trains a few steps and yields their row.

    Args:
        library: "transformers".
        job: The job.
    """
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    place = torch_device()
    # "reset" is that of the compiler, whose programs of an earlier job hold its model
    torch.compiler.reset()
    model = _model(job).to(place).train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, 1e-4, fused=True)
    loss_of = _loss(model, job)

    def forward_and_backward(batch: dict[str, Any]) -> Any:
        with torch.autocast(place.type, dtype=torch.bfloat16):
            loss = loss_of(batch)
        loss.backward()
        return loss

    compiled = torch.compile(forward_and_backward)
    batches = [_tensors(job, index) for index in range(job.warm + job.steps)]

    def step(index: int) -> Any:
        loss = compiled({name: value.to(place, non_blocking=True) for name, value in batches[index].items()})
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    started = time.perf_counter()
    step(0).item()
    first = time.perf_counter() - started
    for index in range(1, job.warm):
        step(index).item()
    started = time.perf_counter()
    for index in range(job.warm, job.warm + job.steps):
        loss = step(index)
    last = loss.item()  # waits for the device
    yield training_row(
        job,
        seconds=time.perf_counter() - started,
        first_step=first,
        peak_bytes=torch_peak_bytes(),
        loss=last,
    )


def _model(job: Job) -> Any:
    if job.goal == "causal" or job.goal == "lora":
        model = decoder(job)
        return _with_lora(model) if job.goal == "lora" else model
    shape = job.shape
    if job.goal in ("masked", "classes"):
        config = transformers.BertConfig(
            vocab_size=shape.vocabulary_size,
            hidden_size=shape.hidden_dim,
            num_hidden_layers=shape.num_layers,
            num_attention_heads=shape.num_heads,
            intermediate_size=shape.intermediate_dim,
            hidden_dropout_prob=job.dropout,
            attention_probs_dropout_prob=job.dropout,
            attn_implementation="sdpa",
        )
        if job.goal == "masked":
            return transformers.BertForMaskedLM(config)
        return transformers.BertForSequenceClassification(config)
    if job.goal == "seq2seq":
        config = transformers.T5Config(
            vocab_size=shape.vocabulary_size,
            d_model=shape.hidden_dim,
            d_kv=shape.hidden_dim // shape.num_heads,
            d_ff=shape.intermediate_dim,
            num_layers=shape.num_layers,
            num_heads=shape.num_heads,
            dropout_rate=job.dropout,
            use_cache=False,
            decoder_start_token_id=0,
        )
        return transformers.T5ForConditionalGeneration(config)
    raise UnavailableError("Transformers is compared in training on random tokens, not on texts")


def decoder(job: Job) -> Any:
    """Returns a GPT-2, or a Llama of SmolLM2's shape.

    Args:
        job: The job.
    """
    shape = job.shape
    if shape.preset == "gpt2_small":
        config = transformers.GPT2Config(
            vocab_size=shape.vocabulary_size,
            n_embd=shape.hidden_dim,
            n_layer=shape.num_layers,
            n_head=shape.num_heads,
            n_inner=shape.intermediate_dim,
            attn_pdrop=job.dropout,
            resid_pdrop=job.dropout,
            embd_pdrop=job.dropout,
            bos_token_id=0,
            eos_token_id=0,
            attn_implementation="sdpa",
        )
        return transformers.GPT2LMHeadModel(config)
    config = transformers.LlamaConfig(
        vocab_size=shape.vocabulary_size,
        hidden_size=shape.hidden_dim,
        intermediate_size=shape.intermediate_dim,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_key_value_heads,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    return transformers.LlamaForCausalLM(config)


def _with_lora(model: Any) -> Any:
    if importlib.util.find_spec("peft") is None:
        raise UnavailableError("LoRA with Transformers needs peft, which is not installed")
    import peft

    return peft.get_peft_model(model, peft.LoraConfig(r=8, lora_alpha=8, target_modules=["q_proj", "v_proj"]))


def _tensors(job: Job, index: int) -> dict[str, Any]:
    batch = {name: torch.from_numpy(value.copy()) for name, value in job.batch(index).items()}
    ids, mask = batch["token_ids"].long(), batch["padding_mask"]
    if job.goal in ("causal", "lora"):
        return {"input_ids": ids, "labels": batch["labels"].long()}
    inputs = {"input_ids": ids, "attention_mask": mask.long()}
    if job.goal == "masked":
        places = batch["masked_positions"].long()
        labels = torch.full_like(ids, -100).scatter(1, places, ids.gather(1, places))
    elif job.goal == "classes":
        labels = batch["classes"].long()
    else:
        inputs |= {"decoder_input_ids": ids, "decoder_attention_mask": mask.long()}
        labels = torch.where(mask, batch["labels"].long(), -100)
    return {**inputs, "labels": labels}


def _loss(model: Any, job: Job) -> Callable[[dict[str, Any]], Any]:
    def loss(batch: dict[str, Any]) -> Any:
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        if job.goal in ("causal", "lora"):
            inputs["use_cache"] = False
        logits = model(**inputs).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, -2), batch["labels"].flatten())

    return loss
