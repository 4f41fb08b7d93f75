"""Models of the Transformers library, read and written: one file per family says what is where."""

# these register their families
from zoo.huggingface import albert as _albert  # noqa: F401
from zoo.huggingface import bart as _bart  # noqa: F401
from zoo.huggingface import bert as _bert  # noqa: F401
from zoo.huggingface import bloom as _bloom  # noqa: F401
from zoo.huggingface import cohere as _cohere  # noqa: F401
from zoo.huggingface import deberta as _deberta  # noqa: F401
from zoo.huggingface import deepseek as _deepseek  # noqa: F401
from zoo.huggingface import distilbert as _distilbert  # noqa: F401
from zoo.huggingface import electra as _electra  # noqa: F401
from zoo.huggingface import ernie as _ernie  # noqa: F401
from zoo.huggingface import eurobert as _eurobert  # noqa: F401
from zoo.huggingface import exaone as _exaone  # noqa: F401
from zoo.huggingface import falcon as _falcon  # noqa: F401
from zoo.huggingface import gemma as _gemma  # noqa: F401
from zoo.huggingface import gemma3 as _gemma3  # noqa: F401
from zoo.huggingface import glm as _glm  # noqa: F401
from zoo.huggingface import gpt2 as _gpt2  # noqa: F401
from zoo.huggingface import gpt_bigcode as _gpt_bigcode  # noqa: F401
from zoo.huggingface import gpt_neo as _gpt_neo  # noqa: F401
from zoo.huggingface import gpt_neox as _gpt_neox  # noqa: F401
from zoo.huggingface import gpt_oss as _gpt_oss  # noqa: F401
from zoo.huggingface import gptj as _gptj  # noqa: F401
from zoo.huggingface import granite as _granite  # noqa: F401
from zoo.huggingface import granitemoe as _granitemoe  # noqa: F401
from zoo.huggingface import helium as _helium  # noqa: F401
from zoo.huggingface import llama as _llama  # noqa: F401
from zoo.huggingface import mixtral as _mixtral  # noqa: F401
from zoo.huggingface import modernbert as _modernbert  # noqa: F401
from zoo.huggingface import mpnet as _mpnet  # noqa: F401
from zoo.huggingface import mpt as _mpt  # noqa: F401
from zoo.huggingface import nemotron as _nemotron  # noqa: F401
from zoo.huggingface import nomic_bert as _nomic_bert  # noqa: F401
from zoo.huggingface import olmo as _olmo  # noqa: F401
from zoo.huggingface import olmoe as _olmoe  # noqa: F401
from zoo.huggingface import opt as _opt  # noqa: F401
from zoo.huggingface import phi as _phi  # noqa: F401
from zoo.huggingface import qwen_moe as _qwen_moe  # noqa: F401
from zoo.huggingface import reader as _reader  # noqa: F401  (registers itself)
from zoo.huggingface import smollm3 as _smollm3  # noqa: F401
from zoo.huggingface import stablelm as _stablelm  # noqa: F401
from zoo.huggingface import starcoder as _starcoder  # noqa: F401
from zoo.huggingface import t5 as _t5  # noqa: F401
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
