"""The page in a browser: Chromium without a window, and a server with models of all kinds."""

import pytest
from chromium import CHROMIUM, open_chromium, wait_until

NEEDED = ("tensorflow_text", "msgpack", "starlette", "uvicorn", "prometheus_client", "pydantic")
# The answers of a fetch, slowed down: pieces of 100 ms each.
SLOW = """
const fetchAtOnce = window.fetch;
window.fetch = async (...request) => {
  const answer = await fetchAtOnce(...request);
  const slowly = new TransformStream({
    async transform(piece, controller) {
      for (const event of new TextDecoder().decode(piece).split(/(?<=\\n\\n)/)) {
        await new Promise((resolve) => setTimeout(resolve, 100));
        controller.enqueue(new TextEncoder().encode(event));
      }
    },
  });
  return new Response(answer.body.pipeThrough(slowly), answer);
};
"""


@pytest.fixture(scope="session")
def models(chat_export, tmp_path_factory):
    from served_tasks import export_tasks

    folder = tmp_path_factory.mktemp("models")
    export_tasks(folder)
    (folder / "chat").mkdir()
    (folder / "chat" / "1").symlink_to(chat_export)
    return folder


@pytest.fixture(scope="package")
def address(models, run_server):
    """One server for all files: each of its seven models is a process of its own."""
    pytest.importorskip("playwright.sync_api", reason="the extra test is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    from zoo.serving.options import Limits

    with run_server(models, limits=Limits(new_tokens=150), options={"rows": 4, "steps": 2}) as address:
        yield address


# its driver has an event loop in this thread, in which tests of other files could not run their own
@pytest.fixture(scope="module")
def browser():
    for name in NEEDED:
        pytest.importorskip(name, reason="the extra serve is not installed")
    with open_chromium() as browser:
        yield browser


@pytest.fixture
def until():
    """A function that waits until something is so."""
    return wait_until


@pytest.fixture
def open_page(browser):
    """A function that opens the page of a server; no error may be said, and no other host asked, until the end."""
    contexts, problems = [], []

    def listened(message):
        # the browser says so of every answer that refuses a request
        if message.type in ("error", "warning") and "the server responded with a status of 4" not in message.text:
            problems.append(message.text)

    def open_page(address, *, slow=False, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        if slow:
            page.add_init_script(SLOW)
        page.on("console", listened)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: request.url.startswith(f"{address}/") or problems.append(request.url))
        page.goto(f"{address}/")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not problems


@pytest.fixture
def page(open_page, address):
    page = open_page(address)
    page.get_by_label("Model", exact=True).wait_for()
    return page


@pytest.fixture
def choose():
    """A function that shows the view of a model."""

    def choose(page, model, view=None):
        with page.expect_response(lambda answer: answer.url.endswith(f"/{model}/metadata")) as answer:
            page.get_by_label("Model", exact=True).select_option(model)
        answer.value.finished()
        page.locator(".view").wait_for()
        # a model with one view has nothing to choose
        if view is not None and page.get_by_role("radio").count():
            page.get_by_role("radio", name=view).check()

    return choose


@pytest.fixture
def send():
    """A function that sends the form, and waits for the answer; returns what is said of it."""

    def send(page):
        page.locator(".view button.send").click()
        wait_until(lambda: page.locator(".view .status").text_content() != "Working …")
        return page.locator(".view .status").text_content()

    return send
