"""Talks to a saved chat model in a terminal, or reads one message per line from a pipe.

    python -m recipes.chat runs/finetune/model
    python -m recipes.chat hf://owner/name --system "Answer in one sentence." --options '{"max_new_tokens": 200}'
    echo "Which year is 4 May 1999?" | python -m recipes.chat runs/finetune/model

The whole conversation is given to the model each time. /reset begins a new one, /quit or the end of the input ends it;
Ctrl-C ends an answer.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import zoo
from recipes.common.config import run_recipe, setting
from recipes.common.data.chat_files import CHAT_FORMATS
from recipes.common.errors import ConfigError, DataError, errors_of
from recipes.common.saved_models import load_task, require_texts_alone

RESET, QUIT = "/reset", "/quit"
Messages = list[dict[str, str]]


@dataclasses.dataclass(frozen=True)
class ChatConfig:
    """Talks to a saved language model whose tokenizer has a chat format."""

    model: str = setting(
        help="Folder of a run, or directory of a saved model, also of the Transformers library, or hf://owner/name.",
        words="first",
        offers="paths",
    )
    system: str | None = setting(None, "System message at the beginning of the conversation.")
    chat_format: str | None = setting(
        None,
        f"Chat format, if the model names none: {CHAT_FORMATS}.",
    )
    options: dict[str, Any] = setting({}, "Arguments of generate, for example {sampler: sample, max_new_tokens: 200}.")


def main(config: ChatConfig) -> Messages:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        The conversation.
    """
    require_texts_alone(config.options, "num_results", "return_scores", "return_cache", "cache")
    task = load_task(config.model, "CausalLM")
    if config.chat_format is not None:
        with errors_of("chat_format"):
            task.chat_format = config.chat_format
    if task.chat_format is None:
        raise ConfigError(
            f"chat_format must be given: the tokenizer of {config.model} has none"
            + (f" ({task.tokenizer.no_chat_because})" if task.tokenizer.no_chat_because else "")
        )
    opening = [] if config.system is None else [{"role": "system", "content": config.system}]
    with errors_of("system"):
        task.chat_format.check([*opening, {"role": "user", "content": ""}])
    messages = list(opening)
    while (text := read_line()) not in (None, QUIT):
        if text == RESET:
            messages = list(opening)
        elif text:
            messages = turn(task, [*messages, {"role": "user", "content": text}], config.options)
    return messages


def read_line() -> str | None:
    """Returns the next line of the input without its end; None behind the last. A terminal is asked for it.

    Raises:
        DataError: If it cannot be decoded.
    """
    if sys.stdin.isatty():
        print("> ", end="", flush=True)
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError as error:
        raise DataError(f"the input must be text in {error.encoding}: {error}") from error
    return line.strip() if line else None


def turn(task: zoo.CausalLM, messages: Messages, options: dict[str, Any]) -> Messages:
    """Prints the answer to a conversation as it is written, and returns both.

    Args:
        task: The model.
        messages: The conversation, the last message by the user.
        options: Arguments of `stream`.

    Returns:
        The conversation with the answer; without its last message where it is too long.

    Raises:
        ConfigError: If an option is wrong.
    """
    pieces: list[str] = []
    try:
        for piece in task.stream(messages, **options):
            pieces.append(piece)
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        print(" ...", end="")
    except (TypeError, ValueError) as error:
        if not str(error).startswith("messages "):
            raise ConfigError(f"options: {error}") from error
        print(f"This is too long for the model: {RESET} begins a new conversation.")
        return messages[:-1]
    print()
    return [*messages, {"role": "assistant", "content": "".join(pieces)}]


if __name__ == "__main__":
    run_recipe(main, ChatConfig, "chat", prints_results=True)
