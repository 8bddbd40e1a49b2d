// The state of the page, its controls and keys, and the first drawing.

/** Options of a select: [value, text]. */
function choices(options) {
  return options.map(([value, text]) => make("option", { value }, text));
}

function select(label, options, chosen, changed) {
  const box = make("select", { onchange: () => changed(box.value) }, ...choices(options));
  box.value = chosen;
  return make("label", {}, label, box);
}

/** `layer=3&head=mean&context=0` after the `#`: what a link to this page shows first. */
function readFragment() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

async function start() {
  const data = await openData();
  const wanted = readFragment();
  const state = { context: 0, layer: 0, head: "mean", source: -1, target: -1 };
  const capture = () => data.captures[state.context];
  const heatmap = new Heatmap(document.getElementById("map"), (found) => showReadout(capture(), found));
  if (wanted.context in data.captures) state.context = Number(wanted.context);
  chooseSegments();
  const layerWanted = capture().layers.indexOf(Number(wanted.layer));
  state.layer = layerWanted >= 0 ? layerWanted : Math.floor(capture().layers.length / 2);
  const headWanted = capture().heads.indexOf(Number(wanted.head));
  if (wanted.head && headWanted >= 0) state.head = headWanted;
  if (wanted.head === "max") state.head = "max";

  /** The last segment with rows looks first: the answer, or where it would begin. */
  function chooseSegments() {
    const segments = capture().segments;
    const looking = segments.findLastIndex((segment) => segment.rows && segment.kind !== "framing");
    state.source = looking > 0 ? looking : -1;
    const read = segments.findLastIndex(
      (segment, place) => place < state.source && segment.kind !== "framing" && segment.kind !== "sink",
    );
    state.target = read >= 0 ? read : 0;
  }

  function pick(layer, head) {
    state.layer = layer;
    state.head = head;
    refresh();
    document.getElementById("map").scrollIntoView({ block: "nearest" });
  }

  function showControls() {
    const { layers, heads } = capture();
    const slider = make("input", {
      type: "range",
      id: "layer",
      min: 0,
      max: layers.length - 1,
      value: state.layer,
      oninput: () => pickLayer(slider.valueAsNumber),
    });
    const contexts =
      data.captures.length > 1
        ? [
            select(
              "context",
              data.captures.map((side, at) => [at, side.name]),
              state.context,
              (at) => changeContext(Number(at)),
            ),
          ]
        : [];
    const kinds = [
      ["mean", "mean over heads"],
      ["max", "maximum over heads"],
      ...heads.map((head, at) => [at, `head ${head}`]),
    ];
    document.getElementById("map-controls").replaceChildren(
      ...contexts,
      make("label", {}, "layer", slider, make("output", { id: "layer-value" }, `${layers[state.layer]}`)),
      select("heads", kinds, state.head, (value) =>
        pickHead(Number.isNaN(Number(value)) ? value : Number(value)),
      ),
      make("button", { type: "button", onclick: () => heatmap.reset() }, "show all"),
    );
  }

  function pickLayer(layer) {
    state.layer = Math.max(0, Math.min(capture().layers.length - 1, layer));
    refresh();
  }

  function pickHead(head) {
    state.head = head;
    refresh();
  }

  function changeContext(context) {
    state.context = context;
    state.layer = Math.min(state.layer, capture().layers.length - 1);
    chooseSegments();
    showLegend(capture());
    showSources();
    refresh();
  }

  function showSources() {
    const named = capture().segments.map((segment, place) => [place, `${place} ${segment.label}`]);
    const looking = [[-1, "all rows"], ...named.filter(([place]) => capture().segments[place].rows)];
    const source = () =>
      select("rows of", looking, state.source, (place) => {
        state.source = Number(place);
        showSources();
      });
    document.getElementById("mass-controls").replaceChildren(source());
    document.getElementById("heads-controls").replaceChildren(
      source(),
      select("looking at", named, state.target, (place) => {
        state.target = Number(place);
        showHeads(capture(), state.source, state.target, pick);
      }),
    );
    showMass(capture(), state.source);
    showHeads(capture(), state.source, state.target, pick);
  }

  function showBoth() {
    document.getElementById("beside").hidden = false;
    const shared = data.captures[0].segments.filter(
      (one) => one.rows && data.captures[1].segments.some((other) => other.id === one.id && other.rows),
    );
    let source = shared.at(-1)?.id || "";
    document
      .getElementById("beside-controls")
      .replaceChildren(
        select("rows of", [["", "all rows"], ...shared.map((one) => [one.id, one.label])], source, (id) =>
          showBeside(data.captures, id),
        ),
      );
    showBeside(data.captures, source);
  }

  function refresh() {
    showControls();
    const map = capture().map(state.layer, state.head);
    if (map) heatmap.show(capture(), map);
    else document.getElementById("map").hidden = true;
    showLayers(capture(), state.layer);
    showPosition(capture(), state.layer);
    showTriangles(capture());
    showResting(capture());
  }

  const KEYS = {
    ArrowUp: (far) => (far ? heatmap.pan(-heatmap.view.size / 8, 0) : heatmap.step(-1, 0)),
    ArrowDown: (far) => (far ? heatmap.pan(heatmap.view.size / 8, 0) : heatmap.step(1, 0)),
    ArrowLeft: (far) => (far ? heatmap.pan(0, -heatmap.view.size / 8) : heatmap.step(0, -1)),
    ArrowRight: (far) => (far ? heatmap.pan(0, heatmap.view.size / 8) : heatmap.step(0, 1)),
    "+": () => heatmap.zoom(0.7),
    "=": () => heatmap.zoom(0.7),
    "-": () => heatmap.zoom(1 / 0.7),
    0: () => heatmap.reset(),
    "[": () => pickLayer(state.layer - 1),
    "]": () => pickLayer(state.layer + 1),
    h: () => pickHead(nextHead(1)),
    H: () => pickHead(nextHead(-1)),
    m: () => pickHead("mean"),
    x: () => pickHead("max"),
    a: () => data.captures.length > 1 && changeContext((state.context + 1) % data.captures.length),
  };

  function nextHead(step) {
    const count = capture().heads.length;
    if (typeof state.head !== "number") return step > 0 ? 0 : count - 1;
    return (state.head + step + count) % count;
  }

  document.getElementById("map").addEventListener("keydown", (event) => {
    const act = KEYS[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act(event.shiftKey);
  });

  const facts = data.captures.map((side) => {
    const name = data.captures.length > 1 ? `${side.name}: ` : "";
    const [tokens, prompt] = [side.tokens, side.promptTokens].map((count) => count.toLocaleString("en"));
    return `${name}${tokens} tokens, ${prompt} of them prompt`;
  });
  const { model, weights, layers, heads } = capture();
  document.getElementById("summary").textContent =
    `${model} (weights ${weights}), ${layers.length} layers × ${heads.length} heads; ${facts.join("; ")}.`;
  showLegend(capture());
  showSources();
  refresh();
  if (data.captures.length > 1) showBoth();
  globalThis.page = { captures: data.captures, heatmap, halved, state }; // for the console, and for tests
  document.documentElement.dataset.ready = Math.round(performance.now());
}

start().catch((error) => {
  document.getElementById("summary").textContent =
    `This page cannot be shown: ${error.message}. It needs a browser of 2023 or later.`;
  document.documentElement.dataset.failed = error.message;
});
