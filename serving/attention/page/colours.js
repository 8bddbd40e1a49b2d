// Colours: one ramp of rising contrast for mass, and a band colour with a pattern for every kind of segment.

const RAMPS = {
  light: ["#ffffff", "#d8e8f6", "#a3c8e6", "#5e9bd0", "#2c66a6", "#143a72", "#0b1a3a"],
  dark: ["#16181b", "#1d3350", "#27558a", "#3f86b5", "#74b9c4", "#bfe3b4", "#fdf8c4"],
};

// Okabe and Ito, "Color Universal Design" (2008), with greys for what no one wrote; kinds that share a colour
// differ in their pattern, and every band carries its number.
const KINDS = {
  sink: ["#000000", 0],
  framing: ["#9a9a9a", 0],
  text: ["#0072b2", 0],
  system: ["#0072b2", 0],
  skill: ["#0072b2", 1],
  example: ["#0072b2", 2],
  tool: ["#e69f00", 0],
  user: ["#009e73", 0],
  memory: ["#009e73", 1],
  evidence: ["#56b4e9", 1],
  summary: ["#56b4e9", 2],
  thinking: ["#cc79a7", 0],
  answer: ["#d55e00", 0],
  tool_call: ["#d55e00", 1],
  tool_result: ["#56b4e9", 0],
  state: ["#f0e442", 1],
  status_bar: ["#f0e442", 0],
};

const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** 256 colours of the ramp for the current scheme, as [red, green, blue]. */
function rampColours() {
  const stops = RAMPS[isDark() ? "dark" : "light"].map(parseColour);
  return Array.from({ length: 256 }, (_, step) => {
    const at = (step / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    return stops[low].map((value, part) => Math.round(value + (stops[low + 1][part] - value) * (at - low)));
  });
}

function parseColour(text) {
  return [1, 3, 5].map((start) => parseInt(text.slice(start, start + 2), 16));
}

const SHOWN_DECADES = 4; // orders of magnitude below 1 that the ramp covers

/** Where a mass stands on the ramp, 0 … 255: by its logarithm. */
function rampStep(mass) {
  if (!(mass > 0)) return 0;
  return Math.max(0, Math.min(255, Math.round(255 * (1 + Math.log10(mass) / SHOWN_DECADES))));
}

/** The fill of a segment's band: its kind's colour, with stripes or dots where kinds share one. */
function bandFill(context, kind) {
  const [colour, pattern] = KINDS[kind] || KINDS.text;
  const shown = kind === "sink" && isDark() ? "#ffffff" : colour;
  if (!pattern) return shown;
  const tile = new OffscreenCanvas(6, 6);
  const paint = tile.getContext("2d");
  paint.fillStyle = shown;
  paint.fillRect(0, 0, 6, 6);
  paint.fillStyle = isDark() ? "#16181b" : "#ffffff";
  if (pattern === 1) paint.fillRect(0, 0, 6, 2);
  else paint.fillRect(1, 1, 3, 3);
  return context.createPattern(tile, "repeat");
}
