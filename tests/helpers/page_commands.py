"""The commands of a documentation page: those of its bash blocks, continued lines joined; and running them."""

import contextlib
import importlib
import inspect
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
RECIPE = re.compile(r"python -m recipes\.(\w+)(.*?)(?: &)?$")


def commands(page: Path) -> list[str]:
    """Returns the commands of a page, top to bottom."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [line.strip() for block in blocks for line in re.sub(r"\\\n\s*", "", block).splitlines() if line.strip()]


def recipe_words(command: str) -> tuple[str, list[str]] | None:
    """Returns the name of the recipe that a command runs, and its words; None for another command."""
    found = RECIPE.search(command)
    return found and (found[1], shlex.split(found[2], comments=True))


def config_class(recipe: str) -> type:
    """Returns the class of the configs of a recipe."""
    module = importlib.import_module(f"recipes.{recipe}")
    return getattr(module, re.search(r"run_recipe\(main, (\w+),", inspect.getsource(module))[1])


def with_this_python(command: str) -> str:
    """Returns a command with the interpreter of this process."""
    return re.sub(r"\bpython -m", f"{shlex.quote(sys.executable)} -m", command)


def run(command: str) -> str:
    """Runs a command and returns what it prints.

    Raises:
        AssertionError: If it fails, with what it said.
    """
    done = subprocess.run(with_this_python(command), shell=True, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def free_port() -> str:
    """Returns a port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


@contextlib.contextmanager
def background(command: str) -> Iterator[None]:
    """Runs a command that ends with `&`, and ends it afterwards."""
    assert command.endswith(" &"), command
    process = subprocess.Popen(f"exec {with_this_python(command.removesuffix(' &'))}", shell=True)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()
