"""The oldest TensorFlow Serving that has the operations of an export.

A server cannot load an operation that is not linked into it. The operations of TensorFlow are those of its own version;
those of tensorflow-text are the target `ops_lib` of the one version that `tensorflow_serving/workspace.bzl` names:

| TensorFlow Serving | tensorflow-text |
| --- | --- |
| 2.12 to 2.19 | 2.12.1 |
| 2.20 | 2.20.0 |

Older servers have older versions and are not in this table. The lists below name an operation if the export of a
task uses it, or if it is known to be missing in a server.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# by the oldest version that has them
OPERATIONS = {
    # in TensorFlow 2.12, and in `ops_lib` of tensorflow-text 2.12.1
    "2.12": """
        AddV2 All Any ArgMax Assert AssignVariableOp BatchMatMulV2 BiasAdd Bitcast BitwiseAnd BitwiseOr BitwiseXor
        BroadcastTo Cast ConcatV2 Const Cos Cumprod Cumsum DenseBincount DisableCopyOnRead Einsum Equal Erf Erfc Exp
        ExpandDims FastWordpieceTokenizeWithOffsets Fill FindSourceOffsets FloorDiv FloorMod GatherNd GatherV2 Greater
        GreaterEqual HashTableV2 Identity IdentityN If IsFinite LeftShift Less LessEqual Log LogicalAnd LogicalNot
        LogicalOr LookupTableFindV2 LookupTableImportV2 LowerBound MatMul Max Maximum Mean MergeV2Checkpoints Min
        Minimum Mul Neg NoOp NormalizeUTF8 NormalizeUTF8WithOffsetsMap NotEqual OneHot OnesLike Pack Pad PadV2
        PartitionedCall Placeholder Pow Prod RaggedGather RaggedRange RaggedTensorToTensor Range ReadVariableOp RealDiv
        ReduceJoin RegexReplace RegexSplitWithOffsets Relu Reshape RestoreV2 ReverseV2 RightShift Roll Rsqrt SaveV2
        ScatterNd ScatterNdNonAliasingAdd SegmentMax SegmentMean SegmentMin Select SelectV2 SentencepieceDetokenizeOp
        SentencepieceOp SentencepieceTokenizeOp SentencepieceTokenizeWithOffsetsOp Shape ShardedFilename Sigmoid Sin
        Size Slice Softmax Sqrt Square SquaredDifference Squeeze StatefulPartitionedCall StatelessCase StatelessIf
        StatelessWhile StaticRegexFullMatch StaticRegexReplace StopGradient StridedSlice StringJoin StringLength
        StringSplit StringSplitV2 StringToHashBucketFast Sub Substr Sum Tanh TensorListFromTensor TensorListGetItem
        TensorListReserve TensorListSetItem TensorListStack TensorScatterUpdate TensorStridedSliceUpdate Tile TopKV2
        Transpose UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode UnicodeTranscode Unique Unpack
        UnsortedSegmentJoin UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum UpperBound
        VarHandleOp Where While ZerosLike
    """,
    # in `ops_lib` of tensorflow-text 2.20.0
    "2.20": """
        TFText>RoundRobinGenerateMasks TFText>RoundRobinTrim TFText>Utf8Binarize
    """,
}
_OLDEST = {name: version for version, names in OPERATIONS.items() for name in names.split()}


def operations_of(directory: str | os.PathLike[str]) -> list[str]:
    """Returns the names of all operations of a SavedModel, sorted.

    Args:
        directory: Its folder.
    """
    from tensorflow.core.protobuf import saved_model_pb2

    content = (Path(directory) / "saved_model.pb").read_bytes()
    graphs = [graph.graph_def for graph in saved_model_pb2.SavedModel.FromString(content).meta_graphs]
    functions = [function for graph in graphs for function in graph.library.function]
    nodes = [node for graph in graphs for node in graph.node]
    nodes += [node for function in functions for node in function.node_def]
    return sorted({node.op for node in nodes} - {function.signature.name for function in functions})


def describe_operations(operations: Iterable[str]) -> dict[str, Any]:
    """Returns the entries of `signature.json` about operations.

    Args:
        operations: Their names.

    Returns:
        `tf_serving`: the oldest version that has all, None if an operation is not known; `operations`: their names;
        `unknown_operations`: those that are not known here.

    Example:

    >>> describe_operations(["MatMul", "TFText>RoundRobinTrim"])["tf_serving"]
    '2.20'
    """
    operations = list(operations)
    unknown = [name for name in operations if name not in _OLDEST]
    oldest = max((_OLDEST[name] for name in operations if name in _OLDEST), key=_number, default=None)
    return {"tf_serving": None if unknown else oldest, "operations": operations, "unknown_operations": unknown}


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
