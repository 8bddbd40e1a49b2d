// The sections under the map: tables and charts for the state that the controls hold.

/** What is under the cursor, in words. */
function showReadout(capture, { map, row, key, mass, sink }) {
  const words = ([start, end]) => {
    const shown = [];
    for (let token = start; token < end && shown.length < 12; token++) shown.push(capture.piece(token));
    return make("code", {}, shown.join("") + (end - start > shown.length ? " …" : ""));
  };
  const place = ([start, end]) => (end - start === 1 ? `token ${start}` : `tokens ${start} – ${end - 1}`);
  const owners = ([start, end]) => {
    const found = [...new Set(capture.owners.subarray(start, end))].filter(
      (owner) => capture.segments[owner].kind !== "sink",
    );
    return make(
      "span",
      {},
      ...found.slice(0, 3).flatMap((owner) => [nameOf(capture, owner), make("br")]),
      found.length > 3 ? "…" : "",
    );
  };
  const seen = Math.min(key[1], row[1]) - key[0];
  const even = seen / ((row[0] + row[1] - 1) / 2 + 1);
  const fact = (name, ...value) => [make("dt", {}, name), make("dd", {}, ...value)];
  const whole = map.kind === "max" ? "largest mean mass that a head gives" : "of a row's attention";
  const list = make(
    "dl",
    {},
    ...fact("row", place(row)),
    ...fact("", owners(row)),
    ...fact("", words(row)),
    ...fact("key", place(key)),
    ...fact("", owners(key)),
    ...fact("", words(key)),
    ...fact("even", `${figures(mass / even, 2)} times an even spread`),
    ...fact("sink", `${percent(sink)} of this row is on token 0`),
  );
  const value = make(
    "p",
    { class: "value", id: "value" },
    percent(mass),
    " ",
    make("span", { class: "soft" }, whole),
  );
  document.getElementById("readout").replaceChildren(value, list);
}

function showLegend(capture) {
  const rows = capture.segments.map((segment, place) =>
    make(
      "li",
      {},
      chipOf(segment.kind),
      make("span", { class: "number" }, `${place}`),
      make("span", {}, segment.label),
      make("span", { class: "number soft" }, `${segment.tokens}`),
    ),
  );
  document.getElementById("legend").replaceChildren(...rows);
}

/** Mass from the rows of `source` on every segment, mean over heads: a number, and a strip over the layers. */
function showMass(capture, source) {
  const rest =
    1 -
    capture.segments.reduce(
      (sum, s, place) => sum + (s.kind === "sink" ? capture.meanMass(source, place) : 0),
      0,
    );
  const withBaseline = capture.expected(source, 0) !== null;
  const rows = capture.segments.map((segment, place) => {
    const mass = capture.meanMass(source, place);
    const layers = capture.layers.map((_, layer) => capture.mass(layer, source, place));
    const expected = capture.expected(source, place);
    const cells = [
      nameOf(capture, place),
      `${segment.tokens}`,
      percent(mass),
      segment.kind === "sink" ? "apart" : percent(rest > 0 ? mass / rest : 0),
    ];
    if (withBaseline) cells.push(expected ? `${figures(mass / expected, 2)} ×` : "–");
    return { cells: [...cells, stripOf(layers, (layer) => `layer ${capture.layers[layer]}`)] };
  });
  const columns = [
    "segment",
    "#tokens",
    "#mass",
    "#beside the sink",
    ...(withBaseline ? ["#parts in random order"] : []),
    `layers ${capture.layers[0]} … ${capture.layers.at(-1)}`,
  ];
  document
    .getElementById("mass")
    .replaceChildren(tableOf(columns, rows, "Mean over rows, heads and layers; the parts sum to 100 %."));
}

