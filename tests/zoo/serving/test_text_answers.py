"""How texts become answers, with a worker that says what the test wants."""

import asyncio
import contextlib
import json
import types

import pytest

for name in ("msgpack", "starlette", "uvicorn", "pydantic"):
    pytest.importorskip(name, reason="the extra serve is not installed")

from zoo.serving.openai_choices import ChatAnswer  # noqa: E402
from zoo.serving.openai_fields import ChatBody  # noqa: E402
from zoo.serving.options import Limits  # noqa: E402
from zoo.serving.problems import Problem  # noqa: E402
from zoo.serving.text_answers import answer_texts  # noqa: E402

LAST = {"text": "", "calls": [], "tokens": 9, "prompt_tokens": 3, "log_probability": -1.0}


class Worker:
    """Says the pieces of a text, each after some seconds."""

    about = {"endpoints": {"advance": {}}}

    def __init__(self, pieces, seconds):
        self.pieces, self.seconds = pieces, seconds

    async def write(self, request):
        for piece in self.pieces:
            await asyncio.sleep(self.seconds)
            yield {"calls": [], **piece}


def lines(pieces, seconds=0.0, **body):
    """The lines of a stream, or the answer."""
    limits = Limits(heartbeat_seconds=0.1)
    worker = Worker(pieces, seconds)

    @contextlib.asynccontextmanager
    async def served(name):
        yield worker

    state = types.SimpleNamespace(
        models=types.SimpleNamespace(worker=served), limits=limits, client_of=lambda request: "someone"
    )

    async def receive():
        await asyncio.Event().wait()

    app = types.SimpleNamespace(state=types.SimpleNamespace(server=state))
    request = types.SimpleNamespace(app=app, scope={}, receive=receive, is_disconnected=receive)
    body = ChatBody.read({"model": "a", "messages": [{"role": "user", "content": "a"}], **body}, limits)

    async def asked():
        answer = await answer_texts(request, body, [body.request()], ChatAnswer(body))
        if not body.stream:
            return json.loads(answer.body)
        return [line async for line in answer.body_iterator]

    return asyncio.run(asked())


def test_a_stream_whose_text_is_held_back_has_comments():
    """What may become a call comes in pieces without words, which are no events."""
    pieces = [{"text": ""}] * 8 + [{**LAST, "text": "你好", "reason": "stop"}]
    said = lines(pieces, seconds=0.04, stream=True)
    assert 2 <= said.count(": waiting\n\n") <= 4
    deltas = [json.loads(line.removeprefix("data: "))["choices"][0] for line in said if line.startswith("data: {")]
    assert "".join(each["delta"].get("content", "") for each in deltas) == "你好"
    assert deltas[-1]["finish_reason"] == "stop" and said[-1] == "data: [DONE]\n\n"
    assert ": waiting\n\n" not in lines(pieces[-1:], stream=True)


@pytest.mark.parametrize("reason", ["failed", "cancelled"])
def test_a_text_that_failed_is_no_answer(reason):
    piece = {**LAST, "text": "a", "reason": reason}
    with pytest.raises(Problem) as caught:
        lines([piece])
    assert caught.value.status == 500
    said = lines([{"text": "b"}, piece], stream=True)  # its status has been said
    assert json.loads(said[-1].removeprefix("data: "))["error"]["code"] == 500


def test_a_whole_answer_has_what_all_pieces_told():
    score = {"id": 1, "bytes": b"a", "log_probability": -0.5, "best": []}
    pieces = [{"text": "a", "scores": [score]}, {**LAST, "text": "b", "scores": [score], "reason": "length"}]
    answer = lines(pieces, logprobs=True)
    [choice] = answer["choices"]
    assert choice["message"]["content"] == "ab" and choice["finish_reason"] == "length"
    assert [each["logprob"] for each in choice["logprobs"]["content"]] == [-0.5, -0.5]
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}
