// Requests to the server that this page is from. The key is in this variable, and nowhere else.

let key = "";

/** Sets the key that requests bring; "" for none. */
export function useKey(value) {
  key = value;
}

/** What the server said when it refused a request. */
export class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Returns the JSON that is at a path. */
export async function get(path, signal) {
  return (await ask(path, { signal })).json();
}

/** Returns the JSON that answers a body. */
export async function post(path, body, signal) {
  return (await ask(path, withBody(body, signal))).json();
}

/** Yields the events of a streamed answer, as the server writes them. */
export async function* events(path, body, signal) {
  const answer = await ask(path, withBody(body, signal));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (true) {
    const { done, value } = await reachable(reader.read());
    if (done) throw new ServerError("The answer ended early.", 0);
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      if (part.startsWith(":")) continue; // a comment, so that the connection stays open
      const data = part.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new ServerError(event.error.message, event.error.code);
      yield event;
    }
  }
}

/** Returns the path of an endpoint's requests. */
export function predictPath(model) {
  return `v1/models/${encodeURIComponent(model)}:predict`;
}

/** Returns the outputs of an endpoint by name. */
export async function predict(model, endpoint, inputs, outputs, signal) {
  const answer = await post(predictPath(model), { signature_name: endpoint, inputs }, signal);
  // an output that is alone comes without its name
  return outputs.length === 1 ? { [outputs[0]]: answer.outputs } : answer.outputs;
}

function withBody(body, signal) {
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal };
}

async function ask(path, request) {
  const headers = { ...request.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  const answer = await reachable(fetch(path, { ...request, headers, cache: "no-store", credentials: "omit" }));
  if (!answer.ok) throw new ServerError(await reason(answer), answer.status);
  return answer;
}

async function reason(answer) {
  const said = await answer.json().catch(() => ({}));
  return said.error?.message ?? said.error ?? `The server answered with the status ${answer.status}.`;
}

async function reachable(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server cannot be reached.", 0);
  }
}
