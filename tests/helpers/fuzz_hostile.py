"""Changes that somebody would try who wants a reader of models to die, to hang, or to show a traceback."""

import io
import json
import random
import struct
from collections.abc import Callable
from typing import Any

HUGE = (10**7, 10**9, 2**31, 2**63, 10**400)
WRONG = (None, True, "16", "", 16.5, -1, 0, [], {}, [16], "x" * 300_000, float("nan"), float("inf"))
ROPES = (
    *([], "linear", 3, {}, {"type": None}, {"type": []}, {"type": "x"}, {"rope_type": {}}, {"rope_type": 7}),
    *({"rope_type": "linear"}, {"rope_type": "linear", "factor": 0}, {"rope_type": "linear", "factor": "2"}),
    *({"type": "linear", "factor": -1.0}, {"type": "dynamic", "factor": 1e308}, {"type": "dynamic", "factor": None}),
    *({"rope_type": "yarn"}, {"rope_type": "yarn", "factor": 2.0, "beta_fast": 0.0, "beta_slow": 0.0}),
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 10**9, "beta_fast": -3, "beta_slow": 9},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0},
    {"rope_type": "llama3", "factor": 8, "low_freq_factor": 0, "high_freq_factor": 4},
    {"rope_type": "longrope", "short_factor": [], "long_factor": []},
    {"rope_type": "longrope", "short_factor": [0, 0], "long_factor": [0, 0], "factor": 2.0},
    {"rope_type": "longrope", "short_factor": ["a"], "long_factor": {"a": 1}},
    {"rope_type": "longrope", "short_factor": [1.0] * 300_000, "long_factor": [1.0] * 300_000, "factor": 2.0},
    *({"rope_theta": 0}, {"rope_theta": "10000"}, {"rope_theta": -1.0}, {"rope_theta": 1e308}, {"rope_theta": []}),
    *({"rope_type": "default", "partial_rotary_factor": 0.0}, {"partial_rotary_factor": 1e-9}),
    {"full_attention": {"rope_type": "default", "rope_theta": 1.0}, "sliding_attention": None},
)
LABELS = (
    *(None, [], {}, "x", 7, ["a", "b"], {"0": 5, "1": "x"}, {"a": "x", "b": "y"}, {"-1": "x", "0": "y"}),
    *({"0": "x", "1": "x"}, {"0": None, "1": "x"}, {"1": "x", "2": "y"}, {"0": "x" * 300_000, "1": "y"}),
    *({"0": ""}, {"0": "a\0b", "1": "c"}, {"00": "a", "1": "b"}, {"0": "a", "٠": "b"}, {"0": {"0": "a"}}),
    {"10000000000": "a"},
)
# what a key of `config.json` becomes, whatever the family calls it
BY_PART_OF_NAME: dict[str, tuple] = {
    **{"layers": HUGE + WRONG, "n_layer": HUGE + WRONG, "size": HUGE + WRONG, "n_embd": HUGE + WRONG},
    **{"d_": HUGE + WRONG, "positions": HUGE + WRONG, "max_position": HUGE + WRONG, "heads": HUGE + WRONG},
    **{"n_head": HUGE + WRONG, "n_inner": HUGE + WRONG, "dim": HUGE + WRONG, "window": HUGE + WRONG},
    **{"buckets": HUGE + WRONG, "distance": HUGE + WRONG, "_id": HUGE + WRONG, "dropout": (*WRONG, 1.0, 2, -0.1)},
    **{"eps": (*WRONG, 0.0, -1e-5, 1e308), "range": (*WRONG, -1.0), "rope_theta": (*WRONG, 1e-300, 1e308)},
    **{"rope_": ROPES, "id2label": LABELS, "label2id": LABELS, "act": (*WRONG, ["gelu"], "GELU", "os.system")},
    **{"layer_types": (*WRONG, ["x"], ["full_attention"], ["sliding_attention"] * 1_000_000, [None, None], [[]])},
    **{"problem_type": (*WRONG, "x", ["regression"], "regression"), "model_type": (*WRONG, "llama", "bert", "..")},
    **{"architectures": (*WRONG, [None], ["os"]), "bias": WRONG, "tie": WRONG, "scale": WRONG, "cap": WRONG},
    **{"torch_dtype": WRONG, "pad": (*HUGE, *WRONG), "every_n": HUGE + WRONG, "attention": WRONG},
}
ADDED = {"id": 0, "content": "x", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


def many_labels() -> dict[str, str]:
    """Returns names for a million labels."""
    return {str(number): f"L{number}" for number in range(1_000_000)}


def _sequence(kind: str, depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"type": "Lowercase"}
    for _ in range(depth):
        value = {"type": "Sequence", kind: [value]}
    return value


PARTS = (
    *(None, [], {}, "x", 3, {"type": None}, {"type": "x"}, {"type": []}, {"type": "Sequence"}),
    *({"type": "Sequence", "normalizers": None, "pretokenizers": None, "processors": None, "decoders": None},),
    *({"type": "Sequence", "normalizers": [None], "pretokenizers": [[]], "processors": [3], "decoders": ["x"]},),
    *(_sequence("normalizers", 20), _sequence("normalizers", 200), _sequence("pretokenizers", 20)),
    *({"type": "Split"}, {"type": "Split", "pattern": {"Regex": "(" * 1000}, "behavior": "Isolated", "invert": False}),
    *({"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b"}, {"type": "Replace"}),
    *({"type": "Precompiled", "precompiled_charsmap": "!"}, {"type": "Precompiled", "precompiled_charsmap": 3}),
    *({"type": "Precompiled", "precompiled_charsmap": "AAAA"}, {"type": "Precompiled"}, {"type": "ByteLevel"}),
    *({"type": "BertProcessing"}, {"type": "BertProcessing", "cls": [], "sep": ["a", "b"]}),
    *({"type": "BertProcessing", "cls": "x", "sep": None}, {"type": "RobertaProcessing", "cls": [1, "x"], "sep": [2]}),
    *({"type": "TemplateProcessing"}, {"type": "TemplateProcessing", "single": None, "pair": []}),
    *({"type": "TemplateProcessing", "single": [[]]}, {"type": "TemplateProcessing", "single": [{"SpecialToken": 3}]}),
    {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "absent", "type_id": 0}}], "special_tokens": {}},
    {"type": "Metaspace", "replacement": "\0", "prepend_scheme": "always"},
)


