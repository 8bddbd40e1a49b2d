// The map: rows downwards, keys to the right, the sink in a column of its own, bands of segments on both sides.

const LEFT = 150; // labels and the band of the rows
const TOP = 30; // numbers and the band of the keys
const BAND = 11;
const SINK = 16; // the sink's column, with its gap
const LEAST = 3; // pixels that a cell must have before two of them are made one

class Heatmap {
  /** Draws on `canvas`; `told` hears of every cell that the cursor comes to. */
  constructor(canvas, told) {
    Object.assign(this, { canvas, told, capture: null, map: null, view: null, cursor: null });
    this.listen();
  }

  /** Shows a map of a capture; the view and the cursor stay where the context is the same. */
  show(capture, map) {
    this.map = map;
    if (this.capture !== capture) {
      this.capture = capture;
      this.view = { row: 0, key: 0, size: capture.tokens };
      const last = map.cells.subarray((map.bins - 1) * map.bins);
      this.cursor = { row: capture.tokens - 1, key: last.indexOf(Math.max(...last)) * map.width };
    }
    this.image = null;
    this.draw();
  }

  /** Shows the whole context again. */
  reset() {
    this.view = { row: 0, key: 0, size: this.capture.tokens };
    this.draw();
  }

  /** Makes `factor` times as much visible, with token (`row`, `key`) staying where it is. */
  zoom(factor, { row, key } = this.cursor) {
    const { view, capture } = this;
    const size = Math.max(Math.min(8, capture.tokens), Math.min(capture.tokens, view.size * factor));
    const keep = (at, start) => at - ((at - start) * size) / view.size;
    this.view = { row: keep(row, view.row), key: keep(key, view.key), size };
    this.clamp();
    this.draw();
  }

  /** Moves the view by tokens. */
  pan(rows, keys) {
    this.view = { ...this.view, row: this.view.row + rows, key: this.view.key + keys };
    this.clamp();
    this.draw();
  }

  clamp() {
    const most = this.capture.tokens - this.view.size;
    this.view.row = Math.max(0, Math.min(most, this.view.row));
    this.view.key = Math.max(0, Math.min(most, this.view.key));
  }

  /** Moves the cursor by cells, and the view with it where it would leave. */
  step(rows, keys) {
    const width = this.shown().width;
    const last = this.capture.tokens - 1;
    const row = Math.max(0, Math.min(last, this.cursor.row + rows * width));
    this.cursor = { row, key: Math.max(0, Math.min(row, this.cursor.key + keys * width)) };
    for (const side of ["row", "key"]) {
      const at = this.cursor[side];
      if (at < this.view[side]) this.view[side] = at;
      if (at >= this.view[side] + this.view.size) this.view[side] = at - this.view.size + width;
    }
    this.clamp();
    this.draw();
  }

  /** The map as fine as the screen can show it. */
  shown() {
    if (!this.image || this.image.source !== this.map || this.image.size !== this.plot.size) {
      let map = this.map;
      while ((this.plot.size * map.width) / this.capture.tokens < LEAST && map.bins > 2) map = halved(map);
      this.image = { source: this.map, size: this.plot.size, map, canvas: this.paint(map) };
    }
    return this.image.map;
  }

  paint(map) {
    const canvas = new OffscreenCanvas(map.bins, map.bins);
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(map.bins, map.bins);
    const ramp = rampColours();
    for (let row = 0; row < map.bins; row++) {
      for (let key = 0; key <= row; key++) {
        const at = row * map.bins + key;
        pixels.data.set([...ramp[rampStep(map.cells[at])], 255], at * 4);
      }
    }
    context.putImageData(pixels, 0, 0);
    return canvas;
  }

  get plot() {
    const width = this.canvas.clientWidth;
    const size = Math.max(120, Math.min(width - LEFT - SINK - 4, innerHeight * 0.86 - TOP - 46));
    return { x: LEFT + SINK, y: TOP, size };
  }

