"""Log-probabilities of tokens, of prompts too, as clients of completions and chats ask for them."""

import json

import numpy as np
import pytest

for name in ("msgpack", "starlette", "uvicorn", "httpx", "prometheus_client", "pydantic"):
    pytest.importorskip(name, reason="the extra serve is not installed")

import httpx  # noqa: E402

from zoo.serving import text_answers  # noqa: E402
from zoo.serving.token_scores import as_lists, name_of, scores_of  # noqa: E402
from zoo.serving.token_scores import score_of as score_by_worker  # noqa: E402

TALK = [{"role": "user", "content": "who are you, wörld"}]
# characters of several tokens, of which the tokenizer has learned none
FIELDS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
TEXT = "hello wörld สวัสดี 你好 नमस्ते مرحبا"


@pytest.fixture
def client(chat_address):
    with httpx.Client(base_url=chat_address, timeout=300) as client:
        yield client


@pytest.fixture
def openai_client(chat_address):
    openai = pytest.importorskip("openai", reason="the extra test is not installed")
    client = openai.OpenAI(base_url=f"{chat_address}/v1", api_key="none", max_retries=0)
    client.name = client.models.list().data[0].id
    return client


def log_probabilities(model, ids):
    """Of every token behind each token, by a softmax in float64."""
    ids = np.array([ids])
    logits = np.asarray(model({"token_ids": ids, "padding_mask": np.ones_like(ids, bool)}), "float64")[0]
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def test_a_prompt_is_scored(openai_client, chat_model):
    ids = chat_model.tokenizer.tokenize(TEXT).numpy().tolist()
    expected = log_probabilities(chat_model, ids)
    chosen = [expected[place, token] for place, token in enumerate(ids[1:])]
    for prompt in (TEXT, ids):
        answer = openai_client.completions.create(
            model=openai_client.name, prompt=prompt, max_tokens=0, echo=True, logprobs=2
        )
        [choice], usage = answer.choices, answer.usage
        assert choice.text == TEXT and choice.finish_reason == "length"
        assert (usage.prompt_tokens, usage.completion_tokens) == (len(ids), 0)
        told = choice.logprobs
        assert told.token_logprobs[0] is None and told.top_logprobs[0] is None
        np.testing.assert_allclose(told.token_logprobs[1:], chosen, rtol=1e-4, atol=1e-4)
        for place, best in enumerate(told.top_logprobs[1:]):
            own = told.token_logprobs[place + 1]
            assert best[told.tokens[place + 1]] == own or max(best.values()) > own
            assert max(best.values()) == pytest.approx(expected[place].max(), rel=1e-4, abs=1e-4)
            assert 1 <= len(best) <= 3
        # tokens are at their offsets, those within a character where it begins
        for token, offset in zip(told.tokens, told.text_offset, strict=True):
            assert token.startswith("bytes:") or TEXT.startswith(token, offset)
        assert sorted(told.text_offset) == told.text_offset and told.text_offset[-1] <= len(TEXT)
        assert any(token.startswith("bytes:\\x") for token in told.tokens)


def test_continuations_are_compared(openai_client, chat_model):
    """As evaluations do: tokens of a context and a continuation, one more token, the log-probabilities in between."""
    context = chat_model.tokenizer.tokenize("hello who are").numpy().tolist()
    first = int(log_probabilities(chat_model, context)[-1].argmax())
    greedy = [first, int(log_probabilities(chat_model, [*context, first])[-1].argmax())]
    others = [5, 6]
    answer = openai_client.completions.create(
        model=openai_client.name,
        prompt=[context + greedy, context + others],
        temperature=0,
        max_tokens=1,
        logprobs=1,
        seed=1234,
        echo=True,
    )
    for choice, continuation in zip(answer.choices, (greedy, others), strict=True):
        told, place = choice.logprobs, slice(len(context), -1)
        scores = log_probabilities(chat_model, context + continuation)[len(context) - 1 : -1]
        expected = sum(row[token] for row, token in zip(scores, continuation, strict=True))
        assert sum(told.token_logprobs[place]) == pytest.approx(expected, rel=1e-4)
        is_best = [
            value == max(best.values())
            for value, best in zip(told.token_logprobs[place], told.top_logprobs[place], strict=True)
        ]
        assert all(is_best) is (continuation == greedy)


def test_answers_of_chats(openai_client, chat_model):
    asked = {"model": openai_client.name, "messages": TALK, "max_tokens": 24, "temperature": 0.8, "seed": 3}
    [choice] = openai_client.chat.completions.create(**asked, logprobs=True, top_logprobs=3).choices
    told = choice.logprobs.content
    spelled = b"".join(bytes(each.bytes or []) for each in told)
    assert spelled.decode("utf-8", "replace").strip() == choice.message.content.strip()
    prompt = openai_client.post("/../tokenize", body={"messages": TALK}, cast_to=dict)["tokens"]
    ids, scores = [], []
    for each in told:  # each token is the one of its spelling with its log-probability
        before = log_probabilities(chat_model, prompt + ids)[-1]
        assert [best.logprob for best in each.top_logprobs] == sorted(
            (best.logprob for best in each.top_logprobs), reverse=True
        )
        values = np.sort(before)[::-1][:3]
        np.testing.assert_allclose([best.logprob for best in each.top_logprobs], values, rtol=1e-3, atol=1e-3)
        close = np.flatnonzero(np.abs(before - each.logprob) < 1e-3)
        spelled = [token for token in close if name_of(score_of(chat_model, token)) == each.token]
        assert spelled
        ids, scores = [*ids, int(spelled[0])], [*scores, each.logprob]
    assert len(scores) >= 2
    # without any other choice of them, and in pieces
    assert openai_client.chat.completions.create(**asked).choices[0].logprobs is None
    events = list(openai_client.chat.completions.create(**asked, logprobs=True, top_logprobs=3, stream=True))
    pieces = [event.choices[0].logprobs.content for event in events if event.choices[0].logprobs]
    joined = [each for piece in pieces for each in piece]
    assert [each.token for each in joined] == [each.token for each in told]
    assert [each.logprob for each in joined] == pytest.approx(scores, abs=1e-4)
    assert len(pieces) > 1
    [plain] = openai_client.chat.completions.create(**asked, logprobs=True).choices
    assert all(each.top_logprobs == [] for each in plain.logprobs.content)
    assert [each.logprob for each in plain.logprobs.content] == pytest.approx(scores, abs=1e-4)


