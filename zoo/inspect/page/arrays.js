// Arrays of the page: from base64, compressed, to numbers.

const TYPES = { float32: Float32Array, int16: Int16Array, uint16: Uint16Array, uint8: Uint8Array };

/** Returns numbers and their shape. */
export async function unpack({ type, shape, data }) {
  return { shape, values: new TYPES[type](await bytesOf(data)) };
}

/**
 * Returns attention weights.
 *
 * matrix(layer, head) returns those of one head, row by row; of head -1 the mean over heads.
 */
export async function unpackWeights({ type, least, most, shape, largest, data }) {
  const steps = new TYPES[type](await bytesOf(data));
  const tops = new Float32Array(await bytesOf(largest));
  const [layers, heads, queries, keys] = shape;
  const add = (sum, layer, head, factor) => {
    const first = (layer * heads + head) * queries;
    for (let query = 0; query < queries; query += 1) {
      const top = tops[first + query], row = (first + query) * keys;
      const step = factor * top / Math.max(least, Math.min(most, Math.ceil(255 * top)));
      for (let key = 0; key < keys; key += 1) sum[query * keys + key] += step * steps[row + key];
    }
    return sum;
  };
  const matrix = (layer, head) => {
    const sum = new Float32Array(queries * keys);
    if (head >= 0) return add(sum, layer, head, 1);
    for (let each = 0; each < heads; each += 1) add(sum, layer, each, 1 / heads);
    return sum;
  };
  return { layers, heads, queries, keys, matrix };
}

async function bytesOf(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let place = 0; place < letters.length; place += 1) bytes[place] = letters.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}
