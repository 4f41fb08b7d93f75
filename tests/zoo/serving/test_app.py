"""The server over HTTP: both interfaces, errors, limits, keys, counters."""

import json
import re
import threading
import time

import numpy as np
import pytest

for name in ("msgpack", "starlette", "uvicorn", "httpx", "prometheus_client", "pydantic"):
    pytest.importorskip(name, reason="the extra serve is not installed")

import httpx  # noqa: E402

from zoo.serving.options import Limits  # noqa: E402

TALK = [{"role": "system", "content": "You are a friend."}, {"role": "user", "content": "who are you"}]
OPTIONS = {"strip_prompt": True, "jit_compile": False}


@pytest.fixture
def client(chat_address):
    with httpx.Client(base_url=chat_address, timeout=300) as client:
        yield client


@pytest.fixture
def openai_client(chat_address):
    openai = pytest.importorskip("openai", reason="the extra test is not installed")
    return openai.OpenAI(base_url=f"{chat_address}/v1", api_key="none", max_retries=0)


def test_completions(openai_client, chat_model):
    answer = openai_client.completions.create(model="chat", prompt=["hello", "who are"], max_tokens=9)
    assert [choice.text for choice in answer.choices] == chat_model.generate(
        ["hello", "who are"], max_new_tokens=9, **OPTIONS
    )
    assert answer.usage.completion_tokens == 18 and answer.choices[0].finish_reason == "length"
    drawn = openai_client.completions.create(
        model="chat", prompt="hello", max_tokens=9, temperature=0.9, top_p=0.95, seed=5, n=3, echo=True
    )
    sampler = {"name": "sample", "temperature": 0.9, "top_p": 0.95}
    expected = chat_model.generate("hello", max_new_tokens=9, sampler=sampler, seed=5, num_results=3, jit_compile=False)
    assert [choice.text for choice in answer_texts(drawn)] == expected
    # tokens stand for the text that they are of, also among texts and where all results are returned
    texts = ["hello", "who are"]
    ids = [chat_model.tokenizer.tokenize(text).numpy().tolist() for text in texts]
    for prompt, number in ((ids[0], 1), (ids, 2), ([ids[0], texts[1]], 2)):
        again = openai_client.completions.create(
            model="chat", prompt=prompt, max_tokens=9, n=2, extra_body={"best_of": 2}
        )
        assert [choice.text for choice in again.choices[::2]] == [choice.text for choice in answer.choices[:number]]
        assert again.usage.prompt_tokens == sum(map(len, ids[:number]))
    # the most probable of them on average, the best one first
    sampled = {"model": "chat", "max_tokens": 9, "temperature": 1.5, "seed": 3, "logprobs": 0}
    every = openai_client.completions.create(prompt=texts, n=5, **sampled)
    best = openai_client.completions.create(prompt=texts, n=2, extra_body={"best_of": 5}, **sampled)
    expected = []
    for choices in (every.choices[:5], every.choices[5:]):
        assert len({choice.text for choice in choices}) > 2
        scores = [np.mean(choice.logprobs.token_logprobs) for choice in choices]
        expected += [choices[place].text for place in np.argsort(scores)[::-1][:2]]
    assert [choice.text for choice in best.choices] == expected
    assert best.usage == every.usage
    stopped = openai_client.completions.create(model="chat", prompt="hello", max_tokens=50, stop=["e", "o"])
    assert stopped.choices[0].text == chat_model.generate("hello", max_new_tokens=50, stop=["e", "o"], **OPTIONS)
    assert stopped.choices[0].finish_reason == "stop"


def answer_texts(answer):
    return sorted(answer.choices, key=lambda choice: choice.index)