def score_of(model, token):
    return {"id": int(token), "bytes": model.tokenizer.spellings[token]}


def test_prompts_that_stream(openai_client):
    asked = {"model": openai_client.name, "prompt": ["hello", "wörld"], "max_tokens": 9, "echo": True, "logprobs": 1}
    whole = openai_client.completions.create(**asked)
    events = list(openai_client.completions.create(**asked, stream=True))
    for index, choice in enumerate(whole.choices):
        mine = [event.choices[0] for event in events if event.choices[0].index == index]
        assert "".join(each.text for each in mine) == choice.text
        told = {field: [value for each in mine for value in getattr(each.logprobs, field)] for field in FIELDS}
        assert told["tokens"] == choice.logprobs.tokens and told["text_offset"] == choice.logprobs.text_offset
        # rows are put together otherwise, so that sums differ by roundings
        assert told["token_logprobs"] == pytest.approx(choice.logprobs.token_logprobs, abs=1e-4)
        for mine, other in zip(told["top_logprobs"], choice.logprobs.top_logprobs, strict=True):
            assert mine is other is None or mine == pytest.approx(other, abs=1e-4)
    assert len(events) > 2


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("chat/completions", {"top_logprobs": 2}, "top_logprobs must be 0 without logprobs"),
        ("chat/completions", {"logprobs": True, "top_logprobs": 21}, "top_logprobs must be from 0 to 20"),
        ("chat/completions", {"max_tokens": 0}, "max_tokens must be from 1 to"),
        ("completions", {"logprobs": 21}, "logprobs must be from 0 to 20"),
        ("completions", {"max_tokens": 0}, "max_tokens must be at least 1 without echo"),
        ("completions", {"logprobs": True}, "logprobs must be a valid integer"),
    ],
)
def test_what_cannot_be_told_is_refused(openai_client, client, path, body, named):
    prompt = {"messages": TALK} if "chat" in path else {"prompt": "a"}
    answer = client.post(f"/v1/{path}", json={"model": openai_client.name, **prompt, **body})
    assert answer.status_code == 422 and named in answer.json()["error"]["message"]


def test_fields_by_hand():
    def score(index, spelled, value, best=()):
        return {"id": index, "bytes": spelled, "log_probability": value, "best": list(best)}

    best = [score(4, b" b", -0.5), score(5, b" b", -2.0), score(6, b"", -3.0)]
    # tokens of SentencePiece begin with a space, which the text lacks
    piece = {
        "before": "a 你",
        "scores_before": [score(1, b"", None), score(2, b" a", -1.0), score(3, b" \xe4", -2.0, best)],
    }
    piece["scores_before"] += [score(7, b"\xbd\xa0", -0.25)]
    told = as_lists(scores_of(piece), 3)
    assert told == {
        "tokens": ["token_id:1", "a", "bytes:\\x20\\xe4", "bytes:\\xbd\\xa0"],
        "token_logprobs": [None, -1.0, -2.0, -0.25],
        "top_logprobs": [
            None,
            {"a": -1.0},
            {" b": -0.5, "token_id:6": -3.0, "bytes:\\x20\\xe4": -2.0},
            {"bytes:\\xbd\\xa0": -0.25},
        ],
        "text_offset": [0, 0, 1, 2],
    }
    assert piece["scores_before"][1]["bytes"] == b" a"
    # a first token that is nothing but that space is the same among the best ones
    piece = {"before": "a", "scores_before": [score(5, b" ", -1.0, [score(5, b" ", -1.0)]), score(6, b"a", -2.0)]}
    assert as_lists(scores_of(piece), 1)["top_logprobs"] == [{"token_id:5": -1.0}, {"a": -2.0}]


def test_numbers_that_json_has_not():
    told = score_by_worker(0, float("-inf"), [(1, float("nan")), (0, float("-inf"))], [b"a", b"b"])
    assert [told["log_probability"], *(each["log_probability"] for each in told["best"])] == [-9999.0, None, -9999.0]
    json.dumps(as_lists([told], 2), allow_nan=False)


def test_prompts_with_more_tokens_than_are_told(client, openai_client, monkeypatch):
    monkeypatch.setattr(text_answers, "MOST_SCORES", 8)
    for length, status in ((4, 200), (5, 422)):
        body = {"model": openai_client.name, "prompt": [5] * length, "max_tokens": 0, "echo": True, "logprobs": 1}
        answer = client.post("/v1/completions", json=body)
        assert answer.status_code == status
    assert "at most 4 tokens" in answer.json()["error"]["message"]
