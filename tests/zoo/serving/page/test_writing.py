"""Texts on the page: written as the server writes them, with the settings, stopped, and refused."""

import json
import re
import time

import pytest

httpx = pytest.importorskip("httpx", reason="the extra test is not installed")
pytestmark = pytest.mark.browser


SETTINGS = {"Temperature": "0.9", "Top p": "0.95", "Most tokens": "30", "Seed": "5"}
BODY = {"model": "chat", "prompt": "hello", "temperature": 0.9, "top_p": 0.95, "max_tokens": 30, "seed": 5}


def set_all(page, values):
    page.get_by_text("Settings", exact=True).click()
    for label, value in values.items():
        page.get_by_label(label, exact=True).fill(value)


def test_a_streamed_text_is_that_of_the_server(page, address, choose, send):
    choose(page, "chat", "Complete")
    page.get_by_label("Text to continue").fill("hello")
    set_all(page, {**SETTINGS, "Stop strings": "QQ\n\\n\\n"})
    with page.expect_request("**/v1/completions") as asked:
        said = send(page)
    body = {**BODY, "stop": ["QQ", "\n\n"]}
    assert json.loads(asked.value.post_data) == {**body, "stream": True, "stream_options": {"include_usage": True}}
    answer = httpx.post(f"{address}/v1/completions", json=body, timeout=60).json()
    text, usage = answer["choices"][0]["text"], answer["usage"]
    assert len(text) > 9 and page.locator(".written").text_content() == text
    assert page.locator(".result .text").text_content() == "hello" + text
    counted = (
        rf"{usage['prompt_tokens']} tokens read, {usage['completion_tokens']} written(, [0-9]+\.[0-9] a second)?\.$"
    )
    assert re.search(counted, said)
    # screen readers are told the same, politely
    told = page.locator("#announcer")
    assert told.get_attribute("aria-live") == "polite" and told.text_content() == f"{text} {said}"


def test_nothing_but_the_text_is_sent_where_no_setting_is_given(page, address, choose, send):
    choose(page, "chat", "Complete")
    page.get_by_label("Text to continue").fill("who are")
    with page.expect_request("**/v1/completions") as asked:
        send(page)
    sent = json.loads(asked.value.post_data)
    assert sorted(sent) == ["model", "prompt", "stream", "stream_options"]
    answer = httpx.post(f"{address}/v1/completions", json={"model": "chat", "prompt": "who are"}, timeout=60).json()
    assert page.locator(".written").text_content() == answer["choices"][0]["text"]


def test_conversation(page, address, choose, send):
    choose(page, "chat", "Chat")
    set_all(page, {"System message": "You are a friend.", "Most tokens": "12"})
    messages = [{"role": "system", "content": "You are a friend."}]
    for said in ("who are you <b>today</b>", "and of mine, wörld 你好?"):
        page.get_by_label("Your message").fill(said)
        with page.expect_request("**/v1/chat/completions") as asked:
            send(page)
        messages.append({"role": "user", "content": said})
        body = {"model": "chat", "messages": messages, "max_tokens": 12}
        answer = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=60).json()
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
    shown = page.locator(".conversation > li:not(.assistant) .text").all_text_contents()
    assert shown == [message["content"] for message in messages if message["role"] != "assistant"]
    # the whole conversation is sent as the model wrote it, whatever is shown of it
    assert json.loads(asked.value.post_data)["messages"] == messages[:-1]
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").nth(1).click()
    assert page.evaluate("navigator.clipboard.readText()") == messages[-1]["content"].replace("\r", "")
    assert page.get_by_label("Your message").input_value() == ""
    page.get_by_role("button", name="New conversation").click()
    assert page.locator(".conversation li").count() == 0
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"


MARKDOWN = """# Größe
Hello **bold _你好_** and `a*b*`, snake_case 2*3*4 <b>no</b>

1. one
2. two
   - مرحبا

> said

```python
x = "*no*"
```
[a page](https://example.org/a) [none](javascript:alert(1)) **open"""
SHOWN = """<h3 dir="auto">Größe</h3>
<p dir="auto">Hello <strong>bold <em>你好</em></strong> and <code>a*b*</code>, snake_case 2*3*4 \
&lt;b&gt;no&lt;/b&gt;</p>
<ol start="1"><li dir="auto">one</li><li dir="auto">two<ul><li dir="auto">مرحبا</li></ul></li></ol>
<blockquote><p dir="auto">said</p></blockquote>
<pre dir="ltr" tabindex="0"><code>x = "*no*"</code></pre>
<p dir="auto"><a href="https://example.org/a" rel="noopener noreferrer" target="_blank">a page</a> \
[none](javascript:alert(1)) **open</p>"""