def test_chat(openai_client, chat_model):
    expected = chat_model.generate(TALK, max_new_tokens=20, jit_compile=False)
    answer = openai_client.chat.completions.create(model="chat", messages=TALK, max_completion_tokens=20)
    assert answer.choices[0].message.content == expected
    parts = [{**TALK[1], "content": [{"type": "text", "text": "who "}, {"type": "text", "text": "are you"}]}]
    answer = openai_client.chat.completions.create(model="chat", messages=[TALK[0], *parts], max_tokens=20)
    assert answer.choices[0].message.content == expected


def test_tokens(client, chat_model):
    """As llama-server and vLLM have them; the model need not be named where it is the only one."""
    text, words = "hello wörld of ß and 你好", "hello wörld of mine, 你好"
    ids = chat_model.tokenizer.tokenize(text).numpy().tolist()

    def post(path, **body):
        answer = client.post(path, json=body)
        return answer.json() if answer.status_code == 200 else (answer.status_code, answer.json()["error"]["message"])

    assert post("/tokenize", content=text) == {"tokens": ids}
    assert post("/tokenize", prompt=text, model="chat") == {"count": len(ids), "max_model_len": 160, "tokens": ids}
    pieces = post("/tokenize", content=words, with_pieces=True)["tokens"]
    assert "".join(each["piece"] for each in pieces) == words and 1 < len(pieces) < len(words)
    assert post("/tokenize", content=words, add_special=True)["tokens"] == [each["id"] for each in pieces]
    # tokens that are parts of characters have their bytes
    pieces = [each["piece"] for each in post("/tokenize", content=text, with_pieces=True)["tokens"]]
    spelled = [piece.encode() if isinstance(piece, str) else bytes(piece) for piece in pieces]
    assert b"".join(spelled).decode() == text and any(isinstance(piece, list) for piece in pieces)
    assert post("/detokenize", tokens=[*ids, chat_model.tokenizer.end_id]) == {"content": text, "prompt": text}
    assert post("/detokenize", tokens=[])["content"] == "" and post("/tokenize", content="")["tokens"] == []
    parts = ["system\nYou are a friend.", "\n", "user\nwho are you", "\n", "assistant\n"]
    parts = [chat_model.tokenizer.tokenize(part).numpy().tolist() for part in parts]
    talk = [1, *parts[0], 2, *parts[1], 1, *parts[2], 2, *parts[3], 1, *parts[4]]  # 1 and 2 begin and end a turn
    assert post("/tokenize", messages=TALK)["tokens"] == talk
    assert post("/detokenize", tokens=[290]) == (422, "Tokens must be numbers from 0 to 289 with this model.")
    assert post("/detokenize", tokens=[-1]) == (422, "tokens[0] must be greater than or equal to 0.")
    assert post("/tokenize", prompt=text, return_token_strs=True) == (422, "return_token_strs is not supported.")


def test_its_own_answers_and_null_fields_are_taken(openai_client, client, chat_model):
    settings = {"model": "chat", "max_tokens": 5}
    asked = [{**TALK[0], "role": "developer"}, TALK[1]]  # the system by its newer name
    answer = openai_client.chat.completions.create(messages=asked, **settings).choices[0].message
    assert answer.content == chat_model.generate(TALK, max_new_tokens=5, jit_compile=False)
    dumped = answer.model_dump()
    assert None in dumped.values() and {"function_call", "tool_calls"} <= set(dumped)
    longer = [*TALK, {"role": "assistant", "content": answer.content}, TALK[1]]
    expected = chat_model.generate(longer, max_new_tokens=5, jit_compile=False)
    answers = openai_client.chat.completions.create(messages=[*TALK, dumped, TALK[1]], **settings)
    assert answers.choices[0].message.content == expected
    # all fields of the interface that may be null
    nulls = dict.fromkeys(["audio", "tool_calls", "function_call", "refusal", "name", "tool_call_id"])
    body = {**settings, "messages": [{**message, **nulls, "annotations": []} for message in longer]}
    body |= dict.fromkeys(["n", "stop", "temperature", "tools", "stream_options", "reasoning_effort", "verbosity"])
    assert client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"] == expected
    for field in ({"tool_calls": [{"id": "1"}]}, {"audio": {"id": "1"}}, {"content": None}):
        body = {**settings, "messages": [{**TALK[1], **field}]}
        refused = client.post("/v1/chat/completions", json=body)
        assert refused.status_code == 422 and "messages[0]" in refused.json()["error"]["message"]


