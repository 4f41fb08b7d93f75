"""The commands and programs of docs/guides/serving.md, in an empty folder, with a training of seconds."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

for name in ("msgpack", "starlette", "uvicorn", "openai", "prometheus_client", "pydantic", "tensorflow_serving"):
    pytest.importorskip(name, reason="the extras serve and test are not installed")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guides" / "serving.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1].splitlines()
PROGRAMS = re.findall(r"^```py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
QUICK = """--data.train pairs.tsv --data.validation pairs.tsv --training.epochs 1 --training.warmup_steps 2
 --training.samples 1 --tokenizer.vocabulary_size 40 --model.options '{"num_layers": 1, "hidden_dim": 16}'"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = [f"{day} may {year}\t{year}-05-{day}" for day in range(10, 28) for year in (1976, 1999, 2003, 2011)]
    Path("pairs.tsv").write_text("\n".join(pairs) + "\n")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


def ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    numbers = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return numbers


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.pages
def test_four_commands(folder, capsys):
    http, rpc = ports(2)

    def with_ports(text):
        text = text.replace("8501", http).replace("8500", rpc)
        return text.replace("recipes.serve runs/dates", f"recipes.serve runs/dates --port {http}")

    train, serve, ask = (with_ports(line).removesuffix(" &") for line in COMMANDS)
    assert train == "python -m recipes.translate"
    command = f"{train} {' '.join(QUICK.splitlines())}"
    subprocess.run(command.replace("python ", f"{sys.executable} "), shell=True, check=True, timeout=400)
    server = subprocess.Popen(f"exec {serve}".replace("python ", f"{sys.executable} "), shell=True)
    try:
        answer = subprocess.run(ask, shell=True, check=True, capture_output=True, text=True, timeout=200).stdout
        assert answer.startswith('{"predictions":["') and answer.endswith('"]}'), answer
        for program in PROGRAMS[:2]:  # the others ask a chat: tests/zoo/serving/test_tools.py
            exec(compile(with_ports(program), "docs/guides/serving.md", "exec"), {"__name__": "documentation"})
        printed = capsys.readouterr().out.strip().splitlines()
        assert printed[0] == f"[{printed[1].encode()!r}]" and f'["{printed[1]}"]' in answer
    finally:
        os.kill(server.pid, signal.SIGTERM)
        for _ in range(300):
            if server.poll() is not None:
                break
            time.sleep(0.1)
        server.kill()


def test_the_page_names_what_there_is():
    from zoo.serving.options import Limits

    named = re.findall(r"^\| `limits\.(\w+)`", PAGE, re.MULTILINE)
    assert set(named) == set(Limits.__dataclass_fields__) and len(COMMANDS) == 3 and len(PROGRAMS) == 6


def test_program_that_mounts_the_server(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("runs/dates").mkdir(parents=True)
    names = {}
    (program,) = [each for each in PROGRAMS if "zoo.serving.app" in each]
    exec(compile(program, "docs/guides/serving.md", "exec"), names)
    (mount,) = names["app"].routes
    assert mount.path == "/models" and "/v1/completions" in {route.path for route in mount.routes}
