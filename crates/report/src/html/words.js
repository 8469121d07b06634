// Formats numbers and units for people, by the rules of the terminal (`units.rs`); one table of cases tests both.
// A missing value is a dash.

/** Like `toFixed`, but rounds a tie to the even digit, as the terminal does. */
function fixed(value, digits) {
  const isTie = Math.abs(value * 2 ** (digits + 1)) % 2 === 1;
  if (!isTie) return value.toFixed(digits);
  const below = Math.floor(value * 10 ** digits);
  return ((below % 2 === 0 ? below : below + 1) / 10 ** digits).toFixed(digits);
}

function timeText(ms) {
  if (ms === null || ms === undefined) return "–";
  const sign = ms < 0 ? "−" : "", a = Math.abs(ms), s = a / 1000;
  if (a === 0) return "0 s";
  if (s >= 3599.5) return `${sign}${countText(Math.floor(Math.round(s / 60) / 60))} h ${Math.round(s / 60) % 60} min`;
  if (s >= 599.5) return `${sign}${Math.floor(Math.round(s) / 60)} min ${Math.round(s) % 60} s`;
  if (s >= 99.95) return `${sign}${fixed(s, 0)} s`;
  if (s >= 9.995) return `${sign}${fixed(s, 1)} s`;
  if (a >= 99.5) return `${sign}${fixed(s, 2)} s`;
  if (a >= 9.95) return `${sign}${fixed(a, 0)} ms`;
  if (a >= 0.9995) return `${sign}${fixed(a, 1)} ms`;
  if (a >= 0.0009995) return `${sign}${fixed(a * 1000, 0)} µs`;
  return `${sign}${fixed(Math.max(a * 1e6, 1), 0)} ns`;
}

function sizeText(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
  let unit = 0;
  while (bytes >= 999.5 && unit + 1 < units.length) { bytes /= 1000; unit++; }
  return `${fixed(bytes, unit > 0 && bytes < 9.95 ? 1 : 0)} ${units[unit]}`;
}

function percentText(share) {
  if (share === null || share === undefined) return "–";
  const p = share * 100;
  if (p === 0) return "0 %";
  if (Math.abs(p) < 0.01) return "<0.01 %";
  return `${fixed(p, Math.abs(p) < 0.095 ? 2 : Math.abs(p) < 9.95 ? 1 : 0)} %`;
}

/** A resource's utilization. Above 100 % is a measurement error: it is capped here, and kept in the JSON. */
const useText = (share) => percentText(share === null || share === undefined ? null : Math.min(1, share));

const countText = (n) => n === null || n === undefined ? "–" : Math.round(n).toLocaleString("en-US");
const numberText = (n) => n >= 99.5 ? countText(n) : n >= 9.95 ? n.toFixed(0) : n >= 0.995 ? n.toFixed(1) : n.toFixed(2);
const plural = (n, noun) => `${countText(n)} ${noun}${n === 1 ? "" : "s"}`;

const KIND_NOUNS = { cpu: "cores", memory_bandwidth: "memory bandwidth" };
const kindText = (kind) => KIND_NOUNS[kind] ?? kind;

/** Colours of kinds of resources and of causes. */
const KIND_COLORS = {
  cpu: "--compute", disk: "--read", "disk input": "--read", network: "--fetch", store: "--fetch", slots: "--green",
  gc: "--spill", scheduling: "--write", skew: "--spill", failure: "--spill", straggler: "--write", unexplained: "--rest",
};
const kindColor = (kind) => `var(${KIND_COLORS[kind] ?? "--green"})`;

/** Colours of phases, by key. */
const PHASE_COLORS = {
  read: "--read", fetch: "--fetch", compute: "--compute", spill: "--spill", write: "--write",
  blocked_network: "--fetch", blocked_disk: "--read", gc: "--spill", scheduler: "--write",
  deserialize: "--green", rest: "--rest", sampled: "--compute", other: "--green",
  rest_or_disk: "--maybe",
};

/** Creates an element with attributes and children. */
const element = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);

/** Adds attributes and children to an element. Text children are never parsed as markup. */
function filled(created, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") Object.assign(created.style, value);
    else if (key.startsWith("on")) created.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) created.setAttribute(key, value);
  }
  created.append(...children.filter((child) => child !== null && child !== undefined));
  return created;
}

/** @type {(id: string) => any} */
const byId = (id) => document.getElementById(id);

/** Returns the smallest of 1, 2 and 5 times a power of ten that is at least `min`. */
function tickStep(min) {
  const power = 10 ** Math.floor(Math.log10(min));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= min);
}

/** Formats a tick's time. The unit depends on the step alone, so that all ticks of an axis share it. */
function tickText(ns, stepNs) {
  const [unit, per] = stepNs >= 6e10 ? ["min", 6e10] : stepNs >= 1e8 ? ["s", 1e9] : stepNs >= 1e5 ? ["ms", 1e6]
    : stepNs >= 1e2 ? ["µs", 1e3] : ["ns", 1];
  const digits = Math.min(3, Math.max(0, -Math.floor(Math.log10(stepNs / per) + 1e-9)));
  return `${(ns / per).toFixed(ns === 0 ? 0 : digits)} ${unit}`;
}