def _tokenizer_json(value: Any, rng: random.Random) -> None:
    """One hostile change of a `tokenizer.json` of the Transformers library."""
    model, tokens = value.get("model"), value.get("added_tokens")
    count = 1 + max(
        [entry["id"] for entry in tokens or []] + [len(model["vocab"]) - 1 if isinstance(model, dict) else 0]
    )
    added: tuple[Callable[[], Any], ...] = (
        lambda: [{**ADDED, "content": ""}],
        lambda: [*tokens, {**ADDED, "id": count, "content": "", "special": True}],
        lambda: [*tokens, *({**ADDED, "id": count + n, "content": f"<extra {n}>"} for n in range(20_000))],
        lambda: [*tokens, *({**ADDED, "id": count + n, "content": "<" * (n + 1)} for n in range(1000))],
        lambda: [{**ADDED, "id": n} for n in range(3)],
        lambda: [{**ADDED, "id": count, "content": "x" * 1_000_000}],
        lambda: [{**ADDED, "id": count, "content": "a\0b"}],
        lambda: [{**ADDED, "id": count, "content": "\ue000(.*)+|[", "lstrip": True}],
        lambda: [{**ADDED, "id": rng.choice((*HUGE, *WRONG))}],
        lambda: [{**ADDED, "content": rng.choice(WRONG)}],
        lambda: rng.choice((None, {}, "x", 3, [None], [[]], [{}], ["x"])),
        lambda: [{**ADDED, "id": count, "content": " "}, {**ADDED, "id": count + 1, "content": "\n"}],
    )
    kind = rng.randrange(4)
    if kind == 0:
        value["added_tokens"] = rng.choice(added)()
    elif kind == 1:
        value[rng.choice(("normalizer", "pre_tokenizer", "post_processor", "decoder", "model"))] = rng.choice(PARTS)
    elif kind == 2 or not isinstance(model, dict):
        value["truncation"] = rng.choice(WRONG)
        value[rng.choice(("version", "padding", "model", "x"))] = rng.choice(WRONG)
    else:
        _tokenizer_model(model, rng)


