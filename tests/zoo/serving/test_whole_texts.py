"""Completions of models that cannot write token by token for a server: through their endpoints generate and chat."""

import pytest

for name in ("msgpack", "starlette", "uvicorn", "httpx", "prometheus_client", "pydantic"):
    pytest.importorskip(name, reason="the extra serve is not installed")

import httpx  # noqa: E402

TALK = [{"role": "user", "content": "who are you"}]


# exports and a server of its own: minutes
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(chat_model, trained, tmp_path_factory, run_server):
    folder = tmp_path_factory.mktemp("whole")
    trained.export(folder / "copies" / "1", max_new_tokens=12, jit_compile=False)
    processors = [{"name": "repetition_penalty", "penalty": 1.3}]
    chat_model.export(folder / "chat" / "1", processors=processors, max_new_tokens=9, jit_compile=False)
    sampler = {"name": "sample", "temperature": 0.9, "typical_p": 0.9}
    chat_model.export(folder / "draws" / "1", sampler=sampler, max_new_tokens=9, jit_compile=False)
    with run_server(folder) as address:
        yield address


@pytest.fixture
def client(address):
    with httpx.Client(base_url=address, timeout=300) as client:
        yield client


def test_sources_become_targets(client, trained, copied):
    body = {"model": "copies", "prompt": copied[:3], "max_tokens": 8}
    answer = client.post("/v1/completions", json=body).json()
    expected = trained.generate(copied[:3], max_new_tokens=8, jit_compile=False)
    assert [choice["text"] for choice in answer["choices"]] == expected == copied[:3]
    assert answer["usage"] is None and answer["choices"][0]["finish_reason"] == "stop"


def test_settings_of_a_request(client, trained, copied):
    body = {"model": "copies", "prompt": copied[0], "temperature": 2.0, "top_k": 5, "seed": 3, "stop": ["zzz", "kappa"]}
    answer = client.post("/v1/completions", json=body).json()
    sampler = {"name": "sample", "temperature": 2.0, "top_k": 5}
    options = {"sampler": sampler, "seed": 3, "stop": ["zzz", "kappa"], "max_new_tokens": 12, "jit_compile": False}
    assert answer["choices"][0]["text"] == trained.generate(copied[0], **options)


def test_a_stream_has_the_text_in_one_piece(address, copied):
    openai = pytest.importorskip("openai", reason="the extra test is not installed")
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
    pieces = list(client.completions.create(model="copies", prompt=copied[0], stream=True))
    assert [piece.choices[0].text for piece in pieces if piece.choices[0].text] == [copied[0]]
    assert pieces[-1].choices[0].finish_reason == "stop"


def test_a_decoder_with_processors(client, chat_model):
    options = {"processors": [{"name": "repetition_penalty", "penalty": 1.3}], "jit_compile": False}
    answer = client.post("/v1/completions", json={"model": "chat", "prompt": "hello", "max_tokens": 5}).json()
    assert answer["choices"][0]["text"] == chat_model.generate("hello", max_new_tokens=5, strip_prompt=True, **options)
    for change, most in (({}, 9), ({"max_tokens": 5}, 5)):
        answer = client.post("/v1/chat/completions", json={"model": "chat", "messages": TALK, **change}).json()
        assert answer["choices"][0]["message"]["content"] == chat_model.generate(TALK, max_new_tokens=most, **options)


def test_drawn_texts_do_not_depend_on_others(client, chat_model):
    """A text that is put together with others would be drawn from another stream."""
    sampler = {"name": "sample", "temperature": 0.9, "typical_p": 0.9}
    prompts = ["hello", "who are", "friend of", "today"]
    body = {"model": "draws", "prompt": prompts, "seed": 7}
    answer = client.post("/v1/completions", json=body).json()
    options = {"max_new_tokens": 9, "strip_prompt": True, "sampler": sampler, "seed": 7, "jit_compile": False}
    assert [choice["text"] for choice in answer["choices"]] == [
        chat_model.generate(each, **options) for each in prompts
    ]
    about = client.post("/v1/completions", json={**body, "seed": None}).json()
    assert len(about["choices"]) == 4


@pytest.mark.parametrize(
    ("model", "change", "reason"),
    [
        ("copies", {"min_p": 0.5}, "min_p is not taken by this model"),
        ("copies", {"presence_penalty": 0.5}, "presence_penalty is not taken by this model"),
        ("copies", {"frequency_penalty": -0.5}, "frequency_penalty is not taken by this model"),
        ("copies", {"logit_bias": {"1": 2}}, "logit_bias is not taken by this model"),
        ("copies", {"min_tokens": 1}, "min_tokens is not taken by this model"),
        ("copies", {"ignore_eos": True}, "ignore_eos is not taken by this model"),
        ("copies", {"n": 2}, "n and best_of must be 1"),
        ("copies", {"prompt": [5, 6]}, "takes prompts as texts alone"),
    ],
)
def test_settings_that_an_endpoint_does_not_take(client, model, change, reason):
    answer = client.post("/v1/completions", json={"model": model, "prompt": "alpha beta", **change})
    assert answer.status_code == 422 and reason in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("model", "change", "reason"),
    [
        ("chat", {"n": 2}, "n and best_of must be 1 with this model."),
        ("draws", {"min_p": 0.5}, "min_p is not taken by this model."),
        ("draws", {"temperature": 0.5}, "must be below 0, the settings of the export, with Sample"),
        ("copies", {}, "This model has no endpoint chat_generate."),
    ],
)
def test_conversations_that_cannot_be_answered_so(client, model, change, reason):
    answer = client.post("/v1/chat/completions", json={"model": model, "messages": TALK, **change})
    assert answer.status_code == 422 and reason in answer.json()["error"]["message"]
