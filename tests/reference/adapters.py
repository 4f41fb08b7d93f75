"""Writes adapters/<case>/: adapters of the PEFT library for the models in huggingface/, and what both compute together.

Each folder is one that the library saved (`adapter_config.json`, `adapter_model.safetensors`) with `golden.npz`: the
outputs of the model of the case with the adapter, for the inputs in `golden.npz` of the model. All factors are random.
With DoRA, or with modules of the model itself, `golden.npz` has gradients too, `gradient/NAME` for the tensor NAME: of
the sum of the squares of the outputs, without those of padding, and without dropout.
Run it where `torch`, `transformers` and `peft` are installed (made with torch 2.13.0, transformers 5.23.0 and peft
0.21.2):

    python -P tests/reference/adapters.py

Cases whose folder is there stay as they are. Further uses:

    python -P tests/reference/adapters.py --all FOLDER      # adapters of all linear maps for all models, in FOLDER
    python -P tests/reference/adapters.py --check FOLDER    # what this library wrote, against the outputs here
    python -P tests/reference/adapters.py --check FOLDER --golden OTHER    # against the outputs in OTHER
"""

import argparse
import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch
import transformers

FOLDER = Path(__file__).with_name("adapters")
MODELS = runpy.run_path(str(Path(__file__).with_name("huggingface.py")))
# by the ends of the names of classes
TASK_TYPES = {
    "ForCausalLM": "CAUSAL_LM",
    "LMHeadModel": "CAUSAL_LM",
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
    "ForConditionalGeneration": "SEQ_2_SEQ_LM",
    "MarianMTModel": "SEQ_2_SEQ_LM",
}
CASES = {
    # ranks and alphas by patterns, the rank-stabilized scale, some layers
    "llama": {
        "r": 3,
        "lora_alpha": 4,
        "use_rslora": True,
        "target_modules": ["q_proj", "v_proj", "down_proj", "lm_head"],
        "rank_pattern": {"down_proj": 2, r"layers\.1\.self_attn.v_proj": 1},
        "alpha_pattern": {"model.layers.0.self_attn.q_proj": 5, r".*\.v_proj": 1.5},
        "lora_dropout": 0.1,
    },
    "qwen3": {"r": 2, "target_modules": ["k_proj", "o_proj"], "layers_to_transform": [1]},
    "gpt2": {"r": 2, "lora_alpha": 3, "target_modules": ["c_attn", "c_proj", "c_fc"]},
    "gpt_neox": {"r": 2, "target_modules": ["query_key_value", "dense_h_to_4h"]},
    "phi3": {"r": 3, "lora_alpha": 2, "target_modules": r".*\.(qkv_proj|gate_up_proj|o_proj)"},
    "mixtral": {"r": 2, "target_modules": ["q_proj", "v_proj"]},
    "t5": {"r": 2, "target_modules": ["q", "v", "wo"]},
    "bart": {"r": 2, "target_modules": ["q_proj", "fc1"]},
    # magnitudes (DoRA); of layers that are stored as one, in turns and the other way round, too
    "llama_biases": {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj", "v_proj", "down_proj"], "use_dora": True},
    "gpt_neox_sequential": {"r": 2, "target_modules": ["query_key_value"], "use_dora": True, "use_rslora": True},
    "gpt2_scaled": {"r": 2, "target_modules": ["c_attn", "c_fc"], "use_dora": True, "lora_dropout": 0.5},
    # modules of the model itself: "norm" is the end of the names of all norms
    "mistral": {"r": 2, "target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]},
    "llama_classifier": {"r": 2, "target_modules": ["v_proj"], "modules_to_save": ["norm"], "use_dora": True},
    "bert_token_classifier": {
        "r": 2,
        "target_modules": ["query"],
        "modules_to_save": ["word_embeddings", "encoder.layer.1.output"],
    },
    # with heads
    "bert_classifier": {"r": 2, "lora_alpha": 4, "target_modules": ["query", "value"]},
    "roberta_classifier": {"r": 2, "target_modules": ["key", "intermediate.dense"]},
    "bert_question_answerer": {"r": 1, "target_modules": ["query"]},
    "albert_masked_lm": {"r": 2, "target_modules": ["query", "ffn"], "modules_to_save": ["predictions"]},
    "nomic_bert_token_classifier": {"r": 2, "target_modules": ["q_proj", "v_proj", "up_proj"]},
}


def load(case: str) -> transformers.PreTrainedModel:
    """The model of a case, in float32."""
    model_class = getattr(transformers, MODELS["CASES"][case][0])
    return model_class.from_pretrained(MODELS["FOLDER"] / case, dtype=torch.float32, attn_implementation="eager").eval()


def linear_maps(model: transformers.PreTrainedModel) -> list[str]:
    """Names of the linear maps of a model without its head."""
    kinds = (torch.nn.Linear, transformers.pytorch_utils.Conv1D)
    base = f"{model.base_model_prefix}." if hasattr(model, model.base_model_prefix) else ""
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, kinds) and name.startswith(base) and name != "lm_head"
    ]


