"""Chat templates of checkpoints: read, refused, bounded, written back."""

import datetime
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from chat_templates import SPECIAL, TEMPLATES, TOKENS

import zoo
from zoo.tokenizers import CHAT_FORMATS, chat_format_of, load_huggingface, save_huggingface, tokenize_chat
from zoo.tokenizers.chat import jinja_process, write_template
from zoo.tokenizers.chat.rendering import DATE_BEGINS, DATE_ENDS, render_template

USER, BOT, SYSTEM = "user", "assistant", "system"
TALKS = [
    ([(USER, "Hello {{ there }}\n"), (BOT, "  Hi"), (USER, " \nWho?")], True),
    ([(SYSTEM, "\tBe brief. "), (USER, "Hello "), (BOT, "Hi"), (USER, "Who?")], True),
    ([(SYSTEM, "Be brief."), (USER, "Hello"), (BOT, "Hi"), (USER, "W"), (BOT, "<think>\nHm\n</think>\n\nMe")], False),
]
ENDS = {"olmo2": "</s>", "gpt_oss": "<|return|>", "phi3": "<|end|>", "deepseek": "</s>", "llama3.2": "<|eot_id|>"}


def talk_of(pairs):
    return [{"role": role, "content": content} for role, content in pairs]


@pytest.fixture(scope="module")
def formats():
    return {name: chat_format_of(template, SPECIAL, TOKENS) for name, template in TEMPLATES.items()}


def test_formats_write_what_templates_write(formats):
    for name, template in TEMPLATES.items():
        chat_format = formats[name]
        probes = [(talk_of(pairs), asked) for pairs, asked in TALKS]
        if "system" not in chat_format.turns:
            probes = probes[:1]
        # that of Mistral leaves out a system message where no reply is asked for
        probes = probes[:2] if chat_format.system_place == "last_user" else probes
        for (talk, asked), text in zip(probes, render_template(template, SPECIAL, probes), strict=True):
            if chat_format.date is not None:
                today = datetime.datetime.now().strftime(chat_format.date)
                text = text.replace(f"{DATE_BEGINS}{chat_format.date}{DATE_ENDS}", today)
            assert chat_format.render(talk, asked) == text, name


def test_what_formats_are(formats):
    known = {"chatml": "chatml", "llama2": "llama2", "mistral": "mistral"}
    assert {name: formats[name] for name in known} == {name: CHAT_FORMATS[known[name]] for name in known}
    for name, end in ENDS.items():
        assert formats[name].end_of_turn == (end, None)
    assert formats["qwen2"].default_system == "You are a helpful assistant."
    assert formats["gemma3"].system_place == "first_user" and formats["mistral3"].system_place == "last_user"
    assert formats["llama3.2"].date == "%d %b %Y" and formats["smollm3"].date == "%d %B %Y"
    assert "system" not in formats["gemma"].turns and formats["gemma"].alternates
    # thoughts are text, which users see
    assert not {"<think>", "</think>"} & {token for each in formats.values() for token in each.special_tokens}


def test_what_is_written_is_read_again(formats):
    for chat_format in [*formats.values(), CHAT_FORMATS["qwen2.5"], CHAT_FORMATS["llama3.1"]]:
        again = chat_format_of(write_template(chat_format), {}, (*TOKENS, "<|begin_of_text|>"))
        assert {**again.to_dict(), "special_tokens": None} == {**chat_format.to_dict(), "special_tokens": None}


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for", "TemplateSyntaxError"),
        ("{{ 'x' * 10**10 }}", "it cannot write user"),
        ("{% for i in range(10**9) %}x{% endfor %}", "it cannot write user"),
        ("{% for i in range(90000) %}{{ 'x' * 1000 }}{% endfor %}", "it cannot write user"),
        ("{{ cycler.__init__.__globals__.os.system('true') }}", "it cannot write user"),
        ("{% include '/etc/passwd' %}", "it cannot write user"),
        ("x" * 200_000, "it must have at most 131072 characters"),
        ("{{ messages | length }}", "it leaves out or moves messages of user"),
        ("{{ messages | map(attribute='content') | map('upper') | join }}", "it leaves out or moves messages"),
        (TEMPLATES["chatml"].replace("message.content", "message.content[:20]"), "no ChatFormat writes a conversation"),
        (TEMPLATES["chatml"] + "{{ strftime_now('%d') }}{{ strftime_now('%Y') }}", "dates in several forms"),
    ],
)
def test_templates_that_are_refused(template, reason):
    with pytest.raises(ValueError, match=reason):
        chat_format_of(template, SPECIAL, TOKENS)


