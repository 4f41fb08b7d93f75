// The selected view in the address, behind its #, so that a link leads to it.

const PAUSE = 200; // milliseconds: browsers refuse many changes of the address at once

let timer = null;

/** Returns the choices that the address names: an object of texts. */
export function readAddress() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** Puts choices into the address. */
export function writeAddress(choices) {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const hash = `#${new URLSearchParams(choices)}`;
    if (hash === location.hash) return;
    try {
      history.replaceState(null, "", hash);
    } catch {
      // a frame of a notebook has no address of its own
    }
  }, PAUSE);
}