def outputs_of(model: torch.nn.Module, case: str) -> np.ndarray:
    """Logits, or hidden states where there are none."""
    # the library's own class for question answering leaves out token_type_ids
    model = model.get_base_model() if isinstance(model, peft.PeftModel) else model
    golden = np.load(MODELS["FOLDER"] / case / "golden.npz")
    names = [name for name in golden if name.endswith(("_ids", "_mask"))]
    if MODELS["CASES"][case][3].get("rows") == "ended":
        names = [name for name in names if not name.startswith("decoder_")]
    with torch.no_grad():
        outputs = model(**{name: torch.tensor(golden[name]) for name in names})
    if "start_logits" in outputs:
        return MODELS["spans_of"](outputs)
    return outputs["logits" if "logits" in outputs else "last_hidden_state"].numpy()


def gradients_of(adapted: peft.PeftModel, case: str) -> dict[str, np.ndarray]:
    """Gradients of the sum of squares of the logits, by the names of the tensors in the file."""
    golden = np.load(MODELS["FOLDER"] / case / "golden.npz")
    inputs = {name: torch.tensor(golden[name]) for name in golden if name.endswith(("_ids", "_mask"))}
    adapted.zero_grad()
    logits = adapted.get_base_model()(**inputs).logits
    if logits.ndim == 3:
        logits = logits[inputs["attention_mask"].bool()]
    logits.square().sum().backward()
    found = {name: parameter.grad for name, parameter in adapted.named_parameters() if parameter.requires_grad}
    gradients = {}
    for name, gradient in found.items():
        name = name.replace(".modules_to_save.default", "").replace(".default", "")
        gradients[f"gradient/{name.replace('magnitude_vector.weight', 'magnitude_vector')}"] = gradient.numpy()
    return gradients


def write(case: str, choices: dict[str, Any], folder: Path) -> None:
    """Writes the folder of a case."""
    torch.manual_seed(0)
    model = load(case)
    name = type(model).__name__
    kind = next((kind for end, kind in TASK_TYPES.items() if name.endswith(end)), None)
    config = peft.LoraConfig(task_type=kind, **{"target_modules": linear_maps(model), **choices})
    adapted = peft.get_peft_model(model, config).eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
    if "masked_lm" in case:  # tied there, and not by itself
        for path, module in adapted.named_modules():
            if path.endswith("modules_to_save.default"):
                module.decoder.weight.data = model.get_input_embeddings().weight.data
                module.decoder.bias.data = module.bias.data
    adapted.save_pretrained(folder / case)
    path = folder / case / "adapter_config.json"
    values = {**json.loads(path.read_text()), "base_model_name_or_path": None}  # a path of this machine
    path.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")
    (folder / case / "README.md").unlink(missing_ok=True)
    extended = choices.get("use_dora") or (choices.get("modules_to_save") and "masked_lm" not in case)
    gradients = gradients_of(adapted, case) if extended else {}
    np.savez(folder / case / "golden.npz", outputs=outputs_of(adapted, case), **gradients)
    print(case, sum(path.stat().st_size for path in (folder / case).iterdir()))


def check(folder: Path, golden: Path) -> None:
    """Compares what adapters in a folder compute with the outputs in another."""
    for case in sorted(path.name for path in folder.iterdir()):
        adapted = peft.PeftModel.from_pretrained(load(case), folder / case).eval()
        expected = np.load(golden / case / "golden.npz")["outputs"]
        plain = outputs_of(load(case), case)
        error, change = (np.abs(outputs_of(adapted, case) - other).max() for other in (expected, plain))
        print(
            f"{case:30s} {error / np.abs(expected).max():.1e} of the largest output; the adapter changes {change:.1e}"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", type=Path)
    parser.add_argument("--check", type=Path)
    parser.add_argument("--golden", type=Path, default=FOLDER)
    parsed = parser.parse_args()
    if parsed.check:
        check(parsed.check, parsed.golden)
        return
    cases = CASES if parsed.all is None else {case: {"r": 2, "lora_alpha": 3} for case in MODELS["CASES"]}
    for case, choices in cases.items():
        folder = FOLDER if parsed.all is None else parsed.all
        if (folder / case).exists():
            continue
        try:
            write(case, choices, folder)
        except Exception as error:  # what a model cannot have there is not asked of this library
            shutil.rmtree(folder / case, ignore_errors=True)
            print(case, type(error).__name__, str(error)[:200])


if __name__ == "__main__":
    main()
