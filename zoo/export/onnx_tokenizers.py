"""Tokenizers within ONNX files, by the operators of onnxruntime-extensions."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from zoo.export.sample_texts import SAMPLE_TEXTS

# Tokenizes the texts that it reads.
_PROCESS = """
import json, sys
import numpy as np
import onnxruntime
from onnxruntime_extensions import get_library_path

options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.register_custom_ops_library(get_library_path())
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
results = session.run(None, {"texts": np.array(json.load(sys.stdin), object)})
print(json.dumps([result.tolist() for result in results]))
"""
_DOMAIN = "ai.onnx.contrib"
_TEXTS = "texts"
# What the nodes of a tokenizer give: the ids of all texts, and where those of each begin and end.
IDS, SPLITS = "flat_ids", "row_splits"


class OnnxTokenizer:
    """A tokenizer as nodes of an ONNX graph, which give the same ids.

    Args:
        tokenizer: The tokenizer: WordPiece, SentencePiece or byte-level BPE.
        texts: Texts for which the ids must be the same. By default texts in many languages.

    Raises:
        ValueError: If no operators do the same, or if their ids differ for a text.

    Example:

    >>> OnnxTokenizer(model.tokenizer).prepend(graph)  # its inputs `flat_ids` and `row_splits` become `texts`
    """

    def __init__(self, tokenizer: Any, texts: list[str] = SAMPLE_TEXTS) -> None:
        kind = type(tokenizer).__name__
        makers: dict[str, Callable[..., Any]] = {
            "WordPieceTokenizer": _wordpiece,
            "SentencePieceTokenizer": _sentencepiece,
            "ByteLevelBPETokenizer": _byte_level_bpe,
        }
        if kind not in makers:
            raise _refuse(f"onnxruntime-extensions has no operator for a {kind}")
        self._nodes, self._constants = makers[kind](tokenizer)
        self._require_same_ids(tokenizer, texts)

    def prepend(self, model: Any) -> None:
        """Puts the nodes before those of a model, which takes strings from then on.

        Args:
            model: An `onnx.ModelProto` with the inputs `flat_ids`, int32, and `row_splits`, int64.
        """
        from onnx import TensorProto, helper

        graph = model.graph
        others = [value for value in graph.input if value.name not in (IDS, SPLITS)]
        nodes = [*self._nodes, *graph.node]
        del graph.input[:], graph.node[:]
        graph.input.extend([helper.make_tensor_value_info(_TEXTS, TensorProto.STRING, ["batch"]), *others])
        graph.node.extend(nodes)
        graph.initializer.extend(self._constants)
        model.opset_import.append(helper.make_opsetid(_DOMAIN, 1))

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        """Returns the ids that ONNX Runtime gives.

        Args:
            texts: The texts.
        """
        from onnx import TensorProto, helper

        outputs = [
            helper.make_tensor_value_info(name, kind, [None])
            for name, kind in ((IDS, TensorProto.INT32), (SPLITS, TensorProto.INT64))
        ]
        inputs = [helper.make_tensor_value_info(_TEXTS, TensorProto.STRING, ["batch"])]
        graph = helper.make_graph(list(self._nodes), "tokenizer", inputs, outputs, list(self._constants))
        imports = [helper.make_opsetid("", 18), helper.make_opsetid(_DOMAIN, 1)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=8)
        with tempfile.TemporaryDirectory() as place:
            path = Path(place, "tokenizer.onnx")
            path.write_bytes(model.SerializeToString())
            # SentencePiece of onnxruntime-extensions and that of TensorFlow crash in one process
            words = [sys.executable, "-c", _PROCESS, str(path)]
            finished = subprocess.run(words, input=json.dumps(texts), capture_output=True, text=True)
        if finished.returncode:
            raise _refuse(f"ONNX Runtime says: {finished.stderr.strip()[-300:]}")
        ids, splits = json.loads(finished.stdout)
        return [ids[begin:end] for begin, end in zip(splits, splits[1:], strict=False)]

    def _require_same_ids(self, tokenizer: Any, texts: list[str]) -> None:
        expected = tokenizer.tokenize(texts).to_list()
        for text, one, other in zip(texts, expected, self.tokenize(texts), strict=True):
            if one != other:
                place = next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), 0)
                raise _refuse(
                    f"onnxruntime-extensions gives other ids for the text {text!r}: from token {place} on "
                    f"{other[place : place + 4]} in place of {one[place : place + 4]}. Give texts of your own as "
                    "strings, and these are compared in place of ours, which are of many languages"
                )


def _refuse(reason: str) -> ValueError:
    return ValueError(
        f"strings must be False for this tokenizer: {reason}. The endpoint forward takes token ids, and a SavedModel "
        "(format='tf_saved_model') takes strings with every tokenizer."
    )


def _require_plain(tokenizer: Any) -> None:
    added = getattr(tokenizer, "_added", ())
    if added:
        raise _refuse(f"its added tokens, such as {sorted(added)[0]!r}, are found before texts are split")


def _sentencepiece(tokenizer: Any) -> tuple[list[Any], list[Any]]:
    """The operator of SentencePiece, with the model's own file."""
    from onnx import helper, numpy_helper

    _require_plain(tokenizer)
    if tokenizer.prepend_scheme is not None:
        raise _refuse(f"prepend_scheme={tokenizer.prepend_scheme!r} is not SentencePiece's own way with spaces")
    steps = tokenizer._config().get("steps", [])
    if steps:
        raise _refuse(f"its steps {steps} before the model are none of SentencePiece's")
    options = {"nbest_size": np.zeros(1, "int64"), "alpha": np.zeros(1, "float32")}
    options |= {name: np.zeros(1, "bool") for name in ("add_bos", "add_eos", "reverse", "fairseq")}
    names = [f"sentencepiece_{name}" for name in options]
    constants = [numpy_helper.from_array(value, name) for name, value in zip(names, options.values(), strict=True)]
    node = helper.make_node(
        "SentencepieceTokenizer", [_TEXTS, *names], [IDS, SPLITS], domain=_DOMAIN, model=tokenizer.proto
    )
    return [node], constants


