// Draws the lanes of the timeline: bins of the level that fits the screen, or single activities once these
// are distinguishable. Input is handled in `timeline.js`.

const LANE_HEAD = 19, LANE_GAP = 9, AXIS = 20, STAGE_ROW = 17, STAGE_ROWS = 8;

class Lanes {
  constructor(canvas, timeline, stageName, redraw) {
    Object.assign(this, { canvas, timeline, stageName, redraw });
    this.shown = timeline.lanes;
    this.strips = [];
    if (timeline.jobs.length > 1) {
      this.strips.push(strip("Jobs", timeline.jobs, (span) => `job ${span.job}`));
    }
    if (timeline.stages.length > 0) {
      this.strips.push(strip("Stages, from first service to last", timeline.stages,
        (span) => stageName(span.stage)));
    }
    this.readColors();
  }

  readColors() {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    this.phaseColors = this.timeline.phases.map((phase) => color(PHASE_COLORS[phase.key]));
    this.colors = {};
    for (const name of ["ground", "raised", "line", "grid", "faint", "text", "strong", "counter", "accent"]) {
      this.colors[name] = color(`--${name}`);
    }
    this.font = getComputedStyle(document.body).fontFamily;
  }

  /** Lays out all lanes for a width, and sets the canvas to the required height. */
  resize(width) {
    const many = this.shown.length > 24;
    this.laneHeight = many ? 22 : this.shown.length > 10 ? 40 : 58;
    this.width = width;
    let y = AXIS;
    this.places = this.shown.map((lane) => {
      const place = { lane, head: y, top: y + LANE_HEAD, bottom: y + LANE_HEAD + this.laneHeight };
      y = place.bottom + LANE_GAP;
      return place;
    });
    for (const strip of this.strips) {
      strip.top = y + LANE_HEAD;
      strip.rowHeight = strip.rows > STAGE_ROWS ? Math.max(3, (STAGE_ROWS * STAGE_ROW) / strip.rows) : STAGE_ROW;
      strip.bottom = strip.top + Math.min(strip.rows, 60) * strip.rowHeight;
      y = strip.bottom + LANE_GAP;
    }
    this.height = y;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(this.height * scale);
    this.canvas.style.height = `${this.height}px`;
    this.scale = this.canvas.width / width;
  }

  draw(view, cursor) {
    const c = this.canvas.getContext("2d");
    c.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    c.fillStyle = this.colors.ground;
    c.fillRect(0, 0, this.width, this.height);
    this.axis(c, view);
    for (const place of this.places) this.lane(c, view, place);
    for (const strip of this.strips) this.strip(c, view, strip);
    if (cursor !== null) {
      const x = this.xOf(view, cursor.ns);
      c.fillStyle = this.colors.accent;
      c.fillRect(Math.round(x) - 0.5, AXIS - 4, 1, this.height - AXIS);
      const place = this.places[cursor.lane];
      if (place && cursor.keyed) {
        c.strokeStyle = this.colors.accent;
        c.strokeRect(0.5, place.top - 0.5, this.width - 1, this.laneHeight + 1);
      }
    }
  }

  xOf(view, ns) { return ((ns - view.from) / (view.to - view.from)) * this.width; }
  nsOf(view, x) { return view.from + (x / this.width) * (view.to - view.from); }

  axis(c, view) {
    const step = tickStep(((view.to - view.from) * 84) / this.width);
    c.font = `11.5px ${this.font}`;
    c.textBaseline = "alphabetic";
    for (let n = Math.ceil(view.from / step); n * step <= view.to; n++) {
      const x = this.xOf(view, n * step);
      const text = tickText(n * step, step), room = c.measureText(text).width;
      c.fillStyle = this.colors.grid;
      c.fillRect(Math.round(x), AXIS - 5, 1, this.height - AXIS);
      c.fillStyle = this.colors.faint;
      if (x + 3 + room <= this.width) c.fillText(text, x + 3, AXIS - 7);
    }
  }

  lane(c, view, place) {
    const { lane, top, bottom } = place;
    this.head(c, place);
    c.save();
    c.beginPath();
    c.rect(0, top, this.width, bottom - top);
    c.clip();
    c.fillStyle = this.colors.raised;
    c.globalAlpha = 0.65;
    c.fillRect(0, top, this.width, bottom - top);
    c.globalAlpha = 1;
    const blocks = this.singleBlocks(view, lane);
    if (blocks) this.single(c, view, place, blocks);
    else this.bins(c, view, place);
    this.waiting(c, view, place);
    this.counters(c, view, place);
    c.restore();
    c.fillStyle = this.colors.line;
    c.fillRect(0, bottom, this.width, 1);
  }

