// The interactive timeline: view, cursor, pointer, keyboard, legend and readout.

const MAX_LANES = 12;

/**
 * A place below the pointer.
 * @typedef {object} Place
 * @property {number} ns
 * @property {any} [lane]
 * @property {any} [activity]
 * @property {any} [span]
 */

class TimelineView {
  constructor(timeline, stageName, stageLabel) {
    Object.assign(this, { timeline, stageName, stageLabel });
    this.view = { from: 0, to: timeline.length_ns };
    this.cursor = null;
    this.draw = this.draw.bind(this);
    this.lanes = new Lanes(byId("lanes"), timeline, (stage) => `${stageLabel(stage)}  ${stageName(stage)}`, this.draw);
    this.chooseLanes();
    this.legend();
    this.listen();
    this.resize();
  }

  /** Schedules a redraw for the next frame; repeated calls are merged. */
  draw() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.drawNow();
    });
  }

  drawNow() {
    this.lanes.draw(this.view, this.cursor);
    this.overview();
    const { from, to } = this.view;
    const whole = from <= 0 && to >= this.timeline.length_ns;
    byId("view").textContent = whole ? `${timeText((to - from) / 1e6)} in total`
      : `${timeText((to - from) / 1e6)} from ${timeText(from / 1e6)}`;
  }

  resize() {
    this.lanes.resize(byId("lanes").parentElement.clientWidth);
    this.drawNow();
  }

  /** Offers a choice of lanes, with the busiest shown first; a few lanes are all shown. */
  chooseLanes() {
    const { lanes } = this.timeline;
    const share = (lane) => lane.mean / lane.highest;
    const busiest = [...lanes].sort((a, b) => share(b) - share(a)).slice(0, MAX_LANES);
    const choices = [["busiest", `the ${MAX_LANES} busiest of ${lanes.length}`, lanes.filter((l) => busiest.includes(l))],
      ["all", `all ${lanes.length}`, lanes]];
    const kinds = [...new Set(lanes.map((lane) => lane.kind))];
    if (kinds.length > 1) {
      for (const kind of kinds) choices.push([kind, kindText(kind), lanes.filter((lane) => lane.kind === kind)]);
    }
    this.lanes.shown = lanes.length > MAX_LANES ? choices[0][2] : lanes;
    if (lanes.length <= MAX_LANES) return;
    const select = byId("lanes-shown");
    for (const [value, text] of choices) select.append(element("option", { value }, text));
    byId("lanes-choice").hidden = false;
    select.addEventListener("change", () => {
      this.lanes.shown = choices.find(([value]) => value === select.value)[2].slice(0, 500);
      this.cursor = null;
      this.resize();
    });
  }

  legend() {
    const used = new Set(this.timeline.lanes.flatMap((lane) => lane.running.map((series) => series.phase)));
    const entries = [...used].sort((a, b) => a - b).map((phase) => {
      const { key, label } = this.timeline.phases[phase];
      return element("span", {}, element("i", { style: { background: `var(${PHASE_COLORS[key]})` } }), label);
    });
    if (this.timeline.lanes.some((lane) => lane.waiting)) {
      entries.push(element("span", {}, element("i", { class: "thin", style: { background: "var(--faint)", height: "3px" } }),
        "queue length (darker: longer)"));
    }
    if (this.timeline.lanes.some((lane) => lane.samples.length > 0)) {
      entries.push(element("span", {}, element("i", { class: "thin", style: { background: "var(--counter)" } }),
        "machine counter, all processes"));
    }
    if (this.timeline.lanes.some((lane) => lane.kind === "slots")) {
      entries.push(element("span", {}, "Only totals per task are recorded, so each part is spread evenly over its task."));
    }
    byId("legend").replaceChildren(...entries);
  }

  /** Draws the mean utilization of all lanes as one strip, and marks the view in it. */
  overview() {
    const canvas = byId("overview"), c = canvas.getContext("2d"), scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = 34;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    c.setTransform(canvas.width / width, 0, 0, scale, 0, 0);
    const { lanes, bins } = this.timeline;
    const level = Math.max(0, Math.floor(Math.log2(bins / Math.max(64, width))));
    const count = bins / 2 ** level, use = new Map();
    for (const lane of lanes) {
      for (const series of lane.running) {
        const sum = use.get(series.phase) ?? new Float32Array(count);
        const values = series.levels[level];
        for (let i = 0; i < count; i++) sum[i] += values[i] / lane.highest / lanes.length;
        use.set(series.phase, sum);
      }
    }
    const below = new Float32Array(count);
    for (const [phase, sum] of [...use].sort((a, b) => a[0] - b[0])) {
      c.fillStyle = this.lanes.phaseColors[phase];
      for (let i = 0; i < count; i++) {
        const h = sum[i] * (height - 4);
        c.fillRect((i / count) * width, height - below[i] - h, width / count + 0.4, h);
        below[i] += h;
      }
    }
    const from = (this.view.from / this.timeline.length_ns) * width;
    const to = (this.view.to / this.timeline.length_ns) * width;
    c.fillStyle = this.lanes.colors.ground;
    c.globalAlpha = 0.6;
    c.fillRect(0, 0, from, height);
    c.fillRect(to, 0, width - to, height);
    c.globalAlpha = 1;
    c.strokeStyle = this.lanes.colors.accent;
    c.lineWidth = 1.5;
    if (to - from < width - 1) c.strokeRect(from + 0.75, 0.75, Math.max(2, to - from - 1.5), height - 1.5);
  }

  show(from, to) {
    const whole = this.timeline.length_ns, min = Math.min(whole, this.timeline.tick_ns * 100);
    const length = Math.min(whole, Math.max(min, to - from));
    const start = Math.min(Math.max(0, from + (to - from - length) / 2), whole - length);
    this.view = { from: start, to: start + length };
    this.draw();
  }

  zoom(factor, at) {
    const { from, to } = this.view;
    const middle = at ?? this.cursorInView() ?? (from + to) / 2;
    this.show(middle - (middle - from) / factor, middle + (to - middle) / factor);
  }

  move(share) {
    const by = (this.view.to - this.view.from) * share;
    this.show(this.view.from + by, this.view.to + by);
  }

  cursorInView() {
    const ns = this.cursor?.ns;
    return ns >= this.view.from && ns <= this.view.to ? ns : null;
  }

  /** Zooms to a stage, with a margin on both sides. */
  showStage(stage) {
    const span = this.timeline.stages.find((span) => span.stage === stage);
    if (!span) return;
    const margin = Math.max((span.to_ns - span.from_ns) * 0.06, this.timeline.tick_ns * 100);
    this.lanes.highlighted = span;
    this.show(span.from_ns - margin, span.to_ns + margin);
    byId("timeline").scrollIntoView({ block: "start" });
  }

  listen() {
    const canvas = byId("lanes");
    const actions = {
      earlier: () => this.move(-0.25), later: () => this.move(0.25), in: () => this.zoom(2), out: () => this.zoom(0.5),
      whole: () => { this.lanes.highlighted = null; this.show(0, this.timeline.length_ns); },
    };
    for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".buttons [data-do]"))) {
      button.addEventListener("click", actions[button.dataset.do]);
    }
    canvas.addEventListener("keydown", (event) => this.key(event, actions));
    canvas.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        this.zoom(Math.exp(-event.deltaY / 240), this.lanes.nsOf(this.view, event.offsetX));
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        this.move(event.deltaX / this.lanes.width);
      }
    }, { passive: false });
    canvas.addEventListener("dblclick", (event) => this.zoom(3, this.lanes.nsOf(this.view, event.offsetX)));
    this.pointers(canvas);
    const overview = byId("overview");
    const jump = (event) => {
      if (event.buttons !== 1) return;
      const at = (event.offsetX / overview.clientWidth) * this.timeline.length_ns;
      const half = (this.view.to - this.view.from) / 2;
      this.show(at - half, at + half);
    };
    overview.addEventListener("pointerdown", jump);
    overview.addEventListener("pointermove", jump);
    new ResizeObserver(() => {
      if (Math.round(canvas.parentElement.clientWidth) !== Math.round(this.lanes.width)) this.resize();
    }).observe(canvas.parentElement);
  }

  /** Handles pointers: dragging one pans, two pinch to zoom, and hovering shows the readout. */
  pointers(canvas) {
    const down = new Map();
    canvas.addEventListener("pointerdown", (event) => {
      down.set(event.pointerId, event.offsetX);
      canvas.setPointerCapture(event.pointerId);
    });
    const up = (event) => down.delete(event.pointerId);
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointermove", (event) => {
      if (down.size === 0) return this.hover(event);
      const before = [...down.values()], last = down.get(event.pointerId);
      if (last === undefined) return;
      down.set(event.pointerId, event.offsetX);
      if (down.size === 1) return this.move((last - event.offsetX) / this.lanes.width);
      const after = [...down.values()];
      const apart = (xs) => Math.max(8, Math.abs(xs[0] - xs[1]));
      this.zoom(apart(after) / apart(before), this.lanes.nsOf(this.view, (after[0] + after[1]) / 2));
    });
    canvas.addEventListener("pointerleave", () => {
      byId("tip").hidden = true;
      if (this.cursor && !this.cursor.keyed) this.cursor = null;
      this.draw();
    });
  }

  hover(event) {
    const found = this.lanes.at(this.view, event.offsetX, event.offsetY);
    this.cursor = { ns: found.ns, lane: found.lane ?? -1, keyed: false };
    const lines = this.readout(found), tip = byId("tip");
    tip.hidden = lines.length === 0;
    if (lines.length > 0) {
      tip.replaceChildren(...lines);
      const room = this.lanes.width, x = event.offsetX;
      tip.style.left = `${Math.max(0, x + 16 + tip.offsetWidth > room ? x - tip.offsetWidth - 14 : x + 16)}px`;
      tip.style.top = `${Math.min(event.offsetY + 14, this.lanes.height - 40)}px`;
    }
    this.draw();
  }

  /**
   * Returns the lines of the readout for a place.
   * @param {Place} place
   */
  readout({ ns, lane, activity, span }) {
    const line = (...parts) => element("div", {}, ...parts);
    if (span) {
      const what = span.stage === undefined ? `Job ${span.job}` : `Stage ${this.stageLabel(span.stage)}: ${this.stageName(span.stage)}`;
      return [element("b", {}, what),
        line(`${timeText((span.to_ns - span.from_ns) / 1e6)}, from ${timeText(span.from_ns / 1e6)}`)];
    }
    if (lane === undefined) return [];
    const shown = this.lanes.shown[lane];
    if (activity) return [element("b", {}, shown.name), ...this.activityLines(activity).map((text) => line(text))];
    const { bin, running, waiting, rate } = this.lanes.valuesAt(this.view, shown, ns);
    const lines = [element("b", {}, `${shown.name} at ${timeText(ns / 1e6)}`)];
    for (const [phase, value] of running) {
      const { key, label } = this.timeline.phases[phase];
      lines.push(line(element("i", { style: { background: `var(${PHASE_COLORS[key]})` } }), `${label}: ${numberText(value)} ${shown.unit}`));
    }
    if (running.length === 0) lines.push(line("idle"));
    if (waiting >= 0.05) lines.push(line(`${numberText(waiting)} waiting`));
    if (rate) lines.push(line(`${sizeText(rate)}/s`));
    lines.push(line(`mean over ${timeText(bin / 1e6)}`));
    return lines;
  }

  activityLines({ block, i }) {
    const tick = this.timeline.tick_ns / 1e6, phase = this.timeline.phases[block.phase[i] & 31];
    const service = block.service[i] * tick, bytes = block.bytes[i] > 0 ? block.bytes[i] - 1 : null;
    const lines = [`${phase.label}: ${timeText(service)} from ${timeText(block.start[i] * tick)}`];
    if (block.wait[i] > 0) lines.push(`queued for ${timeText(block.wait[i] * tick)}`);
    if (bytes !== null) lines.push(sizeText(bytes) + (service > 0 ? `, ${sizeText((bytes / service) * 1000)}/s` : ""));
    if (block.stage[i] > 0) lines.push(`stage ${this.stageLabel(block.stage[i] - 1)}: ${this.stageName(block.stage[i] - 1)}`);
    if (block.partition[i] > 0) lines.push(`partition ${block.partition[i] - 1}`);
    if (block.phase[i] >= 32) lines.push("failed or cancelled");
    return lines;
  }

  key(event, actions) {
    const { from, to } = this.view, cursor = this.cursor ?? { ns: (from + to) / 2, lane: 0 };
    const lanes = this.lanes.shown.length;
    const moved = (ns, lane) => {
      const to = Math.min(Math.max(ns, 0), this.timeline.length_ns);
      this.cursor = { ns: to, lane: Math.min(Math.max(lane, 0), lanes - 1), keyed: true };
      if (this.cursorInView() === null) this.move(ns < from ? -0.5 : 0.5);
      const place = this.lanes.places[this.cursor.lane];
      const found = { ns: to, lane: this.cursor.lane, activity: this.lanes.activityAt(this.view, place.lane, to, 0) };
      byId("spoken").textContent = this.readout(found).map((line) => line.textContent).join(". ");
      this.tipAtCursor(found);
    };
    const step = (to - from) / 60;
    const keys = {
      ArrowLeft: () => event.shiftKey ? actions.earlier() : moved(cursor.ns - step, cursor.lane),
      ArrowRight: () => event.shiftKey ? actions.later() : moved(cursor.ns + step, cursor.lane),
      ArrowUp: () => moved(cursor.ns, cursor.lane - 1),
      ArrowDown: () => moved(cursor.ns, cursor.lane + 1),
      "+": actions.in, "=": actions.in, "-": actions.out, 0: actions.whole, Home: actions.whole,
      Escape: () => { this.cursor = null; byId("tip").hidden = true; },
    };
    const action = keys[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
    this.draw();
  }

  /** Shows the readout beside the keyboard cursor. */
  tipAtCursor(found) {
    const tip = byId("tip"), x = this.lanes.xOf(this.view, found.ns);
    tip.replaceChildren(...this.readout(found));
    tip.hidden = false;
    tip.style.left = `${Math.max(0, x + 16 + tip.offsetWidth > this.lanes.width ? x - tip.offsetWidth - 14 : x + 16)}px`;
    tip.style.top = `${this.lanes.places[found.lane].bottom + 4}px`;
  }
}
