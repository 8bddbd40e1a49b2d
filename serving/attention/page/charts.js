// Small building blocks: elements, numbers as text, line charts, strips of colour.

/** An element with attributes and children; text is always text, never markup. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** A share as percent, with three figures: `12.3 %`, `0.0123 %`. */
function percent(share) {
  const value = share * 100;
  if (value === 0) return "0 %";
  return `${value >= 0.001 ? Number(value.toPrecision(3)) : value.toExponential(1)} %`;
}

const figures = (value, digits = 3) => (value === null ? "–" : `${Number(value.toPrecision(digits))}`);

const signed = (share) =>
  share === null ? "–" : `${share > 0 ? "+" : share < 0 ? "−" : "±"}${percent(Math.abs(share))}`;

/** A table; a column whose title begins with `#` holds numbers. */
function tableOf(columns, rows, caption) {
  const heads = columns.map((name) =>
    make("th", { scope: "col", class: name.startsWith("#") ? "number" : undefined }, name.replace(/^#/, "")),
  );
  const body = rows.map((row) => {
    const cells = row.cells.map((cell, at) =>
      make("td", { class: columns[at].startsWith("#") ? "number" : undefined }, cell),
    );
    return make("tr", row.attributes || {}, ...cells);
  });
  return make(
    "table",
    {},
    caption ? make("caption", {}, caption) : "",
    make("thead", {}, make("tr", {}, ...heads)),
    make("tbody", {}, ...body),
  );
}

/** One cell a value, coloured by its logarithm; the numbers appear where the pointer is. */
function stripOf(values, name) {
  const strip = make("canvas", { class: "strip", width: values.length, height: 1, role: "img" });
  const context = strip.getContext("2d");
  const ramp = rampColours();
  values.forEach((value, at) => {
    context.fillStyle = `rgb(${ramp[rampStep(value)].join(",")})`;
    context.fillRect(at, 0, 1, 1);
  });
  strip.setAttribute("aria-label", `from ${percent(Math.min(...values))} to ${percent(Math.max(...values))}`);
  strip.addEventListener("pointermove", (event) => {
    const at = Math.min(values.length - 1, Math.floor((event.offsetX / strip.clientWidth) * values.length));
    strip.title = `${name(at)}: ${percent(values[at])}`;
  });
  return strip;
}

/** A chip in the colour of a segment's kind. */
function chipOf(kind) {
  const chip = make("canvas", { class: "chip", width: 14, height: 14, "aria-hidden": "true" });
  const context = chip.getContext("2d");
  context.fillStyle = bandFill(context, kind);
  context.fillRect(0, 0, 14, 14);
  return chip;
}

/** `[chip] 3 system`: a segment by its colour, number and label. */
function nameOf(capture, place) {
  return make("span", {}, chipOf(capture.segments[place].kind), ` ${place} ${capture.segments[place].label}`);
}

const SVG = "http://www.w3.org/2000/svg";

function draw(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/**
 * A chart of lines over places 0 … n − 1: `lines` are {name, class, values}, `mark` is a place with a line of
 * its own, `ends` names the first and last place, `even` is a height with a line. From zero, or with `log` from
 * the least value.
 */
function lineChart({ title, lines, ends, mark, even, log, format = figures, note }) {
  const [width, height, left, top, bottom] = [440, 170, 52, 12, 24];
  const known = [...lines.flatMap((line) => [...line.values]), even || 0].filter(
    (value) => !log || value > 0,
  );
  const most = Math.max(...known) || 1;
  const least = log ? Math.min(...known) : 0;
  const count = lines[0].values.length;
  const share = (value) =>
    log ? Math.log(Math.max(value, least) / least) / Math.log(most / least || 1) || 0 : value / most;
  const level = (part) => (log ? least * (most / least) ** part : most * part);
  const x = (at) => left + (count < 2 ? 0 : (at / (count - 1)) * (width - left - 8));
  const y = (value) => top + (1 - share(value)) * (height - top - bottom);
  const svg = draw("svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": title,
  });
  for (const value of [0, 0.5, 1].map(level)) {
    svg.append(draw("line", { class: "axis", x1: left, x2: width - 8, y1: y(value), y2: y(value) }));
    svg.append(draw("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, format(value)));
  }
  if (even) svg.append(draw("line", { class: "here", x1: left, x2: width - 8, y1: y(even), y2: y(even) }));
  if (mark !== undefined)
    svg.append(draw("line", { class: "here", x1: x(mark), x2: x(mark), y1: top, y2: height - bottom }));
  for (const line of lines) {
    const points = [...line.values]
      .map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`)
      .join(" ");
    const drawn = draw("polyline", { class: line.class, points });
    drawn.append(draw("title", {}, line.name));
    svg.append(drawn);
  }
  svg.append(draw("text", { x: left, y: height - 6 }, ends[0]));
  svg.append(draw("text", { x: width - 8, y: height - 6, "text-anchor": "end" }, ends[1]));
  return make("figure", {}, make("strong", {}, title), svg, make("figcaption", {}, note || ""));
}
