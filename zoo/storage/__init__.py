"""Everything that touches a disk: atomic writes, JSON, safetensors, checkpoints, preset directories, the hub."""

from zoo.storage.checkpoint import TensorFiles, open_checkpoint, open_tensor_file
from zoo.storage.errors import errors_of_file, quote, quote_key
from zoo.storage.files import atomic_write, remove, remove_incomplete, write_bytes, write_text_atomically
from zoo.storage.folders import read_one_version, replace_folder
from zoo.storage.h5 import H5Weights, open_h5
from zoo.storage.hub import HubError, fetch, push
from zoo.storage.json_files import parse_json, read_bytes, read_json
from zoo.storage.paths import check_path
from zoo.storage.preset import Preset, open_preset, write_preset
from zoo.storage.preset_format import PresetDescription, read_description
from zoo.storage.readers import Reader, find_reader, means_own, register_reader
from zoo.storage.stored_file import file_inside, folder_inside
from zoo.storage.tensors import (
    dtype_name,
    match_variables,
    name_variables,
    open_tensors,
    read_variables,
    write_tensors,
)
from zoo.storage.tokenizer import TokenizerFiles, read_tokenizer, write_tokenizer
from zoo.storage.typed import require_type, to_dataclass
from zoo.storage.weights import average_weights, load_weights, save_weights

__all__ = [
    "file_inside",
    "folder_inside",
    "H5Weights",
    "TokenizerFiles",
    "errors_of_file",
    "open_h5",
    "parse_json",
    "quote",
    "quote_key",
    "read_bytes",
    "read_one_version",
    "require_type",
    "to_dataclass",
    "Preset",
    "Reader",
    "find_reader",
    "means_own",
    "register_reader",
    "PresetDescription",
    "TensorFiles",
    "atomic_write",
    "check_path",
    "average_weights",
    "dtype_name",
    "HubError",
    "fetch",
    "push",
    "load_weights",
    "match_variables",
    "name_variables",
    "open_checkpoint",
    "open_preset",
    "open_tensor_file",
    "open_tensors",
    "read_description",
    "read_json",
    "read_tokenizer",
    "read_variables",
    "remove",
    "remove_incomplete",
    "replace_folder",
    "save_weights",
    "write_bytes",
    "write_preset",
    "write_tensors",
    "write_text_atomically",
    "write_tokenizer",
]
