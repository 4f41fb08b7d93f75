"""Rendering of an untrusted chat template in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.tokenizers.chat.turn import Message

MOST_TEMPLATE = 2**17  # characters; that of gpt-oss has 17,000
# what a template gets in the place of today's date: the form that it asks for between these
DATE_BEGINS, DATE_ENDS = "\ue000", "\ue001"
_PROCESS = Path(__file__).with_name("jinja_process.py")
# by the clock, for 5 seconds of processor time: other processes take their share
_PATIENCE = 30
_MOST_ANSWER = 2**23


def render_template(
    template: str, variables: dict[str, Any], probes: Sequence[tuple[Sequence[Message], bool]], tools: Any = None
) -> list[str | None]:
    """Returns the renderings of conversations by a template. None for one on which it raises an error.

    Jinja's sandbox runs it in a separate process with at most 5 seconds and 256 MiB.

    Args:
        template: The template.
        variables: Special tokens and other variables of the template.
        probes: Conversations, each with whether a reply is asked for.
        tools: The tools that they have; None for none.

    Raises:
        ValueError: If it is not a template, takes too much time or memory, or renders too much text.
    """
    if len(template) > MOST_TEMPLATE:
        raise ValueError(f"it must have at most {MOST_TEMPLATE} characters, got {len(template)}")
    if not sys.executable:
        raise ValueError("it can be run only in a separate process, which this Python cannot start")
    request = {
        "template": template,
        "date": [DATE_BEGINS, DATE_ENDS],
        "variables": {**variables, "tools": tools},
        "probes": [{"messages": list(talk), "add_generation_prompt": asked} for talk, asked in probes],
    }
    # -P: the modules next to the script are not to be taken for those of the same names elsewhere
    command = [sys.executable, "-P", str(_PROCESS)]
    kept = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "SYSTEMROOT")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    try:
        done = subprocess.run(
            command,
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=_PATIENCE,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"it takes more than {_PATIENCE} seconds") from None
    try:
        answer = json.loads(done.stdout[:_MOST_ANSWER])
    except ValueError:
        if b"No module named 'jinja2'" in done.stderr:
            raise ValueError("reading it needs the package jinja2: pip install jinja2") from None
        raise ValueError("it takes too much time or memory") from None
    if "error" in answer:
        raise ValueError(answer["error"])
    return [one.get("text") for one in answer["answers"]]