  head(c, { lane, head }) {
    const y = head + 14;
    c.font = `11.5px ${this.font}`;
    c.fillStyle = this.colors.faint;
    const full = `${numberText(lane.highest)} ${lane.unit}`;
    const right = c.measureText(full).width;
    c.fillText(full, this.width - right, y);
    c.font = `600 12.5px ${this.font}`;
    c.fillStyle = this.colors.strong;
    const name = fitted(c, lane.machine ? `${lane.name} · ${lane.machine}` : lane.name, this.width - right - 10);
    c.fillText(name, 0, y);
    const x = c.measureText(name).width + 10;
    c.font = `11.5px ${this.font}`;
    c.fillStyle = this.colors.faint;
    const texts = [`${lane.capacity} · mean ${numberText(lane.mean)} ${lane.unit}`, lane.capacity];
    const text = texts.find((text) => x + c.measureText(text).width + 12 < this.width - right);
    if (text) c.fillText(text, x, y);
  }

  /** Returns the level whose bins fit the screen's pixels, and the range of its bins in view. */
  level(view) {
    const { bins, length_ns: length } = this.timeline;
    const pixel = (view.to - view.from) / this.width;
    let level = 0;
    while (length / bins * 2 ** (level + 1) <= pixel * 1.5 && bins / 2 ** (level + 1) >= 64) level++;
    const bin = (length / bins) * 2 ** level, count = bins / 2 ** level;
    const first = Math.max(0, Math.floor(view.from / bin)), last = Math.min(count - 1, Math.floor(view.to / bin));
    return { level, bin, first, last };
  }

  bins(c, view, { lane, top, bottom }) {
    const { level, bin, first, last } = this.level(view);
    const height = (bottom - top) / lane.highest;
    const snap = (x) => Math.round(x * this.scale) / this.scale;
    const below = new Float32Array(Math.max(0, last - first + 1));
    for (const series of lane.running) {
      const values = series.levels[level];
      if (!values) continue;
      c.fillStyle = this.phaseColors[series.phase];
      c.beginPath();
      for (let i = first; i <= last; i++) {
        if (values[i] <= 0) continue;
        const x = snap(this.xOf(view, i * bin)), to = snap(this.xOf(view, (i + 1) * bin));
        const from = below[i - first];
        below[i - first] = from + values[i];
        c.rect(x, bottom - below[i - first] * height, Math.max(to - x, 1 / this.scale), values[i] * height);
      }
      c.fill();
    }
  }

  /** Returns the unpacked blocks in view, or null if their activities are too dense or not unpacked yet. */
  singleBlocks(view, lane) {
    if (!this.timeline.single || lane.blocks.length === 0) return null;
    const tick = this.timeline.tick_ns, from = view.from / tick, to = view.to / tick;
    const blocks = lane.blocks.filter((block) => block.to >= from && block.from <= to);
    let count = 0;
    for (const block of blocks) {
      const within = Math.min(block.to, to) - Math.max(block.from, from);
      count += block.count * Math.min(1, (within + 1) / (block.to - block.from + 1));
    }
    if (count > this.width * Math.max(1, Math.min(lane.rows, 8)) / 3) return null;
    const columns = blocks.map((block) => columnsOf(block, this.redraw));
    return columns.every(Boolean) ? columns : null;
  }

  single(c, view, { lane, top, bottom }, blocks) {
    const tick = this.timeline.tick_ns;
    const rows = Math.max(lane.rows, lane.full), row = (bottom - top) / rows;
    const gap = row >= 6 ? 1 : 0;
    for (let phase = 0; phase < this.phaseColors.length; phase++) {
      c.fillStyle = this.phaseColors[phase];
      c.beginPath();
      for (const block of blocks) {
        for (let i = 0; i < block.count; i++) {
          if ((block.phase[i] & 31) !== phase) continue;
          const start = block.start[i] * tick, end = start + block.service[i] * tick;
          if (end < view.from || start > view.to) continue;
          const x = Math.max(-2, this.xOf(view, start)), to = Math.min(this.width + 2, this.xOf(view, end));
          const width = Math.max(to - x - (to - x > 3 ? 0.75 : 0), 0.6);
          c.rect(x, bottom - (block.row[i] + 1) * row + gap / 2, width, row - gap);
        }
      }
      c.fill();
    }
  }

  /** Draws the queue length as the darkness of a thin line at the top, since a height cannot show both 1 and 1000. */
  waiting(c, view, { lane, top }) {
    if (!lane.waiting) return;
    const { level, bin, first, last } = this.level(view);
    const values = lane.waiting.levels[level];
    c.fillStyle = this.colors.text;
    for (let i = first; i <= last; i++) {
      if (values[i] < 0.05) continue;
      c.globalAlpha = Math.min(0.9, 0.16 + 0.22 * Math.log10(1 + values[i]));
      const x = this.xOf(view, i * bin);
      c.fillRect(x, top, this.xOf(view, (i + 1) * bin) - x + 0.3, 3);
    }
    c.globalAlpha = 1;
  }