def _byte_level_bpe(tokenizer: Any) -> tuple[list[Any], list[Any]]:
    """GPT-2's operator gives a padded matrix, of which the ids are taken."""
    from onnx import TensorProto, helper, numpy_helper

    _require_plain(tokenizer)
    config = tokenizer._config()
    usual = {"split": ["gpt2"], "add_prefix_space": False, "normalization": None, "whole_words_first": False}
    usual["missing_bytes"] = None
    for name, value in usual.items():
        if config.get(name) != value:
            raise _refuse(f"its operator has {name}={value!r} alone, this one has {config[name]!r}")
    # text that spells a special token does not become it: the operator finds some by name. No word has a space in it
    names = [
        f"special {index}" if token in tokenizer.special_tokens else token
        for index, token in enumerate(tokenizer.get_vocabulary())
    ]
    vocabulary = json.dumps({token: index for index, token in enumerate(names)})
    merges = "\n".join(" ".join(pair) for pair in tokenizer.merges)
    nodes = [
        helper.make_node(
            *("GPT2Tokenizer", [_TEXTS], ["bpe_ids", "bpe_mask"]),
            **{"domain": _DOMAIN, "vocab": vocabulary, "merges": merges, "padding_length": -1},
        ),
        helper.make_node("Cast", ["bpe_mask"], ["bpe_is_token"], to=TensorProto.BOOL),
        helper.make_node("Reshape", ["bpe_is_token", "bpe_flat"], ["bpe_chosen"]),
        helper.make_node("Reshape", ["bpe_ids", "bpe_flat"], ["bpe_all"]),
        helper.make_node("Compress", ["bpe_all", "bpe_chosen"], ["bpe_wide"], axis=0),
        helper.make_node("Cast", ["bpe_wide"], [IDS], to=TensorProto.INT32),
        helper.make_node("ReduceSum", ["bpe_mask", "bpe_one"], ["bpe_counts"], keepdims=0),
        helper.make_node("CumSum", ["bpe_counts", "bpe_axis"], ["bpe_ends"]),
        helper.make_node("Concat", ["bpe_zero", "bpe_ends"], [SPLITS], axis=0),
    ]
    constants = {"bpe_flat": [-1], "bpe_one": [1], "bpe_zero": [0]}
    tensors = [numpy_helper.from_array(np.array(value, "int64"), name) for name, value in constants.items()]
    return nodes, [*tensors, numpy_helper.from_array(np.array(0, "int64"), "bpe_axis")]


