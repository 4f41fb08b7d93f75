"""Models of the Transformers library, read and written: one file per family says what is where."""

# these register themselves
from zoo.huggingface import (  # noqa: F401
    albert,
    bart,
    bert,
    bloom,
    cohere,
    deberta,
    deepseek,
    distilbert,
    electra,
    ernie,
    esm,
    eurobert,
    exaone,
    falcon,
    gemma,
    gemma3,
    glm,
    gpt2,
    gpt_bigcode,
    gpt_neo,
    gpt_neox,
    gpt_oss,
    gptj,
    granite,
    granitemoe,
    helium,
    lfm2,
    llama,
    longformer,
    mamba2,
    mixtral,
    modernbert,
    mpnet,
    mpt,
    nemotron,
    nomic_bert,
    olmo,
    olmoe,
    opt,
    phi,
    qwen3_next,
    qwen_moe,
    reader,
    rembert,
    roformer,
    smollm3,
    stablelm,
    starcoder,
    t5,
)
from zoo.huggingface.adapters import is_adapter
from zoo.huggingface.directory import (
    is_huggingface,
    load_backbone,
    read_config,
)
from zoo.huggingface.family import Family, Head, register_family
from zoo.huggingface.task_names import task_of
from zoo.huggingface.tasks import load_task, save_task, write_text_files
from zoo.huggingface.writing import write_backbone

__all__ = [
    "Family",
    "Head",
    "is_adapter",
    "is_huggingface",
    "load_backbone",
    "load_task",
    "read_config",
    "register_family",
    "save_task",
    "task_of",
    "write_backbone",
    "write_text_files",
]