def test_streams(openai_client, chat_model):
    events = list(
        openai_client.chat.completions.create(
            model="chat", messages=TALK, max_tokens=30, stream=True, stream_options={"include_usage": True}
        )
    )
    text = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
    assert text == chat_model.generate(TALK, max_new_tokens=30, jit_compile=False)
    assert events[0].choices[0].delta.role == "assistant" and len(events) > 4
    assert events[-2].choices[0].finish_reason == "length"
    assert events[-1].usage.completion_tokens == 30
    pieces = list(openai_client.completions.create(model="chat", prompt="hello", max_tokens=12, n=2, stream=True))
    for index in range(2):
        text = "".join(e.choices[0].text for e in pieces if e.choices[0].index == index)
        assert text == chat_model.generate("hello", max_new_tokens=12, **OPTIONS)


def test_models(openai_client, client):
    assert [model.id for model in openai_client.models.list()] == ["chat"]
    assert openai_client.models.retrieve("chat").id == "chat"
    status = client.get("/v1/models/chat/versions/3").json()["model_version_status"]
    assert status == [{"version": "3", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}]
    about = client.get("/v1/models/chat/metadata").json()
    signatures = about["metadata"]["signature_def"]["signature_def"]
    assert about["model_spec"] == {"name": "chat", "signature_name": "", "version": "3"}
    assert signatures["serving_default"] == signatures["serve"]
    assert signatures["score"]["inputs"]["prompts"]["dtype"] == "DT_STRING"


def test_predict(client, chat_model):
    rows = [{"prompts": "hello ", "texts": "friend"}, {"prompts": "", "texts": "wörld"}]
    expected = chat_model.score(["friend", "wörld"], ["hello ", ""])
    body = {"signature_name": "score", "instances": rows}
    answer = client.post("/v1/models/chat:predict", json=body).json()
    np.testing.assert_allclose(answer["predictions"], expected, rtol=1e-4)
    columns = {"prompts": ["hello ", ""], "texts": ["friend", {"b64": "d8O2cmxk"}]}
    body = {"signature_name": "score", "inputs": columns}
    answer = client.post("/v1/models/chat/versions/3:predict", json=body).json()
    np.testing.assert_allclose(answer["outputs"], expected, rtol=1e-4)
    answer = client.post("/v1/models/chat:predict", json={"instances": ["hello"]}).json()
    assert answer["predictions"] == chat_model.generate(["hello"], jit_compile=False)