def _wordpiece(tokenizer: Any) -> tuple[list[Any], list[Any]]:
    """BERT's operator takes one text and puts special tokens around it: a loop over texts, that takes them off."""
    from onnx import TensorProto, helper, numpy_helper

    _require_plain(tokenizer)
    config, vocabulary = tokenizer._config(), tokenizer.get_vocabulary()
    if not config["clean_text"]:
        raise _refuse("its operator cleans texts, this one does not")
    if None in (tokenizer.start_id, tokenizer.end_id):
        raise _refuse("its operator needs a start and an end token")
    strips = config["lowercase"] if config["strip_accents"] is None else config["strip_accents"]
    role = {name: vocabulary[getattr(tokenizer, f"{name}_id")] for name in ("start", "end", "unknown")}
    body = helper.make_graph(
        [
            helper.make_node("Unsqueeze", ["number", "wp_zeros"], ["wp_number"]),
            helper.make_node("Gather", [_TEXTS, "wp_number"], ["wp_text"]),
            helper.make_node(
                *("BertTokenizer", ["wp_text"], ["wp_row", "wp_types", "wp_mask"]),
                domain=_DOMAIN,
                vocab_file="\n".join(vocabulary),
                do_lower_case=int(config["lowercase"]),
                do_basic_tokenize=1,
                strip_accents=int(strips),
                tokenize_chinese_chars=int(config["split_ideographs"]),
                unk_token=role["unknown"],
                cls_token=role["start"],
                sep_token=role["end"],
                suffix_indicator="##",
            ),
            helper.make_node("Slice", ["wp_row", "wp_ones", "wp_last"], ["wp_inner"]),
            helper.make_node("Concat", ["wp_before", "wp_inner"], ["wp_after"], axis=0),
            helper.make_node("Shape", ["wp_after"], ["wp_length"]),
            helper.make_node("Identity", ["wp_going"], ["wp_going_on"]),
        ],
        "text",
        [
            helper.make_tensor_value_info("number", TensorProto.INT64, []),
            helper.make_tensor_value_info("wp_going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("wp_before", TensorProto.INT64, [None]),
        ],
        [
            helper.make_tensor_value_info("wp_going_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("wp_after", TensorProto.INT64, [None]),
            helper.make_tensor_value_info("wp_length", TensorProto.INT64, [1]),
        ],
    )
    nodes = [
        helper.make_node("Size", [_TEXTS], ["wp_texts"]),
        helper.make_node("Loop", ["wp_texts", "wp_true", "wp_none"], ["wp_ids", "wp_ends"], body=body),
        helper.make_node("Cast", ["wp_ids"], [IDS], to=TensorProto.INT32),
        helper.make_node("Reshape", ["wp_ends", "wp_last"], ["wp_flat_ends"]),
        helper.make_node("Concat", ["wp_zeros", "wp_flat_ends"], [SPLITS], axis=0),
    ]
    constants = {
        "wp_zeros": np.zeros(1, "int64"),
        "wp_ones": np.ones(1, "int64"),
        "wp_last": -np.ones(1, "int64"),
        "wp_none": np.zeros(0, "int64"),
        "wp_true": np.array(True),
    }
    return nodes, [numpy_helper.from_array(value, name) for name, value in constants.items()]