/** Every head's mass from `source` on `target`: a grid of layers × heads and the first of the ranking. */
function showHeads(capture, source, target, pick) {
  const values = capture.layers.map((_, layer) =>
    capture.heads.map((_, head) => capture.headMass(layer, head, source, target)),
  );
  const canvas = document.getElementById("heads");
  const known = values[0][0] !== null;
  const ranking = document.getElementById("ranking");
  if (!known) {
    ranking.replaceChildren(
      make(
        "p",
        { class: "soft" },
        "The heads of this looking segment are in the capture file; the page keeps those of the last segments.",
      ),
    );
  } else {
    const all = values.flatMap((row, layer) => row.map((mass, head) => ({ layer, head, mass })));
    all.sort((one, other) => other.mass - one.mass);
    const rows = all.slice(0, 15).map(({ layer, head, mass }) => ({
      cells: [`${capture.layers[layer]}`, `${capture.heads[head]}`, percent(mass)],
      attributes: { class: "pick", onclick: () => pick(layer, head) },
    }));
    ranking.replaceChildren(
      tableOf(
        ["#layer", "#head", "#mass"],
        rows,
        "The 15 heads that give it most; a click shows the head's map.",
      ),
    );
  }
  drawHeads(canvas, capture, known ? values : [], pick);
}

function drawHeads(canvas, capture, values, pick) {
  const [layers, heads] = [capture.layers.length, capture.heads.length];
  const left = 40;
  const cell = Math.max(
    5,
    Math.min(22, (canvas.parentElement.clientWidth * 0.62 - left) / heads, 560 / layers),
  );
  const [width, height] = [left + heads * cell + 1, layers * cell + 22];
  const ratio = devicePixelRatio || 1;
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const ramp = rampColours();
  values.forEach((row, layer) =>
    row.forEach((mass, head) => {
      context.fillStyle = `rgb(${ramp[rampStep(mass)].join(",")})`;
      context.fillRect(left + head * cell, layer * cell, cell - 1, cell - 1);
    }),
  );
  context.fillStyle = cssColour("--soft");
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "right";
  const every = Math.ceil(14 / cell);
  capture.layers.forEach(
    (layer, at) => at % every === 0 && context.fillText(`${layer}`, left - 6, at * cell + cell / 2 + 4),
  );
  context.textAlign = "left";
  context.fillText("heads →, layers ↓", left, layers * cell + 16);
  const at = (event) => [Math.floor(event.offsetY / cell), Math.floor((event.offsetX - left) / cell)];
  const inside = ([layer, head]) =>
    values.length && layer >= 0 && layer < layers && head >= 0 && head < heads;
  canvas.onpointermove = (event) => {
    const [layer, head] = at(event);
    canvas.title = inside([layer, head])
      ? `layer ${capture.layers[layer]}, head ${capture.heads[head]}: ${percent(values[layer][head])}`
      : "";
  };
  canvas.onclick = (event) => inside(at(event)) && pick(...at(event));
  canvas.setAttribute("aria-label", "Mass of every head on the segment; the largest are listed beside it");
}

function showTriangles(capture) {
  const target = document.getElementById("triangles");
  if (!capture.triangles.length) {
    target.replaceChildren(
      make(
        "p",
        { class: "soft" },
        "This context has no thinking, answer, tool call or tool result whose rows were captured.",
      ),
    );
    return;
  }
  const rows = capture.triangles.map((one) => ({
    cells: [
      one.name,
      `${one.rows}`,
      percent(one.mass),
      one.expected === null ? "–" : percent(one.expected),
      one.ratio === null ? "–" : `${figures(one.ratio, 2)} ×`,
    ],
  }));
  target.replaceChildren(
    tableOf(
      ["who looks where", "#rows", "#mass", "#expected", "#mass ÷ expected"],
      rows,
      "Expected: the mass that parts of these lengths get with the same heads when they stand in random order.",
    ),
  );
}

function showLayers(capture, layer) {
  const ends = [`layer ${capture.layers[0]}`, `layer ${capture.layers.at(-1)}`];
  const chart = (title, values, format, note) =>
    values &&
    lineChart({ title, lines: [{ class: "main", values, name: title }], ends, mark: layer, format, note });
  const charts = [
    chart("Share on the sink (token 0)", capture.profile.sink, percent, "Mean over rows and heads."),
    chart(
      "Entropy",
      capture.profile.entropy,
      figures,
      "Nats; the sink counts as a key. 0: one key has everything.",
    ),
    chart("Distance", capture.profile.distance, figures, "Mean tokens back, the sink included."),
  ];
  document.getElementById("layers").replaceChildren(...charts.filter(Boolean));
}