  draw() {
    if (!this.map || this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.render();
    });
  }

  render() {
    const { canvas, capture, view, plot } = this;
    const height = plot.y + plot.size + 46;
    const ratio = devicePixelRatio || 1;
    canvas.style.height = `${height}px`;
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = height * ratio;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.imageSmoothingEnabled = false;
    const map = this.shown();
    const { x, y, size } = plot;
    const scale = size / view.size;

    context.fillStyle = cssColour("--void");
    context.fillRect(x, y, size, size);
    const from = [view.key / map.width, view.row / map.width, view.size / map.width, view.size / map.width];
    context.drawImage(this.image.canvas, ...from, x, y, size, size);
    this.drawSink(context, map, scale);
    this.drawBands(context, scale);
    this.drawCursor(context, map, scale);
    this.drawLegend(context, map, y + size + 12);
    this.report(map);
    canvas.setAttribute("aria-label", `Attention of ${capture.name}: rows downwards, keys to the right`);
  }

  drawSink(context, map, scale) {
    const { x, y, size } = this.plot;
    const ramp = rampColours();
    for (let row = 0; row < map.bins; row++) {
      const top = Math.max(y, y + (row * map.width - this.view.row) * scale);
      const bottom = Math.min(y + size, y + ((row + 1) * map.width - this.view.row) * scale);
      if (bottom <= top) continue;
      context.fillStyle = `rgb(${ramp[rampStep(map.sink[row])].join(",")})`;
      context.fillRect(x - SINK + 1, top, SINK - 6, bottom - top);
    }
    context.strokeStyle = cssColour("--line");
    context.strokeRect(x - SINK + 0.5, y - 0.5, SINK - 5, size + 1);
    context.fillStyle = cssColour("--soft");
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    context.fillText("sink", x - 4, y - 17);
  }

  drawBands(context, scale) {
    const { x, y, size } = this.plot;
    const { view, capture } = this;
    context.save();
    context.font = "11px system-ui, sans-serif";
    context.lineWidth = 1;
    const taken = { row: [], key: [] };
    const runs = [...capture.runs].sort((one, other) => other[1] - other[0] - (one[1] - one[0]));
    for (const [start, end, place] of runs) {
      const segment = capture.segments[place];
      for (const side of ["key", "row"]) {
        const low = Math.max(0, (start - view[side]) * scale);
        const high = Math.min(size, (end - view[side]) * scale);
        if (high <= low) continue;
        context.fillStyle = bandFill(context, segment.kind);
        const long = Math.max(high - low, 0.5);
        if (side === "key") context.fillRect(x + low, y - BAND - 3, long, BAND);
        else context.fillRect(x - SINK - BAND - 3, y + low, BAND, long);
        this.drawEdge(context, side, low, segment.kind);
        if (segment.kind === "framing") continue;
        const text = side === "key" ? `${place}` : `${place} ${segment.label}`;
        const room = side === "key" ? context.measureText(text).width + 3 : 12;
        const middle = Math.max(room / 2, Math.min(size - room / 2, (low + high) / 2));
        if (taken[side].some(([from, to]) => middle - room / 2 < to && middle + room / 2 > from)) continue;
        taken[side].push([middle - room / 2, middle + room / 2]);
        context.fillStyle = cssColour("--ink");
        context.textBaseline = "middle";
        context.textAlign = side === "key" ? "center" : "right";
        if (side === "key") context.fillText(text, x + middle, y - BAND - 9);
        else context.fillText(fitted(context, text, LEFT - BAND - 12), x - SINK - BAND - 8, y + middle);
      }
    }
    context.restore();
  }

  /** A faint line where a segment begins, across the map. */
  drawEdge(context, side, at, kind) {
    if (at <= 0 || kind === "framing") return;
    const { x, y, size } = this.plot;
    context.strokeStyle = isDark() ? "rgba(255,255,255,.22)" : "rgba(0,0,0,.16)";
    context.beginPath();
    context.moveTo(side === "key" ? x + at : x, side === "key" ? y : y + at);
    context.lineTo(side === "key" ? x + at : x + size, side === "key" ? y + size : y + at);
    context.stroke();
  }

  drawCursor(context, map, scale) {
    const { x, y, size } = this.plot;
    const left = x + (Math.floor(this.cursor.key / map.width) * map.width - this.view.key) * scale;
    const top = y + (Math.floor(this.cursor.row / map.width) * map.width - this.view.row) * scale;
    const side = map.width * scale;
    context.save();
    context.beginPath();
    context.rect(x - SINK, y - 1, size + SINK + 1, size + 2);
    context.clip();
    context.strokeStyle = "#d55e00";
    context.lineWidth = 2;
    context.strokeRect(left - 1, top - 1, side + 2, side + 2);
    context.globalAlpha = 0.45;
    context.lineWidth = 1;
    context.strokeRect(x - SINK, top, size + SINK, side);
    context.strokeRect(left, y, side, size);
    context.restore();
  }

  drawLegend(context, map, y) {
    const { x, size } = this.plot;
    const ramp = rampColours();
    const width = Math.min(360, size);
    for (let step = 0; step < 256; step++) {
      context.fillStyle = `rgb(${ramp[step].join(",")})`;
      context.fillRect(x + (step / 256) * width, y, width / 256 + 0.6, 9);
    }
    context.strokeStyle = cssColour("--line");
    context.strokeRect(x - 0.5, y - 0.5, width + 1, 10);
    context.fillStyle = cssColour("--soft");
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "top";
    for (let decade = 0; decade <= SHOWN_DECADES; decade++) {
      context.textAlign = decade === 0 ? "left" : decade === SHOWN_DECADES ? "right" : "center";
      context.fillText(percent(10 ** (decade - SHOWN_DECADES)), x + (decade / SHOWN_DECADES) * width, y + 12);
    }
    context.textAlign = "left";
    const unit = map.width === 1 ? "token" : `${map.width} tokens`;
    if (size > 560) context.fillText(`of a row's attention, in a cell of ${unit}`, x + width + 12, y - 1);
  }

  /** Tells what is under the cursor. */
  report(map) {
    const row = Math.floor(this.cursor.row / map.width);
    const key = Math.floor(this.cursor.key / map.width);
    const range = (bin) => [bin * map.width, Math.min((bin + 1) * map.width, this.capture.tokens)];
    this.told({
      map,
      row: range(row),
      key: range(key),
      mass: map.cells[row * map.bins + key],
      sink: map.sink[row],
    });
  }

  /** The tokens under a point of the canvas; null outside the map. */
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const { x, y, size } = this.plot;
    const across = (event.clientX - box.left - x) / size;
    const down = (event.clientY - box.top - y) / size;
    if (across < -SINK / size || across >= 1 || down < 0 || down >= 1) return null;
    const row = this.view.row + down * this.view.size;
    return { row, key: Math.max(0, this.view.key + across * this.view.size) };
  }

  listen() {
    const { canvas } = this;
    let dragged = null;
    canvas.addEventListener("pointerdown", (event) => {
      dragged = { x: event.clientX, y: event.clientY };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", () => (dragged = null));
    canvas.addEventListener("pointermove", (event) => {
      if (dragged && event.buttons) {
        const tokens = this.view.size / this.plot.size;
        this.pan((dragged.y - event.clientY) * tokens, (dragged.x - event.clientX) * tokens);
        dragged = { x: event.clientX, y: event.clientY };
        return;
      }
      const token = this.at(event);
      if (!token || token.key >= Math.floor(token.row) + this.shown().width) return;
      this.cursor = {
        row: Math.floor(token.row),
        key: Math.min(Math.floor(token.key), Math.floor(token.row)),
      };
      this.draw();
    });
    canvas.addEventListener(
      "wheel",
      (event) => {
        const token = this.at(event);
        if (!token) return;
        event.preventDefault();
        this.zoom(event.deltaY < 0 ? 0.8 : 1.25, token);
      },
      { passive: false },
    );
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.image = null;
      this.draw();
    });
  }
}

/** The text, cut with an ellipsis until it fits. */
function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let shown = text;
  while (shown && context.measureText(`${shown}…`).width > width) shown = shown.slice(0, -1);
  return `${shown}…`;
}
