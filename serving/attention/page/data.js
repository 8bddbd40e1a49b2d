// The data: arrays out of one compressed run of bytes, and what is computed from them.

/** Reads the header and unpacks the bytes that it points into. */
async function openData() {
  const header = JSON.parse(document.getElementById("header").textContent);
  const bytes = await unpack(document.getElementById("blob").textContent.trim());
  document.getElementById("blob").remove();
  return {
    decades: header.decades,
    captures: header.captures.map((side) => openCapture(side, bytes, header.decades)),
  };
}

async function unpack(base64) {
  const letters = atob(base64);
  const packed = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) packed[i] = letters.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

const ARRAYS = { Uint8Array, Uint16Array, Uint32Array, Float32Array };

function arrayAt(place, bytes) {
  return place && new ARRAYS[place.type](bytes, place.at, place.length);
}

/** A capture with its arrays, its segment of every token, and lookups by layer and head. */
function openCapture(side, bytes, decades) {
  const owners = new Uint16Array(side.tokens);
  for (const [start, end, segment] of side.runs) owners.fill(segment, start, end);
  const values = new Float32Array(256);
  for (let step = 1; step < 256; step++) values[step] = 10 ** (((step - 255) * decades) / 254);
  const parts = side.segments.length;
  const between = side.between;
  const all = arrayAt(between.all, bytes);
  const mean = arrayAt(between.mean, bytes);
  const byHead = arrayAt(between.heads, bytes);
  const baseline = arrayAt(between.baseline, bytes);
  const places = arrayAt(side.text.places, bytes);
  const capture = {
    ...side,
    owners,
    piece: (token) => side.text.words[places[token]],
    /** Mean over heads: what rows of segment `source` (−1: all rows) give to `target` in a layer. */
    mass(layer, source, target) {
      const at = source < 0 ? layer * parts + target : (layer * parts + source) * parts + target;
      return (source < 0 ? all : mean)[at] / 65535;
    },
    /** The same, mean over layers. */
    meanMass(source, target) {
      let sum = 0;
      for (let layer = 0; layer < side.layers.length; layer++) sum += capture.mass(layer, source, target);
      return sum / side.layers.length;
    },
    /** What one head gives; null where this source's heads stayed in the capture file. */
    headMass(layer, head, source, target) {
      const place = between.sources.indexOf(source);
      if (place < 0) return null;
      return values[
        byHead[((place * side.layers.length + layer) * side.heads.length + head) * parts + target]
      ];
    },
    /** Mean over layers and heads with the context's parts in random order; null without a baseline. */
    expected: (source, target) =>
      baseline && source >= 0 ? baseline[source * parts + target] / 65535 : null,
    timesEven: side.position && arrayAt(side.position.timesEven, bytes),
    map: (layer, head) => openMap(side, bytes, values, layer, head),
  };
  return capture;
}

/**
 * One map: `cells[row * bins + key]` is the share of a row's attention, mean over the rows of its bin, without
 * the sink, which is `sink[row]`. Each row and its sink sum to 1, but for the maximum over heads.
 * `head` is a place among the heads, "mean" or "max".
 */
function openMap(side, bytes, values, layer, head) {
  const kind = typeof head === "number" ? "head" : head;
  const source = side.maps && side.maps[kind];
  if (!source) return null;
  const { bins, width } = source;
  const size = (bins * (bins + 1)) / 2;
  const place = kind === "head" ? layer * side.heads.length + head : layer;
  const steps = arrayAt(source.cells, bytes).subarray(place * size, (place + 1) * size);
  const sink = Float32Array.from(
    arrayAt(source.sink, bytes).subarray(place * bins, (place + 1) * bins),
    (v) => v / 65535,
  );
  const cells = new Float32Array(bins * bins);
  const rows = new Float32Array(bins);
  for (let row = 0, at = 0; row < bins; row++) {
    rows[row] = Math.min((row + 1) * width, side.tokens) - row * width;
    let sum = 0;
    for (let key = 0; key <= row; key++) sum += cells[row * bins + key] = values[steps[at++]];
    const scale = kind === "max" || !sum ? 1 : (1 - sink[row]) / sum;
    for (let key = 0; key <= row; key++) cells[row * bins + key] *= scale;
  }
  return { kind, bins, width, tokens: side.tokens, cells, sink, rows };
}

/**
 * The map with two bins of both sides made one: keys are added up and rows averaged, so row sums stay. The
 * maximum over heads has no sums to keep; of it the largest cell is taken.
 */
function halved(map) {
  const most = map.kind === "max";
  const bins = Math.ceil(map.bins / 2);
  const cells = new Float32Array(bins * bins);
  const sink = new Float32Array(bins);
  const rows = new Float32Array(bins);
  for (let row = 0; row < map.bins; row++) {
    const into = row >> 1;
    rows[into] += map.rows[row];
    sink[into] += map.sink[row] * map.rows[row];
    for (let key = 0; key <= row; key++) {
      const at = into * bins + (key >> 1);
      const mass = map.cells[row * map.bins + key];
      cells[at] = most ? Math.max(cells[at], mass) : cells[at] + mass * map.rows[row];
    }
  }
  for (let row = 0; row < bins; row++) {
    sink[row] /= rows[row];
    for (let key = 0; !most && key <= row; key++) cells[row * bins + key] /= rows[row];
  }
  return { ...map, bins, width: map.width * 2, cells, sink, rows };
}