def _tokenizer_model(model: dict[str, Any], rng: random.Random) -> None:
    vocabulary = model["vocab"]
    first = next(iter(vocabulary))
    if rng.random() < 0.3:
        key = rng.choice(sorted(model))
        model[key] = rng.choice((*WRONG, *HUGE))
    elif isinstance(vocabulary, dict):
        changes: tuple[dict[Any, Any], ...] = (
            *({}, {**vocabulary, "x" * 1_000_000: len(vocabulary)}, {**vocabulary, "": len(vocabulary)}),
            *({**vocabulary, first: 10**9}, {**vocabulary, first: "0"}, {**vocabulary, first: -1}),
            *({**vocabulary, "new": 0}, {**vocabulary, "a\0": len(vocabulary)}, dict.fromkeys(vocabulary, 0)),
            {**vocabulary, **{f"t{n}": len(vocabulary) + n for n in range(50_000)}},
        )
        model["vocab"] = rng.choice(changes)
        if "merges" in model and rng.random() < 0.5:
            merges = model["merges"]
            pairs = (["x"], ["a", "b", "c"], "a", "a b c", "", [], None, [1, 2], ["", ""], ["zz", "yy"])
            model["vocab"] = vocabulary
            model["merges"] = rng.choice(
                ([*merges, rng.choice(pairs)], [], merges * 3, merges[::-1], merges[1:], merges[:1] * 100_000, {})
            )
    else:
        pairs = ([], ["a"], ["a", None], [None, 0.0], ["a", "b"], ["", 0.0], ["x" * 1_000_000, -1.0], ["a\0", -1.0])
        entries = (*pairs, ["z", 1e308], ["z", -1e39], "a", {"a": 1}, vocabulary[0], ["a", 0.0, 0.0])
        model["vocab"] = rng.choice(
            (
                [*vocabulary, rng.choice(entries)],
                *(vocabulary[:1], vocabulary * 2),
                [[f"t{n}", 0.0] for n in range(50_000)],
            )
        )


def _config(value: dict[str, Any], rng: random.Random) -> None:
    """One hostile change of a `config.json`, of the Transformers library or of a preset."""
    if rng.random() < 0.03 and "model_type" in value:
        value["id2label"] = many_labels()
        return
    places = [(value, key) for key in value]
    for key in ("backbone", "options", "weights", "tokenizer"):  # of a preset
        part = value.get(key)
        if isinstance(part, dict):
            places += [(part, inner) for inner in part]
            places += [(leaf, inner) for leaf in part.values() if isinstance(leaf, dict) for inner in leaf]
    if rng.random() < 0.25:
        value[rng.choice(("rope_scaling", "rope_parameters"))] = rng.choice(ROPES)
        return
    holder, key = rng.choice(places)
    found = [values for part, values in BY_PART_OF_NAME.items() if part in key]
    own = {
        "task": ("os", "Task", "Backbone", "TransformerConfig", "__builtins__", "load_task", "zoo.CausalLM", *WRONG),
        "file": ("../config.json", "/etc/passwd", "..", "", "config.json", "model.weights.h5/x", "a\0b", *WRONG),
        "sha256": ("0" * 64, *WRONG),
        "bytes": (*HUGE, *WRONG),
        "replaced": (["../x"], ["config.json"], ["/etc/passwd"], [""], ["tokenizer"] * 100_000, *WRONG),
        "parameter_count": (*HUGE, *WRONG),
        "format_version": (*HUGE, *WRONG),
        "options": ({"backbone": 1}, {"preprocessor": 1}, {"labels": 10**9}, {"name": "x/y"}, {"dtype": "x"}, *WRONG),
        "kind": ("transformer", "recurrent", "os", *WRONG),
        "labels": (10**9, 10**6, -1, ["a"] * 3, [None], {"a": 1}, ["x" * 300_000, "y"], *WRONG),
        "sequence_length": (*HUGE, *WRONG),
    }
    holder[key] = rng.choice(own.get(key) or (rng.choice(found) if found else (*WRONG, *HUGE)))
    if key == "options" and isinstance(holder[key], dict) and rng.random() < 0.5:
        extra = ("backbone", "tokenizer", "preprocessor", "trainable", "dtype", "name", "quantization", "__class__")
        holder[key][rng.choice(extra)] = rng.choice(WRONG)


def _flat(value: dict[str, Any], rng: random.Random) -> None:
    """One hostile change of `tokenizer_config.json`, `special_tokens_map.json` and the like."""
    keys = ("pad_token", "unk_token", "eos_token", "bos_token", "cls_token", "mask_token", "extra_ids", "do_lower_case")
    keys += ("strip_accents", "tokenizer_class", "add_prefix_space", "tokenize_chinese_chars", "max_seq_length")
    keys += ("added_tokens_decoder", "additional_special_tokens", "model_max_length", "chat_template", "pooling_mode")
    token = ({"content": None}, {"content": []}, {}, {"content": "absent"}, {"content": ""}, "absent", "a\0", ["x"])
    value[rng.choice((*keys, *value))] = rng.choice((*WRONG, *HUGE, *token, "T5Tokenizer", 10_000, 9_999, {"0": None}))


