"""Renders conversations by a chat template, in a process of its own whose time and memory are bounded.

    python jinja_process.py < request.json > answer.json

A template is a program of strangers. Jinja's sandbox keeps it from files and from Python's insides, not from endless
loops and texts without end; those end this process and not the one that loads a model. It imports Jinja alone.
"""

import contextlib
import json
import sys
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

# of this process: processor time, memory beyond what it has when it begins, characters of all that it renders
SECONDS, _MEMORY, MOST_CHARACTERS = 5, 256 * 2**20, 2**20


class Generation(Extension):
    """`{% generation %}`, which says what an assistant wrote: here its content as it is."""

    tags: set[str] = {"generation"}

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def make_template(text: str, date: tuple[str, str]) -> jinja2.Template:
    """Returns a template with what the Transformers library lets templates use.

    Args:
        text: The template.
        date: Between which it gets the form of a date that it asks for, in place of today's date.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(
        value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: f"{date[0]}{form}{date[1]}"
    return environment.from_string(text)


def render_all(
    template: str, date: tuple[str, str], variables: dict[str, Any], probes: list[dict[str, Any]]
) -> list[dict[str, str]]:
    """Returns `{"text"}` or `{"error"}` for each conversation.

    Args:
        template, date: As for `make_template`.
        variables: What it gets in each case, the special tokens and tools.
        probes: `{"messages", "add_generation_prompt"}` of each conversation.
    """
    compiled = make_template(template, date)
    left, answers = MOST_CHARACTERS, []
    for probe in probes:
        try:
            text = ""
            for part in compiled.generate(**{"documents": None, **variables, **probe}):
                text += part
                if len(text) > left:
                    raise ValueError(f"it renders more than {MOST_CHARACTERS} characters")
            left -= len(text)
            answers.append({"text": text})
        except Exception as error:  # of a template: anything
            answers.append({"error": f"{type(error).__name__}: {error}"[:300]})
    return answers


def limit() -> None:
    """Bounds the time and the memory of this process, and lets it write no file and start no other."""
    try:
        import resource
    except ImportError:  # of Unix alone
        return
    limits = {"CPU": SECONDS, "CORE": 0, "FSIZE": 0, "NPROC": 0}
    with contextlib.suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:
        limits["AS"] = int(file.read().split()[0]) * resource.getpagesize() + _MEMORY
    for name, most in limits.items():
        # Linux has all of these; where a lower limit is set, that one holds
        with contextlib.suppress(AttributeError, ValueError, OSError):
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


def main() -> None:
    """Prints what the request asks for: `{"answers"}`, or `{"error"}`."""
    request = json.load(sys.stdin)
    limit()
    try:
        answer = {"answers": render_all(**request)}
    except Exception as error:  # of a template that is none: anything
        answer = {"error": f"{type(error).__name__}: {error}"[:300]}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
