"""`generate` of Transformers behind Starlette and uvicorn, one request after the other, for the benchmark `serving`.

`python -m recipes.benchmark.serving_transformers PYTHON DIRECTORY PORT`; PYTHON has torch and transformers, and runs
this file as a script, which answers lines of JSON.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any


def write_texts(directory: str) -> None:
    """Answers requests on standard input: a line each, a line back."""
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(directory).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        ids = tokenizer(asked["prompt"], return_tensors="pt").input_ids
        with torch.inference_mode():
            options = {"max_new_tokens": asked["max_tokens"], "do_sample": False}
            written = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, ids.shape[1] :]
        text = tokenizer.decode(written, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        print(json.dumps({"text": text, "tokens": len(written)}), flush=True)


def serve(python: str, directory: str, port: int) -> None:
    """Serves completions of a model.

    Args:
        python: Interpreter with torch and transformers.
        directory: The model, as Transformers reads it.
        port: Port of HTTP.
    """
    import contextlib

    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    state: dict[str, Any] = {}

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
        state["process"] = await asyncio.create_subprocess_exec(python, "-P", __file__, directory, limit=2**24, **pipes)
        state["turn"] = asyncio.Lock()
        await state["process"].stdout.readline()
        yield
        state["process"].kill()
        await state["process"].wait()

    async def ready(request: Any) -> Any:
        return JSONResponse({"status": "ready"})

    async def completions(request: Any) -> Any:
        asked = await request.json()
        async with state["turn"]:
            line = json.dumps({"prompt": asked["prompt"], "max_tokens": asked["max_tokens"]}) + "\n"
            state["process"].stdin.write(line.encode())
            answer = json.loads(await state["process"].stdout.readline())
        usage = {"completion_tokens": answer["tokens"]}
        event = {"choices": [{"index": 0, "text": answer["text"], "finish_reason": "length"}], "usage": usage}
        return JSONResponse(event) if not asked.get("stream") else _as_stream(event)

    routes = [Route("/ready", ready), Route("/v1/completions", completions, methods=["POST"])]
    uvicorn.run(Starlette(routes=routes, lifespan=lifespan), port=port, log_level="warning", access_log=False)


def _as_stream(event: dict[str, Any]) -> Any:
    from starlette.responses import Response

    return Response(f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n", media_type="text/event-stream")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        write_texts(sys.argv[1])
    else:
        serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