  counters(c, view, { lane, top, bottom }) {
    if (lane.samples.length === 0) return;
    c.strokeStyle = this.colors.counter;
    c.lineWidth = 1.25;
    c.globalAlpha = 0.75;
    c.beginPath();
    let started = false;
    for (const [at, share] of lane.samples) {
      const x = this.xOf(view, at), full = lane.kind === "cpu" ? lane.full / lane.highest : 1;
      const y = bottom - Math.min(1, share * full) * (bottom - top - 1);
      started ? c.lineTo(x, y) : c.moveTo(x, y);
      started = true;
    }
    c.stroke();
    c.lineWidth = 1;
    c.globalAlpha = 1;
  }

  strip(c, view, strip) {
    c.font = `600 12.5px ${this.font}`;
    c.fillStyle = this.colors.strong;
    c.fillText(strip.title, 0, strip.top - 5);
    c.font = `11.5px ${this.font}`;
    for (const span of strip.spans) {
      const x = this.xOf(view, span.from_ns), to = this.xOf(view, span.to_ns);
      if (to < 0 || x > this.width || span.row >= 60) continue;
      const y = strip.top + span.row * strip.rowHeight, height = strip.rowHeight - (strip.rowHeight > 6 ? 2 : 1);
      const from = Math.max(0, x), width = Math.max(Math.min(this.width, to) - from, 1);
      c.fillStyle = span === this.highlighted ? this.colors.accent : this.colors.line;
      c.fillRect(from, y, width, height);
      if (strip.rowHeight < STAGE_ROW || width < 26) continue;
      c.fillStyle = span === this.highlighted ? this.colors.ground : this.colors.text;
      c.fillText(fitted(c, strip.label(span), width - 8), from + 4, y + 11.5);
    }
  }

  /** Returns the item under a point: a lane with its activity, or the span of a stage or job. */
  at(view, x, y) {
    const ns = this.nsOf(view, x);
    const lane = this.places.findIndex((place) => y >= place.head && y < place.bottom + LANE_GAP / 2);
    if (lane >= 0) {
      const place = this.places[lane], rows = Math.max(place.lane.rows, place.lane.full);
      const row = Math.floor(((place.bottom - y) / (place.bottom - place.top)) * rows);
      return { ns, lane, activity: this.activityAt(view, place.lane, ns, y >= place.top ? row : null) };
    }
    for (const strip of this.strips) {
      const row = Math.floor((y - strip.top) / strip.rowHeight);
      const span = strip.spans.find((s) => s.row === row && s.from_ns <= ns && s.to_ns >= ns);
      if (span) return { ns, span };
    }
    return { ns };
  }

  activityAt(view, lane, ns, row) {
    const blocks = row === null ? null : this.singleBlocks(view, lane);
    const at = ns / this.timeline.tick_ns;
    for (const block of blocks ?? []) {
      for (let i = 0; i < block.count; i++) {
        if (block.row[i] === row && block.start[i] <= at && at <= block.start[i] + block.service[i]) return { block, i };
      }
    }
    return null;
  }

  /** Returns the values of a lane's series at a time, from the level that is drawn. */
  valuesAt(view, lane, ns) {
    const { level, bin } = this.level(view);
    const at = (series) => {
      const values = series.levels[level];
      return values[Math.min(values.length - 1, Math.max(0, Math.floor(ns / bin)))];
    };
    return {
      bin,
      running: lane.running.map((series) => [series.phase, at(series)]).filter(([, value]) => value > 0),
      waiting: lane.waiting ? at(lane.waiting) : 0,
      rate: lane.rate ? at(lane.rate) : null,
    };
  }
}

/** Packs spans into rows: each goes into the first free row. */
function strip(title, spans, label) {
  const ends = [];
  const sorted = [...spans].sort((a, b) => a.from_ns - b.from_ns);
  for (const span of sorted) {
    const row = ends.findIndex((end) => end <= span.from_ns);
    span.row = row < 0 ? ends.length : row;
    ends[span.row] = span.to_ns;
  }
  return { title, spans: sorted, label, rows: ends.length };
}

function fitted(c, text, room) {
  if (c.measureText(text).width <= room) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (c.measureText(`${text.slice(0, middle)}…`).width <= room) low = middle;
    else high = middle - 1;
  }
  return low > 2 ? `${text.slice(0, low)}…` : "";
}