WRONG = [
    ("/v1/models/chat:predict", b"{", 400, "The body must be JSON: line 1, column 2."),
    ("/v1/models/chat:predict", b"[]", 400, "The body must be a JSON object."),
    ("/v1/models/chat:predict", b"\xff", 400, "The body must be JSON in UTF-8."),
    ("/v1/models/chat:predict", b'{"instances": [NaN]}', 400, "which has no NaN"),
    ("/v1/models/chat:predict", b'{"instances": ' + b"[" * 5000, 400, "The body must be"),
    ("/v1/models/chat:predict", b'{"instances": ' + b"[" * 40 + b"]" * 40 + b"}", 400, "nested at most 32 deep"),
    ("/v1/models/chat:predict", b"{}", 400, "either instances or inputs"),
    ("/v1/models/chat:predict", b'{"instances": []}', 400, "at least one entry"),
    ("/v1/models/chat:predict", b'{"instances": [1]}', 422, "must hold texts"),
    ("/v1/models/chat:predict", b'{"instances": [1' + b"0" * 400 + b"]}", 422, "must fit into 64 bits"),
    ("/v1/models/chat:predict", b'{"instances": [18446744073709551616]}', 422, "must fit into 64 bits"),
    ("/v1/models/chat:predict", b'{"instances": [["a"], "b"]}', 422, "rows of equal lengths"),
    ("/v1/models/chat:predict", b'{"instances": [{"x": 1}]}', 400, "Each instance must have the keys texts."),
    ("/v1/models/chat:predict", b'{"instances": ["a"], "x": 1}', 400, "may only have the keys inputs, instances, s"),
    ("/v1/models/chat:predict", b'{"instances": ["a"], "signature_name": "no"}', 400, "signature_name must be one of"),
    ("/v1/models/chat:predict", b'{"inputs": {}, "signature_name": "begin"}', 400, "signature_name must be one of"),
    ("/v1/models/chat:predict", json.dumps({"instances": ["hello " * 1000]}).encode(), 422, "leave room"),
    ("/v1/models/chat:predict", json.dumps({"instances": ["x" * 80_001]}).encode(), 413, "at most 80000 characters"),
    ("/v1/models/chat:predict", b'{"instances": ["\\ud800"]}', 422, "without surrogates"),
    ("/v1/models/chat:predict", b'{"instances": [{"b64": "?"}]}', 400, "base64"),
    ("/v1/models/chat:predict", json.dumps({"instances": ["a"] * 21}).encode(), 413, "at most 20 rows"),
    ("/v1/models/chat:predict", b" " * 1_000_001, 413, "at most 1000000 bytes"),
    ("/v1/models/chat:classify", b'{"examples": [{"texts": "a"}]}', 422, "does not classify"),
    ("/v1/models/other:predict", b'{"instances": ["a"]}', 404, "no model 'other'"),
    ("/v1/models/chat/versions/9:predict", b'{"instances": ["a"]}', 404, "no version 9"),
    ("/nowhere", b"{}", 404, "Not Found"),
]


@pytest.mark.parametrize(("path", "body", "status", "reason"), WRONG)
def test_wrong_requests(client, path, body, status, reason):
    answer = client.post(path, content=body)
    assert answer.status_code == status
    assert reason in answer.json()["error"] and "hello" not in answer.text and "/" not in answer.json()["error"]


@pytest.mark.parametrize("path", ["/v1/models/chat:predict", "/v1/models/chat/versions/1:classify"])
def test_a_request_without_a_body_is_told_the_method(client, path):
    answer = client.get(path)
    assert answer.status_code == 405 and "POST" in answer.json()["error"]


