"""Chat formats: how each family of models writes a conversation, as plain data."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.tokenizers.base import Tokenizer

Message = Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class ChatFormat:
    r"""How a model writes conversations: fixed text around what each role says.

    A format is data, not a program. Templates in Jinja, which models bring along, are never run: they are programs of
    strangers, and what they return no longer tells the words of a user from the control tokens around them, so that a
    user could write control tokens. `chat_format_of` recognizes the common ones by their text.

    Args:
        before: For each role the text before its words.
        after: For each role the text after them.
        start: Text at the beginning of every conversation.
        reply: What asks for a reply.
        special_tokens: The control tokens in these texts; a tokenizer must have them.
        default_system: System message of a conversation that does not begin with one; `None` puts none there.
        strips: Whether white space around each message is dropped.
        alternates: Whether `user` and `assistant` must take turns, `user` first.

    Example:

    >>> CHAT_FORMATS["chatml"].render([{"role": "user", "content": "Hello"}])
    '<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n'
    """

    before: Mapping[str, str]
    after: Mapping[str, str]
    start: str = ""
    reply: str = ""
    special_tokens: tuple[str, ...] = ()
    default_system: str | None = None
    strips: bool = False
    alternates: bool = False

    def __post_init__(self) -> None:
        if self.before.keys() != self.after.keys():
            raise ValueError(f"after must have the roles of before, {sorted(self.before)}, got {sorted(self.after)}.")
        if self.default_system is not None and "system" not in self.before:
            raise ValueError(f"default_system must be None without the role 'system', got {self.default_system!r}.")

    def parts(self, messages: Sequence[Message], add_reply: bool = True) -> list[tuple[str, bool]]:
        """Returns the texts of a conversation in order, each with whether it is of the format (else of a message).

        Args:
            messages: Mappings with `role` and `content`.
            add_reply: Whether to end with what asks for a reply.

        Raises:
            ValueError: No messages, an unknown role or key, roles that do not take turns, or content that is no `str`;
                the message names the position.
        """
        messages = list(messages)
        self._check(messages)
        if self.default_system is not None and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": self.default_system})
        result = [(self.start, True)]
        for message in messages:
            role, content = message["role"], message["content"]
            result.append((self.before[role], True))
            result.append((content.strip() if self.strips else content, False))
            result.append((self.after[role], True))
        if add_reply:
            result.append((self.reply, True))
        return [(text, is_markup) for text, is_markup in result if text]

    def render(self, messages: Sequence[Message], add_reply: bool = True) -> str:
        """Returns a conversation as one text, to be read. To tokenize one use `tokenize_chat`.

        Args:
            messages: Mappings with `role` and `content`.
            add_reply: Whether to end with what asks for a reply.

        Raises:
            ValueError: As for `parts`.
        """
        return "".join(text for text, _ in self.parts(messages, add_reply))

    def _check(self, messages: list[Message]) -> None:
        if not messages:
            raise ValueError(f"messages must hold at least one message, got {messages!r}.")
        for place, message in enumerate(messages):
            if not isinstance(message, Mapping) or message.keys() != {"role", "content"}:
                raise ValueError(f"messages[{place}] must have the keys 'role' and 'content', got {message!r}.")
            if not isinstance(message["content"], str):
                raise ValueError(f"messages[{place}]['content'] must be a str, got {message['content']!r}.")
            if message["role"] not in self.before:
                raise ValueError(
                    f"messages[{place}]['role'] must be one of {sorted(self.before)}, got {message['role']!r}."
                )
            if message["role"] == "system" and place > 0:
                raise ValueError(
                    f"messages[{place}]['role'] must not be 'system' behind the first message, got 'system'."
                )
        if self.alternates:
            turns = [(place, message["role"]) for place, message in enumerate(messages) if message["role"] != "system"]
            for turn, (place, role) in enumerate(turns):
                expected = ("user", "assistant")[turn % 2]
                if role != expected:
                    raise ValueError(
                        f"messages[{place}]['role'] must be {expected!r}, got {role!r}: user and assistant must take "
                        "turns."
                    )


def _same(roles: Sequence[str], pattern: str) -> dict[str, str]:
    return {role: pattern.format(role=role) for role in roles}


_ALL = ("system", "user", "assistant")
_CHATML = ChatFormat(
    before=_same(_ALL, "<|im_start|>{role}\n"),
    after=_same(_ALL, "<|im_end|>\n"),
    reply="<|im_start|>assistant\n",
    special_tokens=("<|im_start|>", "<|im_end|>"),
)
_LLAMA3 = ChatFormat(
    before=_same(_ALL, "<|start_header_id|>{role}<|end_header_id|>\n\n"),
    after=_same(_ALL, "<|eot_id|>"),
    start="<|begin_of_text|>",
    reply="<|start_header_id|>assistant<|end_header_id|>\n\n",
    special_tokens=("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    strips=True,
)
# The formats by name. Llama 3.1 and later state dates before the system message: those of its template.
CHAT_FORMATS: dict[str, ChatFormat] = {
    "chatml": _CHATML,
    "qwen2.5": dataclasses.replace(
        _CHATML, default_system="You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    ),
    "smollm2": dataclasses.replace(
        _CHATML, default_system="You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    ),
    "llama3": _LLAMA3,
    "llama3.1": dataclasses.replace(
        _LLAMA3,
        before={
            **_LLAMA3.before,
            "system": _LLAMA3.before["system"] + "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
        },
        default_system="",
    ),
    "gemma": ChatFormat(
        before={"user": "<start_of_turn>user\n", "assistant": "<start_of_turn>model\n"},
        after=_same(_ALL[1:], "<end_of_turn>\n"),
        start="<bos>",
        reply="<start_of_turn>model\n",
        special_tokens=("<bos>", "<start_of_turn>", "<end_of_turn>"),
        strips=True,
        alternates=True,
    ),
    "mistral": ChatFormat(
        before={"user": "[INST] ", "assistant": ""},
        after={"user": " [/INST]", "assistant": "</s>"},
        start="<s>",
        special_tokens=("<s>", "</s>"),
        alternates=True,
    ),
    "zephyr": ChatFormat(
        before=_same(_ALL, "<|{role}|>\n"),
        after=_same(_ALL, "</s>\n"),
        reply="<|assistant|>\n",
        special_tokens=("</s>",),
    ),
}

# SHA-256 of templates that models publish, line breaks written as in Jinja's strings.
_KNOWN_TEMPLATES = {
    "fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e": "chatml",
    "1e51d5c0fec2f83da1953fb850b7b532b7da02d0dc35f9201e671e0b9a35a123": "gemma",
    "4f46ecd43418f216df8c26936c60e5d04bcc81db47db5d86fbe889f64212dd4c": "llama3",
    "26a59556925c987317ce5291811ba3b7f32ec4c647c400c6cc7e3a9993007ba7": "mistral",
}


def chat_format_of(template: str) -> ChatFormat:
    """Returns the format that a `chat_template` of Hugging Face writes, if its text is known.

    The template is compared, not run.

    Raises:
        ValueError: The template is not known. Choose one of `CHAT_FORMATS`, or write a `ChatFormat`.
    """
    digest = hashlib.sha256(template.strip().replace("\n", "\\n").encode("utf-8")).hexdigest()
    if digest not in _KNOWN_TEMPLATES:
        raise ValueError(
            f"chat_template is not one of the {len(_KNOWN_TEMPLATES)} that are known, and templates are never run. It "
            f"begins with {template.strip()[:80]!r}. Choose one of CHAT_FORMATS, {sorted(CHAT_FORMATS)}, or write a "
            "ChatFormat."
        )
    return CHAT_FORMATS[_KNOWN_TEMPLATES[digest]]


def tokenize_chat(
    tokenizer: Tokenizer, messages: Sequence[Message], chat_format: str | ChatFormat, add_reply: bool = True
) -> list[int]:
    """Tokenizes a conversation. Only the format makes control tokens; a message that spells one stays text.

    Ids equal those of the whole text with its control tokens, so long as no message spells one.

    Args:
        tokenizer: The tokenizer of the model.
        messages: Mappings with `role` and `content`.
        chat_format: A key of `CHAT_FORMATS`, or a `ChatFormat`.
        add_reply: Whether to end with what asks for a reply.

    Returns:
        The ids, start tokens of the format included.

    Raises:
        ValueError: The format is not known, the tokenizer lacks one of its control tokens, or `messages` is not a
            conversation of this format.

    Example:

    >>> tokenize_chat(tokenizer, [{"role": "user", "content": "Hello"}], "chatml")
    [151644, 872, 198, 9707, 151645, 198, 151644, 77091, 198]
    """
    if isinstance(chat_format, str):
        if chat_format not in CHAT_FORMATS:
            raise ValueError(f"chat_format must be one of {sorted(CHAT_FORMATS)}, got {chat_format!r}.")
        chat_format = CHAT_FORMATS[chat_format]
    for token in chat_format.special_tokens:
        if token not in tokenizer.special_tokens:
            raise ValueError(
                f"tokenizer must have the special token {token!r} of the format, got only {tokenizer.special_tokens}."
            )
    pattern = "|".join(re.escape(token) for token in chat_format.special_tokens)
    # Text between two control tokens is tokenized as one, as it would be without the borders of the messages.
    texts: list[str] = [""]
    control: list[str] = []
    for text, is_markup in chat_format.parts(messages, add_reply):
        if not (is_markup and pattern):
            texts[-1] += text
            continue
        pieces: list[Any] = re.split(f"({pattern})", text)
        texts[-1] += pieces[0]
        control += pieces[1::2]
        texts += pieces[2::2]
    rows = tokenizer.tokenize(texts).to_list()
    ids = list(rows[0])
    for token, row in zip(control, rows[1:], strict=True):
        ids += [tokenizer.token_to_id(token), *row]
    return ids