def _modules(value: list[Any], rng: random.Random) -> Any:
    paths = ("..", "../..", "../sentence", "/etc", "1_Pooling/..", "1_Pooling/../1_Pooling", "a\0", ".", "\\..")
    kind = rng.randrange(6)
    if kind < 3:
        rng.choice(value)["path"] = rng.choice((*paths, *WRONG))
    elif kind == 3:
        rng.choice(value)["type"] = rng.choice(("os.system", "sentence_transformers.models.Dense", "..", *WRONG))
    elif kind == 4:
        return value * rng.choice((2, 100_000))
    else:
        return rng.choice(({}, None, "x", [None], [[]], [{}], [{"type": 3}], [{"type": "Pooling"}], value[:1]))
    return value


def hostile_json(content: bytes, name: str, rng: random.Random) -> bytes:
    """Returns JSON with one hostile change."""
    value = json.loads(content)
    if rng.random() < 0.08:
        deep = rng.choice((33, 500, 100_000))
        opening, closing = rng.choice((("[", "]"), ('{"a":', "}")))
        text = json.dumps(value)[:-1] + ', "deep": ' + opening * deep + ("1" if opening != "[" else "") + closing * deep
        return (text + "}").encode()
    if rng.random() < 0.08:
        return rng.choice((b"", b"null", b"[]", b"{", b'"x"', b"3", b"\xff\xfe{}", b"{}", b"\xef\xbb\xbf{}", b"[" * 9))
    if isinstance(value, list):
        value = _modules(value, rng)
    elif "weight_map" in value:
        files = ("..", "../model.safetensors", "/etc/passwd", "absent.safetensors", "config.json", "", *WRONG)
        key = rng.choice(sorted(value["weight_map"]))
        if rng.random() < 0.7:
            value["weight_map"][key] = rng.choice(files)
        else:
            value["weight_map"] = rng.choice((None, [], {}, {"x": 3}, {key: value["weight_map"][key]}, "x"))
    elif "added_tokens" in value:
        _tokenizer_json(value, rng)
    elif "model_type" in value or "format_version" in value:
        _config(value, rng)
    elif name.endswith("vocab.json"):
        holder = {"vocab": value}
        _tokenizer_model(holder, rng)
        value = holder["vocab"]
    else:
        _flat(value, rng)
    return json.dumps(value).encode("utf-8", "surrogatepass")


def hostile_lines(content: bytes, rng: random.Random) -> bytes:
    """Returns a `vocab.txt` or `merges.txt` with one hostile change."""
    lines = content.split(b"\n")
    place = rng.randrange(len(lines))
    kind = rng.randrange(10)
    if kind == 0:
        return rng.choice((b"", b"\n", b"\0", b"x", b"\xff\xfe", b"a" * 3_000_000, b"\n" * 100_000, b"a b\n" * 100_000))
    changes = (b"", b"\0", b"\xff\xfe", b"x" * 1_000_000, lines[place - 1], b"a b c", b" ", b"\xed\xa0\x80", b"a\rb")
    lines[place] = rng.choice(changes)
    if kind == 1:
        return b"\r\n".join(lines)
    if kind == 2:
        return b"\xef\xbb\xbf" + b"\n".join(lines)
    if kind == 3:
        return b"\n".join(lines + [b"t%d" % number for number in range(100_000)])
    return b"\n".join(lines)


def hostile_proto(content: bytes, rng: random.Random) -> bytes:
    """Returns a SentencePiece model with one hostile change."""
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(content)
    charsmap = model.normalizer_spec.precompiled_charsmap
    kind = rng.randrange(8)
    if kind == 0:  # sizes of the trie
        size = rng.choice((0, 1, 4, 1023, 1024, 2**31, 2**32 - 4, len(charsmap), max(len(charsmap) - 5, 0)))
        model.normalizer_spec.precompiled_charsmap = struct.pack("<I", size) + charsmap[4:]
    elif kind == 1:  # a trie whose units lead anywhere
        units = struct.pack("<I", rng.choice((0xFFFFFFFF, 0x7FFFFFFF, 0x200, 0x3FF, 0x80000000))) * 256
        model.normalizer_spec.precompiled_charsmap = struct.pack("<I", 1024) + units + b"\0" + b"a" * 20 + b"\0"
    elif kind == 2:
        model.denormalizer_spec.precompiled_charsmap = rng.choice((b"x", b"\0" * 2000, charsmap[::-1], charsmap[:-1]))
    elif kind == 3:
        for number in range(rng.choice((1, 50))):
            model.pieces.add(piece="x" * rng.choice((2047, 2049, 10**6)) + str(number), score=-1.0, type=1)
    elif kind == 4:
        del model.pieces[:]
        for number in range(rng.choice((0, 1, 100_000))):
            model.pieces.add(piece=f"t{number}", score=0.0, type=rng.choice((1, 2, 3, 6)))
    elif kind == 5:
        spec = model.trainer_spec
        setattr(spec, rng.choice(("unk_surface", "unk_piece", "bos_piece", "pad_piece")), rng.choice(("", "x" * 10**6)))
    elif kind == 6:
        model.normalizer_spec.precompiled_charsmap = charsmap * rng.choice((2, 20))
    else:
        odd = (b"\x0a\xff\xff\xff\xff\x0f" + content, b"\x0b" * 5000)
        return rng.choice((b"", b"\0", content * 2, content[:100], *odd))
    return model.SerializeToString()