def test_markdown(page):
    shown = page.evaluate(
        """async (text) => {
          const { markdown } = await import('/page/markdown.js');
          return markdown(text).map((part) => part.outerHTML).join('\\n');
        }""",
        MARKDOWN,
    )
    assert shown == SHOWN


def test_escape_and_button_stop(open_page, address, choose, until):
    page = open_page(address, slow=True)
    whole = httpx.post(
        f"{address}/v1/completions", json={"model": "chat", "prompt": "hello", "max_tokens": 140}, timeout=60
    ).json()["choices"][0]["text"]
    choose(page, "chat", "Complete")
    page.get_by_label("Text to continue").fill("hello")
    set_all(page, {"Most tokens": "140"})
    for stop in (lambda: page.keyboard.press("Escape"), page.get_by_role("button", name="Stop").click):
        page.get_by_label("Text to continue").press("Control+Enter")
        until(lambda: page.evaluate("document.querySelector('.written')?.textContent.length > 1"))
        assert page.locator(".result").get_attribute("aria-busy") == "true"
        stop()
        page.get_by_text("Stopped.", exact=True).first.wait_for()
        text = page.locator(".written").text_content()
        assert 0 < len(text) < len(whole) and whole.startswith(text)
        time.sleep(0.3)
        assert page.locator(".written").text_content() == text
    # and the server has stopped too
    until(lambda: 'zoo_texts{model="chat",state="writing"} 0.0' in httpx.get(f"{address}/metrics").text)


def test_errors_are_said_in_the_words_of_the_server(page, address, choose, send):
    choose(page, "chat", "Complete")
    page.get_by_label("Text to continue").fill("hello " * 400)
    send(page)
    body = {"model": "chat", "prompt": "hello " * 400}
    reason = httpx.post(f"{address}/v1/completions", json=body).json()["error"]["message"]
    assert page.locator(".view [role=alert]").text_content() == reason and "tokens" in reason
    page.get_by_label("Text to continue").fill("hello")
    set_all(page, {"Temperature": "-1"})
    send(page)
    reason = httpx.post(f"{address}/v1/completions", json={**body, "temperature": -1}).json()["error"]["message"]
    assert page.locator(".view [role=alert]").text_content() == reason == "temperature must be from 0 to 100."
    page.get_by_label("Temperature").fill("")
    page.get_by_label("Most tokens").fill("5")
    assert "5 written" in send(page) and page.locator(".view [role=alert]").is_hidden()
    # a message that was not sent can be sent again
    choose(page, "chat", "Chat")
    page.get_by_label("Your message").fill("hello " * 400)
    send(page)
    assert page.locator(".conversation li").count() == 0
    assert page.get_by_label("Your message").input_value() == "hello " * 400
    page.evaluate("window.fetch = () => Promise.reject(new TypeError('gone')); 0")
    page.get_by_label("Your message").fill("hello")
    send(page)
    assert page.locator(".view [role=alert]").text_content() == "The server cannot be reached."


def test_text_to_text(page, address, choose, send):
    choose(page, "translations", "Write")
    page.get_by_label("Text", exact=True).fill("Ada lives in London")
    send(page)
    path = f"{address}/v1/models/translations:predict"
    text = httpx.post(path, json={"instances": ["Ada lives in London"]}, timeout=60).json()["predictions"][0]
    assert text and page.locator(".written").text_content() == text
    set_all(page, {"Most tokens": "3"})
    send(page)
    as_exported = {"seed": 0, "temperature": -1.0, "top_k": -1, "top_p": -1.0, "stop": []}
    inputs = {"texts": ["Ada lives in London"], "max_new_tokens": 3, **as_exported}
    body = {"signature_name": "generate", "inputs": inputs}
    shorter = httpx.post(path, json=body, timeout=60).json()["outputs"][0]
    assert shorter != text and page.locator(".written").text_content() == shorter


def test_key(open_page, chat_export, run_server):
    with run_server(chat_export, api_key="sesame") as address:
        page = open_page(address)
        page.get_by_label("Key of this server").fill("wrong")
        page.keyboard.press("Enter")
        page.get_by_role("alert").filter(has_text="must have the key").wait_for()
        assert page.evaluate("document.activeElement.id") == "key-value"
        page.get_by_label("Key of this server").fill("sesame")
        page.get_by_role("button", name="Use this key").click()
        page.get_by_label("Your message").wait_for()
        assert page.locator("#key").is_hidden() and page.locator("#problem").is_hidden()
        stored = "[document.cookie, localStorage.length, sessionStorage.length, location.href]"
        assert page.evaluate(stored) == ["", 0, 0, f"{address}/"]
        page.reload()
        page.get_by_label("Key of this server").wait_for()
        assert page.get_by_label("Key of this server").input_value() == ""