function showPosition(capture, layer) {
  const target = document.getElementById("position");
  if (!capture.position) {
    target.replaceChildren(make("p", { class: "soft" }, "This capture does not hold what keys received."));
    return;
  }
  const bins = capture.position.starts.length;
  const own = capture.timesEven.subarray(layer * bins, (layer + 1) * bins);
  const mean = Array.from(
    { length: bins },
    (_, at) =>
      capture.layers.reduce((sum, _, each) => sum + capture.timesEven[each * bins + at], 0) /
      capture.layers.length,
  );
  target.replaceChildren(
    lineChart({
      title: "Mass received, in multiples of an even spread",
      lines: [
        { class: "second", values: mean, name: "mean over layers" },
        { class: "main", values: [...own], name: `layer ${capture.layers[layer]}` },
      ],
      ends: [`token ${capture.position.starts[0]}`, `token ${capture.position.ends.at(-1) - 1}`],
      even: 1,
      log: true,
      format: (value) => figures(value, 2),
      note:
        "Solid: this layer; dashed: mean over layers; the dotted height is 1, an even spread. The sink is left " +
        "out. A place that is looked at much need not be a place that is used well.",
    }),
  );
}

function showResting(capture) {
  const target = document.getElementById("resting");
  if (!capture.resting) {
    target.replaceChildren(make("p", { class: "soft" }, "This capture does not hold what keys received."));
    return;
  }
  const { threshold, length, found, keys } = capture.resting;
  const lines = keys.map(([token, share]) => ({
    cells: [
      `${token}`,
      make("code", {}, capture.piece(token)),
      nameOf(capture, capture.owners[token]),
      percent(share),
    ],
  }));
  const note =
    `Keys to which a head gives more than ${threshold} on average over the rows that see them, for at least ` +
    `one head in a hundred (Gu et al., 2410.10781, over ${length} tokens; here ${capture.tokens}, and a key is ` +
    `judged if ${length} rows see it). ${found} found.`;
  target.replaceChildren(tableOf(["#token", "text", "segment", "#of all heads"], lines, note));
}

/** Both contexts, aligned by segment id, from the rows of one segment (by id; "" is all rows). */
function showBeside([first, second], source) {
  const placeIn = (capture, id) => capture.segments.findIndex((segment) => segment.id === id);
  const from = [first, second].map((capture) => (source ? placeIn(capture, source) : -1));
  const ids = [...new Set([...second.segments, ...first.segments].map((segment) => segment.id))];
  const masses = ids.map((id) =>
    [first, second].map((capture, side) => {
      const place = placeIn(capture, id);
      return place < 0 ? null : capture.meanMass(from[side], place);
    }),
  );
  const most = Math.max(...masses.flat().filter((mass) => mass !== null));
  const rows = ids.map((id, at) => {
    const [one, other] = masses[at];
    const owner = placeIn(second, id) >= 0 ? second : first;
    const bar = (mass, kind) =>
      make("div", { class: `bar ${kind}`, style: { width: `${(15 * (mass || 0)) / most}rem` } });
    const size = (capture) =>
      placeIn(capture, id) < 0 ? "–" : `${capture.segments[placeIn(capture, id)].tokens}`;
    return {
      cells: [
        nameOf(owner, placeIn(owner, id)),
        size(first),
        size(second),
        one === null ? "–" : percent(one),
        other === null ? "–" : percent(other),
        one === null || other === null ? "–" : signed(other - one),
        make("div", {}, bar(one, "first"), bar(other, "second")),
      ],
    };
  });
  document
    .getElementById("beside-table")
    .replaceChildren(
      tableOf(
        [
          "segment",
          `#tokens ${first.name}`,
          `#tokens ${second.name}`,
          `#mass ${first.name}`,
          `#mass ${second.name}`,
          "#change",
          `${first.name} above, ${second.name} below`,
        ],
        rows,
        "Mean over rows, heads and layers. Segments are the same where their ids are; – is a segment that this " +
          "context does not have.",
      ),
    );
}