def hostile_tensors(content: bytes, rng: random.Random) -> bytes:
    """Returns a safetensors file with one hostile change of its header."""
    size = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    name = rng.choice([key for key in header if key != "__metadata__"])
    entry = header[name]
    shapes = ([10**9], [2**63], [-1, -16], [0], [], None, "x", [1.5], ["4"], [[4]], [1] * 40, [10**400], [2**32, 2**32])
    offsets = ([0, 10**12], [-1, 4], [4, 0], [0], [], None, ["0", "4"], [0, 2**64], [1.0, 5.0])
    dtypes = ("F32", "F64", "F16", "I64", "BOOL", "F8_E4M3", "x", "", None, [], 32)
    kind = rng.randrange(7)
    if kind < 3:
        key = ("shape", "data_offsets", "dtype")[kind]
        entry[key] = rng.choice((shapes, offsets, dtypes)[kind])
    elif kind == 3:
        header[rng.choice((name, "", "x" * 100_000, "__metadata__", "a\0"))] = rng.choice((None, [], {}, "x", entry))
    elif kind == 4:  # a declared size that fits the offsets, of data that is not there
        header["x"] = {"dtype": "F32", "shape": [10**9], "data_offsets": [len(data), len(data) + 4 * 10**9]}
    elif kind == 5:
        header = {f"t{number}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for number in range(20_000)}
        data = b""
    else:
        odd = (struct.pack("<Q", 2**64 - 1) + content[8:], struct.pack("<Q", 0) + content[8:])
        return rng.choice((b"", content[:7], content * 2, *odd))
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text)) + text + data


def hostile_h5(content: bytes, rng: random.Random) -> bytes:
    """Returns an HDF5 file that is made on purpose."""
    import h5py
    import numpy as np

    target = io.BytesIO(content)
    kind = rng.randrange(8)
    if kind < 7:
        with h5py.File(target, "r+") as file:
            names: list[str] = []
            file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
            name = rng.choice(names)
            shape, folder = file[name].shape, name.rpartition("/")[0]
            del file[name]
            if kind == 0:
                file[name] = h5py.ExternalLink("/etc/passwd", "/x")
            elif kind == 1:
                file[name] = h5py.SoftLink("/")
            elif kind == 2:  # 4 TB that are declared and not there
                file.create_dataset(name, shape=(10**6, 10**6), dtype="f4", chunks=(1000, 1000))
            elif kind == 3:  # a bomb: zeros, compressed
                file.create_dataset(name, data=np.zeros((1000, 20_000), "f4"), chunks=(1000, 20_000), compression=9)
            elif kind == 4:
                file.create_dataset(name, data=[b"x" * 1000] * 10)
            elif kind == 5:
                file[name] = file[folder] if folder else file["/"]
            else:
                file.create_dataset(name, data=np.full(shape, np.nan, "f4"))
        return target.getvalue()
    odd = (b"\x89HDF\r\n\x1a\n" + b"\xff" * 2000, content * 2)
    return rng.choice((b"", content[:8], content[:100], content[:-1], *odd))


def hostile(content: bytes, name: str, rng: random.Random) -> bytes | None:
    """Returns a file that is made to do harm; None where there is none of its kind.

    Args:
        content: A good file.
        name: Its name.
        rng: Source of all choices.
    """
    ending = name.rpartition(".")[2]
    if ending == "json":
        return hostile_json(content, name, rng)
    makers = {
        "txt": hostile_lines,
        "model": hostile_proto,
        "safetensors": hostile_tensors,
        "h5": hostile_h5,
    }
    return makers[ending](content, rng) if ending in makers else None
