"""The Open Inference Protocol: tensors in JSON and as bytes, health, errors; bytes are packed here by hand."""

import json
import math
import struct

import numpy as np
import pytest

for name in ("msgpack", "starlette", "uvicorn", "httpx", "prometheus_client", "pydantic"):
    pytest.importorskip(name, reason="the extra serve is not installed")

import httpx  # noqa: E402

from zoo.serving.inference_rest import InferBody  # noqa: E402
from zoo.serving.inference_tensors import InputTensor, as_json, read_tensors, split_body, write_tensors  # noqa: E402
from zoo.serving.options import Limits  # noqa: E402
from zoo.serving.problems import Problem  # noqa: E402

TEXTS = ["hello", "你好", "مرحبا", "สวัสดี", "नमस्ते"]


def packed(texts):
    return b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)


def tensor(name, datatype, shape, **data):
    return {"name": name, "datatype": datatype, "shape": shape, **data}


def sized(size):
    return {"parameters": {"binary_data_size": size}}


@pytest.fixture
def client(chat_address):
    with httpx.Client(base_url=chat_address, timeout=300) as client:
        yield client


def test_what_the_server_and_its_models_are(client, exported):
    assert client.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    for path in ("/v2/models/chat", "/v2/models/chat/versions/3"):
        assert client.get(f"{path}/ready").json() == {"name": "chat", "ready": True}
        assert client.get(path).json() == {
            "name": "chat",
            "versions": ["3"],
            "platform": "tensorflow_savedmodel",
            "inputs": [{"name": "texts", "datatype": "BYTES", "shape": [-1]}],
            "outputs": [{"name": "texts", "datatype": "BYTES", "shape": [-1]}],
        }
    for path in ("/v2/models/other", "/v2/models/chat/versions/4", "/v2/models/chat/versions/x/ready"):
        answer = client.get(path)
        assert answer.status_code == 404 and set(answer.json()) == {"error"}


def test_tensors_in_json(client, exported):
    expected = [text.decode("utf-8", "replace") for text in exported.call("serve", texts=TEXTS)["texts"]]
    body = {"id": "नौ", "inputs": [tensor("texts", "BYTES", [5], data=TEXTS)]}
    for path in ("/v2/models/chat/infer", "/v2/models/chat/versions/3/infer"):
        answer = client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json() == {
            "model_name": "chat",
            "model_version": "3",
            "id": "नौ",
            "outputs": [{"name": "texts", "datatype": "BYTES", "shape": [5], "data": expected}],
        }


def test_tensors_behind_the_json(client, exported):
    expected = exported.call("score", prompts=TEXTS, texts=TEXTS)["log_likelihoods"]
    contents = packed(TEXTS), packed(reversed(TEXTS))
    inputs = [
        tensor("prompts", "BYTES", [5], **sized(len(contents[0]))),
        tensor("texts", "BYTES", [5], data=TEXTS),
    ]
    body = {"parameters": {"signature_name": "score", "binary_data_output": True}, "inputs": inputs}
    head = json.dumps(body).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    answer = client.post("/v2/models/chat/infer", content=head + contents[0], headers=headers)
    assert answer.status_code == 200, answer.text
    length = int(answer.headers["Inference-Header-Content-Length"])
    (output,) = json.loads(answer.content[:length])["outputs"]
    assert output == tensor("log_likelihoods", "FP32", [5], **sized(20))
    np.testing.assert_allclose(struct.unpack("<5f", answer.content[length:]), expected, rtol=1e-5)
    # one output by name, in JSON
    body["outputs"] = [{"name": "log_likelihoods", "parameters": {"binary_data": False}}]
    body["inputs"][0] = tensor("prompts", "BYTES", [5], data=TEXTS)
    (output,) = client.post("/v2/models/chat/infer", json=body).json()["outputs"]
    np.testing.assert_allclose(output["data"], expected, rtol=1e-5)


