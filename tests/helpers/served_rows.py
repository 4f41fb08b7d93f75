"""How a server writes texts with the endpoints of continuous batching; it knows TensorFlow and the export alone."""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf


def write_in_rows(model, directory, prompts, continuation, about, seed, chunk=3):
    """Returns what the model writes behind prompts, a list of bytes, cut as the export says.

    Args:
        model: The loaded export.
        directory: Its folder.
        prompts: What `tokens` or `chat_tokens` gave.
        continuation: Name of the endpoint that makes texts of tokens.
        about: "texts" or "chat": which of the properties of `advance` says what ends and edges are.
        seed: Seed of all rows.
        chunk: Tokens of a call of `advance`.
    """
    described = json.loads(Path(directory, "signature.json").read_text(encoding="utf-8"))
    properties = described["endpoints"]["advance"]["properties"]
    ends, signatures = properties[about], model.signatures
    ids, lengths = prompts["token_ids"].numpy(), prompts["lengths"].numpy()
    rows, capacity = len(ids), properties["max_length"]
    state = {}
    for tensor in properties["state"]:
        slots = min(capacity, tensor["most_slots"] or capacity)
        sizes = [{"rows": rows, "slots": slots}.get(size, size) for size in tensor["shape"]]
        state[tensor["name"]] = tf.zeros(sizes, tensor["dtype"])
    # prompts are fed in two pieces
    half = (lengths - 1) // 2
    for first, last in ((0 * half, half), (half, lengths - 1)):
        fed = np.zeros((rows, max(40, ids.shape[1])), "int32")
        for row in range(rows):
            fed[row, : last[row] - first[row]] = ids[row, first[row] : last[row]]
        state = signatures["begin"](token_ids=fed, lengths=last - first, index=first, **state)
    one, settings = np.ones(rows, "int32"), properties["settings"]
    row_inputs = {
        "end_ids": np.tile(np.array([[*ends["end_ids"], -1]], "int32"), (rows, 1)),
        "seeds": np.full(rows, seed, "int64"),
        "streams": np.arange(rows, dtype="int32"),
        "temperature": one * np.float32(settings["temperature"]),
        "top_k": one * np.int32(settings["top_k"]),
        "top_p": one * np.float32(settings["top_p"]),
        "min_p": one * np.float32(settings["min_p"]),
        "presence_penalty": np.zeros(rows, "float32"),
        "frequency_penalty": np.zeros(rows, "float32"),
        "bias_ids": np.full((rows, 1), -1, "int32"),
        "biases": np.zeros((rows, 1), "float32"),
        "min_tokens": np.zeros(rows, "int32"),
        "written": np.full((rows, 1), -1, "int32"),
        "allowed": np.zeros((rows, 0), "int32"),
        "alternatives": np.int32(0),
        "steps": np.int32(chunk),
    }
    most = np.minimum(properties["max_length"] - lengths, properties["max_new_tokens"]).astype("int32")
    written, ended, index = [[] for _ in ids], np.zeros(rows, "bool"), lengths - 1
    last = ids[np.arange(rows), lengths - 1]
    while True:
        places = np.array([len(row) for row in written], "int32")
        # a row that has ended rests
        limits = np.where(ended, places, most).astype("int32")
        if (places >= limits).all():
            break
        given = {"token_ids": last, "index": index, "places": places, "limits": limits}
        result = signatures["advance"](**given, **row_inputs, **state)
        state = {name: result[name] for name in state}
        new, count = result["token_ids"].numpy(), result["lengths"].numpy()
        for row in range(rows):
            written[row] += new[row, : count[row]].tolist()
            last[row] = ([last[row]] + written[row])[-1]
        index, ended = index + count, ended | result["ended"].numpy()
    generated = np.full((rows, capacity), -1, "int32")
    for row in range(rows):
        count = len(written[row]) - ended[row]
        generated[row, :count] = written[row][:count]
    added = signatures[continuation](prompts=ids, token_ids=generated)["texts"].numpy()
    return [cut(text, ends) for text in added]


def cut(text, ends):
    """Returns a text up to its first stop string, without what stands at its edges."""
    places = [text.find(stop.encode()) for stop in ends["stop"]]
    text = text[: min((place for place in places if place >= 0), default=len(text))]
    begin = next((begin.encode() for begin in ends["begins"] if text.startswith(begin.encode())), b"")
    return text[len(begin) :].removesuffix(ends["ends"].encode())