ASKED = {"model": "chat", "prompt": "hello", "max_tokens": 2}
REFUSED = [
    ({"model": None}, 422, "model is missing."),
    ({"model": "other"}, 404, "There is no model 'other'. Served are: chat."),
    ({"prompt": []}, 422, "prompt must be a text, a list of texts, or tokens"),
    ({"prompt": [1, "a"]}, 422, "prompt must be a text, a list of texts, or tokens"),
    ({"prompt": [[5, -1]]}, 422, "prompt must be a text, a list of texts, or tokens"),
    ({"prompt": [5, 290]}, 422, "Tokens must be numbers from 0 to 289 with this model."),
    ({"max_tokens": 10**30}, 422, "A whole number must fit into 64 bits."),
    ({"max_tokens": 0}, 422, "max_tokens must be at least 1 without echo."),
    ({"max_tokens": 151}, 422, "max_tokens must be from 0 to 150."),
    ({"max_tokens": True}, 422, "max_tokens must be a valid integer."),
    ({"temperature": 10**400}, 422, "A whole number must fit into 64 bits."),
    ({"seed": 2**64 - 1}, 422, "seed must be from 0 to 4294967295."),
    ({"temperature": -1}, 422, "temperature must be from 0 to 100."),
    ({"temperature": "hot"}, 422, "temperature must be a valid number."),
    ({"frequency_penalty": 2.5}, 422, "frequency_penalty must be from -2 to 2."),
    ({"presence_penalty": "a"}, 422, "presence_penalty must be a valid number."),
    ({"logit_bias": {"290": 1}}, 422, "Tokens must be numbers from 0 to 289 with this model."),
    ({"logit_bias": {"5": 101}}, 422, "logit_bias"),
    ({"logit_bias": {"-5": 1}}, 422, "logit_bias must be an object of token ids and numbers"),
    ({"logit_bias": {"05": 1}}, 422, "logit_bias must be an object of token ids and numbers"),
    ({"logit_bias": [5]}, 422, "logit_bias must be an object of token ids and numbers"),
    ({"min_tokens": 9, "max_tokens": 8}, 422, "min_tokens must be at most"),
    ({"min_tokens": 100_000}, 422, "min_tokens must be at most"),
    ({"logprobs": 21}, 422, "logprobs must be from 0 to 20."),
    ({"suffix": "a"}, 422, "suffix is not supported."),
    ({"tempreature": 1}, 422, "There is no field 'tempreature'."),
    ({"stop": [""]}, 422, "stop[0] must have at least 1 character."),
    ({"n": 2, "best_of": 1}, 422, "best_of must be at least n, 2"),
    ({"best_of": 3, "stream": True}, 422, "best_of must be n in a stream"),
    ({"best_of": 17}, 422, "best_of must be from 1 to 16"),
    ({"top_p": 0}, 422, "top_p must be from 1e-06 to 1."),
    ({"seed": 2**32}, 422, "seed must be from 0 to 4294967295."),
    ({"n": 16, "prompt": ["a", "b"]}, 413, "at most 20 results"),
    ({"prompt": "hello " * 400}, 422, "The prompt must have from 1 to 159 tokens"),
    ({"prompt": "hello " * 400, "stream": True}, 422, "The prompt must have from 1 to 159 tokens"),
]


@pytest.mark.parametrize(("change", "status", "reason"), REFUSED)
def test_requests_that_are_refused(client, change, status, reason):
    answer = client.post("/v1/completions", json={**ASKED, **change})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, str(status))
    assert reason in error["message"] and "hello" not in answer.text


def test_biases_penalties_and_least_lengths(client):
    def text(**fields):
        answer = client.post("/v1/completions", json={**ASKED, "max_tokens": 6, "temperature": 0, **fields}).json()
        return answer["choices"][0]["text"], answer["usage"]["completion_tokens"]

    def spelled(*tokens):
        return client.post("/detokenize", json={"model": "chat", "tokens": tokens}).json()["prompt"]

    first, second = 70, 75
    # of two tokens that nothing else comes near, the one that has been written more often is less probable
    assert text(logit_bias={str(first): 100, str(second): 99.5}, ignore_eos=True) == (spelled(*[first] * 6), 6)
    written, count = text(logit_bias={str(first): 100, str(second): 100}, frequency_penalty=2, ignore_eos=True)
    assert sorted(written) == sorted(spelled(*[first, second] * 3)) and count == 6
    end = {"0": 100}
    assert text(logit_bias=end)[1] == 1 and text(logit_bias=end, min_tokens=4)[1] == 5
    assert text(logit_bias=end, ignore_eos=True)[1] == 6
    # ends in the middle, which have no spelling
    written, count = text(logit_bias={"0": 100, str(first): 99}, frequency_penalty=2, ignore_eos=True)
    assert written in [spelled(*[first] * times) for times in (2, 3, 4)] and count == 6


def test_biases_of_several_results_that_stream(openai_client):
    asked = {"model": "chat", "n": 2, "stream": True, "max_tokens": 6, "logit_bias": {"70": 100}}
    conversation = openai_client.chat.completions.create(messages=TALK, **asked)
    texts = ["", ""]
    for event in conversation:
        for choice in event.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts[0] == texts[1] != ""
    asked["logit_bias"] = {"71": 100}
    others = [
        choice.text for event in openai_client.completions.create(prompt="a", **asked) for choice in event.choices
    ]
    assert others and not set("".join(others).split()) & set(texts[0].split())