def test_requests_that_are_refused(client):
    texts = tensor("texts", "BYTES", [1], data=["secret"])

    def refusal(body, headers=None):
        answer = client.post("/v2/models/chat/infer", json=body, headers=headers)
        assert "secret" not in answer.text and set(answer.json()) == {"error"}
        return answer.status_code, answer.json()["error"]

    assert refusal({}) == (422, "inputs is missing.")
    assert refusal({"inputs": [{**texts, "name": "text"}]}) == (422, "inputs must have the names texts.")
    assert refusal({"inputs": [texts], "outputs": [{"name": "logits"}]}) == (
        422,
        "outputs must have names of texts alone.",
    )
    assert refusal({"inputs": [texts], "parameters": {"sequence_id": 1}})[1].startswith(
        "There is no field 'sequence_id'"
    )
    status, said = refusal({"inputs": [texts], "parameters": {"signature_name": "begin"}})
    assert status == 400 and said.startswith("signature_name must be one of serving_default, serve")
    assert refusal({"inputs": [tensor("texts", "BYTES", [21], data=["a"] * 21)]})[0] == 413
    long = tensor("texts", "BYTES", [1], **sized(320_005))
    head = json.dumps({"inputs": [long]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    answer = client.post("/v2/models/chat/infer", content=head + packed(["a" * 320_001]), headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (413, "A text must have at most 80000 characters.")
    for header in ("-1", "1e3", "99999"):
        status, said = refusal({"inputs": [texts]}, {"Inference-Header-Content-Length": header})
        assert status == 400 and said.startswith("Inference-Header-Content-Length must be")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (tensor("a", "FP8", [1], data=[1]), r"inputs\[0\].datatype must be one of BOOL, BYTES, FP16"),
        (tensor("a", "INT32", [2], data=[1]), r"inputs\[0\] must have as many values as its shape says, not 1"),
        (tensor("a", "INT32", [0, 2**31 - 1, 2**31 - 1], data=[]), r"inputs\[0\].shape must be one that an array"),
        (tensor("a", "INT32", [1]), r"inputs\[0\] must have either data or parameters.binary_data_size"),
        (tensor("a", "INT32", [1], data=[1], **sized(4)), r"inputs\[0\] must have either data or"),
        (tensor("a", "INT32", [1], data=[2**31]), r"inputs\[0\].data must hold values of the type INT32"),
        (tensor("a", "INT32", [1], data=[1.5]), r"inputs\[0\].data must hold values of the type INT32"),
        (tensor("a", "BOOL", [1], data=[2]), r"inputs\[0\].data must hold values of the type BOOL"),
        (tensor("a", "FP32", [1], data=["1"]), r"inputs\[0\].data must hold numbers alone"),
        (tensor("a", "BYTES", [1], data=[1]), r"inputs\[0\].data must hold texts alone"),
        (tensor("a", "INT64", [1], **sized(7)), r"binary_data_size must be a multiple of 8"),
        (tensor("a", "INT64", [1], **sized(16)), r"binary_data_size must be at most what follows the JSON"),
        (tensor("a", "BYTES", [1], **sized(8)), r"inputs\[0\] must have texts behind their lengths"),
        (tensor("a", "INT32", [1], **sized(4)), r"What follows the JSON must be the content of inputs"),
    ],
)
def test_tensors_that_are_not_what_they_say(given, reason):
    behind = b"\xff" * given.get("parameters", {}).get("binary_data_size", 0)
    behind = {16: b"", 4: behind + b"\0"}.get(len(behind), behind)
    with pytest.raises(Problem, match=reason):
        read_tensors([InputTensor(**given)], behind)


@pytest.mark.parametrize("shape", [[1] * 9, [2**31], [-1]])
def test_shapes_that_no_input_has(shape):
    # of the request itself: their product alone would take seconds
    body = {"inputs": [tensor("a", "INT32", shape, data=[1])]}
    with pytest.raises(Problem, match=r"inputs\[0\]\.shape"):
        InferBody.read(body, Limits())


def test_tensors_of_all_types_come_back():
    arrays = {
        "bools": np.array([[True], [False]]),
        "small": np.array([-7, 7], "int32"),
        "large": np.array([[2**62, -(2**62)]], "int64"),
        "short": np.array([0.1, -math.inf], "float32"),
        "long": np.array(0.1),
        "texts": np.array([text.encode() for text in TEXTS], "object"),
        "none": np.empty((0, 3), "float32"),
    }
    names = {"bools": "BOOL", "small": "INT32", "large": "INT64", "short": "FP32", "long": "FP64", "texts": "BYTES"}
    described, behind = write_tensors(arrays, dict.fromkeys(arrays, True))
    assert {each["name"]: each["datatype"] for each in described} == {**names, "none": "FP32"}
    read = read_tensors([InputTensor(**each) for each in described], behind)
    del arrays["short"]  # JSON has no infinity
    described, nothing = write_tensors(arrays, dict.fromkeys(arrays, False))
    again = read_tensors([InputTensor(**each) for each in json.loads(as_json({"it": described}))["it"]], nothing)
    for name, array in arrays.items():
        for other in (read, again):
            assert other[name].shape == array.shape
            np.testing.assert_array_equal(other[name], array)
    with pytest.raises(Problem, match="infinity: ask for binary data"):
        as_json({"data": [math.inf]})
    assert split_body(b"{}ab", "2") == (b"{}", b"ab") and split_body(b"{}", None) == (b"{}", b"")
