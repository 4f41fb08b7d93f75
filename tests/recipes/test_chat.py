"""The recipe that talks in a terminal, given its lines by a pipe."""

import io
import subprocess
import sys

import pytest

import zoo
from recipes import chat
from recipes.common.config import run_recipe
from recipes.common.errors import ConfigError, DataError
from zoo.tokenizers import ByteLevelBPETokenizer

pytestmark = pytest.mark.usefixtures("eagerly")
OPTIONS = {"max_new_tokens": 4, "jit_compile": False}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    tokenizer = ByteLevelBPETokenizer.train(
        ["a"], 259, special_tokens=["<|im_start|>"], end_token="<|im_end|>"
    ).with_chat_format("chatml")
    config = zoo.TransformerConfig(
        "decoder",
        tokenizer.vocabulary_size,
        hidden_dim=8,
        num_layers=1,
        max_length=120,
        attention=zoo.AttentionConfig(num_heads=1),
        feed_forward=zoo.FeedForwardConfig(8),
    )
    task = zoo.CausalLM(zoo.Backbone.from_config(config), tokenizer)
    folder = tmp_path_factory.mktemp("chat")
    task.save_to_preset(folder / "model")
    zoo.CausalLM(task.backbone, tokenizer.with_chat_format(None)).save_to_preset(folder / "plain")
    return folder / "model"


def talk(monkeypatch, model, *lines, **values):
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    return chat.main(chat.ChatConfig(model=str(model), options=values.pop("options", OPTIONS), **values))


def test_a_conversation_by_lines(model, monkeypatch, capsys):
    messages = talk(monkeypatch, model, "left out", "/reset", "", " one ", "two", "/quit", "three", system="Hm")
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "assistant"]
    assert [message["content"] for message in messages[1::2]] == ["one", "two"]
    task = zoo.CausalLM.from_preset(model)
    assert messages[4]["content"] == task.generate(messages[:4], **OPTIONS)
    assert capsys.readouterr().out.endswith("".join(f"{messages[place]['content']}\n" for place in (2, 4)))
    # the end of the input ends it, too; what is too long is left out
    assert len(talk(monkeypatch, model, "one", "a" * 200)) == 2
    assert "too long for the model: /reset" in capsys.readouterr().out


def test_what_is_wrong(model, monkeypatch, capsys):
    with pytest.raises(ConfigError, match="chat_format must be given: the tokenizer of .*plain has none"):
        talk(monkeypatch, model.parent / "plain")
    assert len(talk(monkeypatch, model.parent / "plain", "one", chat_format="chatml")) == 2
    with pytest.raises(ConfigError, match="chat_format: chat_format needs the token"):
        talk(monkeypatch, model, chat_format="gemma")
    with pytest.raises(ConfigError, match="options: .*temperatur"):
        talk(monkeypatch, model, "one", options={"temperatur": 1})
    # as a command, the model named first
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\n"))
    with pytest.raises(SystemExit):
        run_recipe(chat.main, chat.ChatConfig, "chat", [str(model), "--options", '{"max_new_tokens": 0}'])
    assert "recipes.chat: error: options: max_new_tokens" in capsys.readouterr().err


def test_an_input_that_is_no_text(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), "utf-8"))
    with pytest.raises(DataError, match="the input must be text in utf-8"):
        chat.read_line()


@pytest.mark.slow
def test_a_pipe(model):
    command = [sys.executable, "-m", "recipes.chat", str(model), "--options", '{"max_new_tokens": 2}']
    done = subprocess.run(command, input="one\n/reset\ntwo\n", capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") >= 2 and ">" not in done.stdout