def test_fields_that_ask_for_nothing_are_taken(client):
    idle = {"frequency_penalty": 0.0, "presence_penalty": 0, "user": "me", "best_of": 1, "logprobs": None}
    assert client.post("/v1/completions", json={**ASKED, **idle}).status_code == 200


def test_a_client_that_vanishes_frees_its_rows(client, chat_address):
    body = {"model": "chat", "prompt": ["hello"] * 6, "max_tokens": 150}
    for stream in (True, False):
        with pytest.raises(httpx.ReadTimeout):
            with httpx.stream(
                "POST", f"{chat_address}/v1/completions", json={**body, "stream": stream}, timeout=0.05
            ) as got:
                for _ in got.iter_raw():
                    raise httpx.ReadTimeout("enough")
    for _ in range(200):
        page = client.get("/metrics").text
        if all(f'zoo_texts{{model="chat",state="{state}"}} 0.0' in page for state in ("waiting", "writing")):
            break
        time.sleep(0.02)
    else:
        raise AssertionError(page)


def test_a_stream_that_is_closed_frees_its_row(openai_client, client):
    def metric(pattern):
        page = client.get("/metrics").text
        return sum(float(value) for value in re.findall(rf"^{pattern} (\S+)$", page, re.MULTILINE))

    written = []
    for _ in range(5):
        before = metric('zoo_tokens_total{.*kind="written".*}')
        stream = openai_client.completions.create(model="chat", prompt="hello", max_tokens=150, stream=True)
        next(iter(stream))
        stream.close()
        closed = time.monotonic()
        while metric('.*state="(?:writing|waiting)".*'):
            assert time.monotonic() - closed < 20
            time.sleep(0.01)
        written.append(metric('zoo_tokens_total{.*kind="written".*}') - before)
    # a text may have ended before it was closed, but not each of five
    assert 0 < min(written) < 150


ELSEWHERE = [
    {"Host": "evil.example"},
    {"Host": "127.0.0.1.evil.example:80"},
    {"Host": "[::1"},
    {"Host": ""},
    {"Host": "evil.example@localhost"},
    {"Host": "localhost/evil.example"},
    {"Host": "localhost:80:80"},
    {"Host": "localhost."},
    {"Origin": "https://evil.example"},
    {"Origin": "http://localhost:1"},
    {"Origin": "null"},
]


@pytest.mark.parametrize("headers", ELSEWHERE, ids=str)
def test_pages_of_other_sites_are_not_answered(client, chat_address, headers):
    """A browser sends what any page asks it to send to this machine; without a key nothing else keeps it out."""
    for answer in (
        client.get("/v1/models", headers=headers),
        client.post("/v1/completions", json=ASKED, headers=headers),
    ):
        assert answer.status_code == 403 and "no page of another site" in answer.text
    assert client.get("/health", headers=headers).status_code == 200
    port = chat_address.rpartition(":")[2]
    for own in ({"Origin": chat_address}, {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}):
        assert client.post("/v1/completions", json=ASKED, headers=own).status_code == 200


def test_answers_that_are_too_large_as_json(client, monkeypatch):
    from zoo.serving import tensorflow_rest

    monkeypatch.setattr(tensorflow_rest, "MOST_ENTRIES", 500)
    inputs = {"token_ids": [[5, 6]], "padding_mask": [[True, True]]}
    answer = client.post("/v1/models/chat:predict", json={"signature_name": "forward", "inputs": inputs})
    assert answer.status_code == 422 and "at most 500 entries" in answer.text