@pytest.mark.slow
def test_a_template_without_end_is_stopped():
    started = time.monotonic()
    loops = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(ValueError, match="too much time or memory"):
        chat_format_of(loops, SPECIAL, TOKENS)
    assert time.monotonic() - started < 35


def test_a_lower_limit_leaves_the_others_in_place():
    program = (
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (3, 3))\n"
        "import jinja_process\njinja_process.limit()\n"
        "print(*(resource.getrlimit(getattr(resource, 'RLIMIT_' + name))[0] for name in ('CPU', 'FSIZE', 'AS')))"
    )
    folder = Path(jinja_process.__file__).parent
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, check=True)
    seconds, size, memory = map(int, done.stdout.split())
    assert (seconds, size) == (3, 0) and 2**28 < memory < 2**33


@pytest.fixture(scope="module")
def directory(byte_level, tmp_path_factory):
    """A directory of Hugging Face with a chat template."""
    folder = tmp_path_factory.mktemp("chat")
    save_huggingface(byte_level.with_chat_format("chatml"), folder)
    return folder


def written(directory, folder, template=None, **values):
    shutil.copytree(directory, folder, dirs_exist_ok=True)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder


def test_templates_of_directories(directory, tmp_path):
    assert load_huggingface(directory).chat_format == CHAT_FORMATS["chatml"]
    qwen = chat_template = TEMPLATES["qwen2"]
    named = [{"name": "tool_use", "template": "{{ x }}"}, {"name": "default", "template": chat_template}]
    tokenizer = load_huggingface(written(directory, tmp_path / "a", chat_template=named))
    assert tokenizer.chat_format.default_system == "You are a helpful assistant."
    # the file comes before the key
    tokenizer = load_huggingface(written(directory, tmp_path / "b", qwen, chat_template="{{ x }}"))
    assert tokenizer.chat_format.default_system == "You are a helpful assistant."
    assert load_huggingface(written(directory, tmp_path / "c", chat_template=None)).chat_format is None


def test_a_directory_whose_template_is_refused_is_read_for_texts(directory, tmp_path):
    for number, (value, reason) in enumerate(
        [
            (
                "{{ messages | length }}",
                r"tokenizer_config.json has a chat template that cannot be read: it leaves out",
            ),
            (7, "chat_template must be a text or a list of an object or null, got 7"),
            ([{"name": "a", "template": "b"}, {"name": "c", "template": "d"}], "must have the name 'default'"),
        ]
    ):
        tokenizer = load_huggingface(written(directory, tmp_path / str(number), chat_template=value))
        assert tokenizer.tokenize("hello").shape[0] > 0
        with pytest.raises(ValueError, match=reason) as caught:
            tokenize_chat(tokenizer, talk_of([(USER, "a")]))
        assert 'from_preset(..., chat_format="chatml")' in str(caught.value)


def test_a_model_of_the_library_chats(tiny_llama, tmp_path):
    """Its template goes with it, and comes back."""
    model = zoo.CausalLM(tiny_llama.backbone, tiny_llama.tokenizer.with_chat_format("zephyr"))
    model.save_to_huggingface(tmp_path / "model")
    again = zoo.CausalLM.from_preset(tmp_path / "model")
    assert again.chat_format == CHAT_FORMATS["zephyr"]
    other = zoo.CausalLM.from_preset(tmp_path / "model", chat_format="llama2")
    assert other.chat_format is CHAT_FORMATS["llama2"]