def test_counters(client):
    def counted(name, **labels):
        page = client.get("/metrics").text
        assert "hello" not in page
        shown = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(f"{name}{{{shown}}} "))

    asked = {"gen_ai_operation_name": "text_completion", "gen_ai_request_model": "chat"}
    samples = {
        "http_server_request_duration_seconds_count": {
            "http_request_method": "POST",
            "http_route": "/v1/completions",
            "http_response_status_code": "200",
        },
        "gen_ai_server_request_duration_seconds_count": asked,
        "gen_ai_server_time_to_first_token_seconds_count": asked,
        "gen_ai_client_token_usage_sum": {**asked, "gen_ai_token_type": "output"},
    }

    def counts():
        return [counted(name, **labels) for name, labels in samples.items()]

    before = counts()
    body = {**ASKED, "max_tokens": 3, "ignore_eos": True}
    for stream in (False, True):
        assert client.post("/v1/completions", json={**body, "stream": stream}).status_code == 200
    assert [after - count for after, count in zip(counts(), before, strict=True)] == [2, 2, 1, 6]
    # a name that somebody made up is no label
    assert client.post("/v1/completions", json={**body, "model": "hello"}).status_code == 404
    assert client.request("HELLO", "/v1/completions").status_code == 405
    assert counted("zoo_model_ready", model="chat") == 1
    assert "# TYPE zoo_tokens_total counter" in client.get("/metrics").text


@pytest.mark.slow
def test_a_client_with_many_requests_leaves_places_for_others(chat_folder, run_server):
    """The proxy says who asks."""
    options = {"rows": 1, "steps": 1}
    with run_server(chat_folder, limits=Limits(waiting=4), options=options, client_header="X-Client") as address:
        answers, stop = {"greedy": [], "other": []}, threading.Event()

        def ask(client, most):
            body = {**ASKED, "max_tokens": most, "prompt": "hello"}
            answer = httpx.post(f"{address}/v1/completions", json=body, headers={"X-Client": client}, timeout=300)
            answers[client].append(answer)

        def ask_again():
            while not stop.is_set():
                ask("greedy", 40)
                time.sleep(0.01)

        threads = [threading.Thread(target=ask_again) for _ in range(8)]
        for thread in threads:
            thread.start()
        while not any(answer.status_code == 429 for answer in answers["greedy"]):
            time.sleep(0.01)
        for _ in range(5):
            ask("other", 4)
        stop.set()
        for thread in threads:
            thread.join()
    assert [answer.status_code for answer in answers["other"]] == [200] * 5
    refused = [answer for answer in answers["greedy"] if answer.status_code == 429]
    assert {answer.status_code for answer in answers["greedy"]} == {200, 429}
    assert all(answer.headers["Retry-After"] == "1" for answer in refused)


@pytest.mark.slow
def test_keys_queues_and_deadlines(chat_folder, run_server):
    limits = Limits(waiting=2, seconds=0.4)
    with run_server(chat_folder, api_key="secret", limits=limits, options={"rows": 1, "steps": 1}) as address:
        with httpx.Client(base_url=address, timeout=300) as client:
            assert client.get("/health").status_code == client.get("/ready").status_code == 200
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
                answer = client.get("/v1/models", headers=headers)
                assert answer.status_code == 401 and "secret" not in answer.text
            headers = {"Authorization": "Bearer secret"}
            assert client.get("/v1/models", headers=headers).status_code == 200
            # a key is what keeps others out: behind a proxy the host is another
            assert client.get("/v1/models", headers={**headers, "Host": "models.example"}).status_code == 200
            answers = []

            def ask():
                body = {**ASKED, "max_tokens": 150, "prompt": "hello"}
                answers.append(httpx.post(f"{address}/v1/completions", json=body, headers=headers, timeout=300))

            threads = [threading.Thread(target=ask) for _ in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            codes = {answer.status_code for answer in answers}
            assert 429 in codes and codes <= {200, 429, 504}
            full = next(answer for answer in answers if answer.status_code == 429)
            assert full.headers["Retry-After"] == "1" and "wait already" in full.text
