// Draws the plan of a job or a query: its operators as boxes in frames, and the details of the chosen one.

// Plans of more operators have only the table.
const MAX_DRAWN = 2000;
const MIN_ZOOM = 0.1, MAX_ZOOM = 2;
// Edges leave and enter a box here, and their labels and the headings of frames are to the right.
const PORT = 18, SIDE_PORT = 150, LABEL = PORT + 8;

class PlanView {
  constructor(plan, measures, graph, stageOf) {
    Object.assign(this, { stageOf, measures }, graph);
    this.picture = byId("plan-picture");
    this.pencil = document.createElement("canvas").getContext("2d");
    this.font = getComputedStyle(document.body).fontFamily;
    this.chosen = measures.chosen;
    const ofQuery = plan.query !== null, drawn = this.nodes.length > 0 && this.nodes.length <= MAX_DRAWN;
    byId("plan-of-job").hidden = ofQuery;
    byId("plan-of-query").hidden = !ofQuery;
    for (const item of byId("plan-legend").children) item.hidden = item.dataset.of !== undefined && (item.dataset.of === "query") !== ofQuery;
    byId("plan-limits").hidden = !ofQuery;
    byId("plan-limits").replaceChildren(...(measures.limits ?? []).map((text) => element("li", {}, text)));
    byId("plan-drawn").hidden = !drawn;
    if (drawn) this.draw(layout(this));
    this.table(drawn);
  }

  stageName = ({ stage }) => stage === null ? "a stage that is not known"
    : `stage ${this.stageOf.has(stage) ? stageLabel(this.stageOf.get(stage)) : stage}`;

  draw({ width, height }) {
    Object.assign(this, { width, height });
    for (const edge of this.edges) {
      edge.crosses = edge.from.frame !== edge.to.frame;
      edge.critical = edge.crosses && edge.from.frame.critical && edge.to.frame.critical;
    }
    for (const node of this.nodes) node.box = this.box(node);
    this.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.picture.replaceChildren(...this.frames.map((frame) => this.frame(frame)), ...this.codes.map((code) => this.code(code)),
      ...this.edges.map((edge) => this.line(edge)), ...this.frames.map((frame) => this.heading(frame)),
      ...this.codes.map((code) => this.codeHeading(code)),
      ...this.edges.flatMap((edge) => this.labels(edge)), ...this.nodes.map((node) => node.box));
    this.choose(this.chosen);
    const view = byId("plan-view");
    this.zoom(Math.min(1, Math.max(0.75, view.clientWidth / width)));
    view.scrollTo((this.chosen.x + NODE_WIDTH / 2) * this.scale - view.clientWidth / 2,
      (this.chosen.y + NODE_HEIGHT / 2) * this.scale - view.clientHeight / 2);
  }

  svg(name, attributes, ...children) {
    return filled(document.createElementNS(this.picture.namespaceURI, name), attributes, children);
  }

  text(x, y, text, attributes, room = Infinity) {
    this.pencil.font = `${attributes.class === "name" ? "600 12px" : "11px"} ${this.font}`;
    return this.svg("text", { x, y, ...attributes }, fitted(this.pencil, text, room));
  }

  frame({ x, y, width, height, critical }) {
    return this.svg("rect", { x, y, width, height, rx: 6, class: critical ? "frame critical" : "frame" });
  }

  heading({ x, y, width, stage, critical }) {
    const duration = this.stageOf.get(stage)?.duration_ms ?? null;
    const text = stage === null ? "stage not known" : `${this.stageName({ stage })}${duration === null ? "" : ` · ${timeText(duration)}`}`;
    return this.text(x + FRAME + LABEL, y + 15, text, { class: critical ? "heading critical" : "heading" }, width - LABEL);
  }

  code({ x, y, width, height }) {
    return this.svg("rect", { x, y, width, height, rx: 5, class: "code" });
  }

  codeHeading({ x, y, heading }) {
    return this.text(x + CODE + LABEL, y + 13, heading, { class: "heading" }, NODE_WIDTH - LABEL);
  }

  /** Draws an edge down to its consumer: straight in the same column, else from the right. */
  line({ from, to, counted, critical }) {
    const x = from.x + PORT, y = from.y + NODE_HEIGHT, side = Math.sign(from.column - to.column);
    const bend = to.y - (to.rows > NODE_ROWS ? CODE_HEADING + 7 : 10);
    const path = side === 0 ? `M${x},${y}V${to.y}`
      : `M${x},${y}V${bend - 5}q0,5 ${-5 * side},5H${to.x + SIDE_PORT + 5 * side}q${-5 * side},0 ${-5 * side},5V${to.y}`;
    return this.svg("path", { d: path, class: critical ? "edge critical" : "edge", "stroke-width": 1 + Math.log10(1 + (counted.rowsOut ?? 0)) / 2 });
  }

  labels({ from, to, crosses, mark, counted: { rowsOut, bytes } }) {
    const y = from.y + NODE_HEIGHT + (crosses ? FRAME + 15 : from.code && from.code !== to.code ? CODE + 12 : 13);
    const text = [rowsOut !== undefined && plural(rowsOut, "row"), bytes !== undefined && sizeText(bytes)].filter(Boolean).join(" · ");
    return [text && this.text(from.x + LABEL, y, text, { class: "rows" }),
      mark && this.text(from.x + LABEL, y + 13, mark, { class: "rows skew" })].filter(Boolean);
  }

  box(node) {
    const { x, y, of, share, figure, mark, costly } = node, inner = NODE_WIDTH - 16;
    const said = [node.spoken[0], this.stageName(node.frame), ...node.spoken.slice(1),
      node.read !== undefined && `largest read ${readText(node.read)}`].filter(Boolean);
    this.pencil.font = `600 11px ${this.font}`;
    const marked = mark ? this.pencil.measureText(mark).width + 6 : 0;
    return this.svg("g", { class: costly ? "node costly" : "node", role: "button", tabindex: -1, "aria-label": said.join(", "),
      onclick: () => this.choose(node), onkeydown: (event) => this.key(event, node) },
    this.svg("title", {}, of.detail === undefined ? of.name : `${of.name}: ${short(of.detail, 300)}`),
    this.svg("rect", { x, y, width: NODE_WIDTH, height: NODE_HEIGHT, rx: 4, class: "box" }),
    this.text(x + 8, y + 16, of.name, { class: "name" }, inner),
    this.text(x + 8, y + 31, figure, { class: share === null ? "rows" : "core" }, inner - marked),
    mark ? this.text(x + NODE_WIDTH - 8, y + 31, mark, { class: "skew", "text-anchor": "end" }) : null,
    share === null ? null : this.svg("rect", { x: x + 8, y: y + 37, width: inner, height: 4, rx: 2, class: "track" }),
    share === null ? null : this.svg("rect", { x: x + 8, y: y + 37, width: inner * Math.min(1, share), height: 4, rx: 2, class: "bar" }));
  }

  /** Shows a node's details. */
  choose(node) {
    for (const { box } of [this.chosen, node]) {
      box.setAttribute("aria-pressed", String(box === node.box));
      box.setAttribute("tabindex", box === node.box ? "0" : "-1");
    }
    this.chosen = node;
    const { of } = node;
    byId("plan-name").textContent = of.name;
    byId("plan-place").textContent = this.measures.place(node, this.stageName);
    byId("plan-detail").textContent = of.detail ?? "";
    byId("plan-detail").hidden = of.detail === undefined;
    byId("plan-facts").replaceChildren(...definitions(this.measures.facts(node)));
    this.columns(of);
    this.expressions(of);
  }

  /** Lists the columns that a scan decoded, the most expensive first. */
  columns({ columns = [], cpu_ns }) {
    byId("plan-columns").replaceChildren(...columns.length === 0 ? [] : table("Columns", {
      name: { title: "column", text: true, long: true, cell: (c) => c.name, value: (c) => c.name },
      core: { title: "core time", cell: (c) => timeText(c.cpu_ns / 1e6), value: (c) => c.cpu_ns },
      share: { title: "of the scan", cell: (c) => percentText(cpu_ns > 0 ? c.cpu_ns / cpu_ns : null), value: (c) => c.cpu_ns },
      encoded: { title: "in the file", cell: (c) => sizeText(c.encoded_bytes), value: (c) => c.encoded_bytes },
      decoded: { title: "in memory", cell: (c) => sizeText(c.decoded_bytes), value: (c) => c.decoded_bytes },
    }, [...columns], "core"));
  }

  /** Lists the expressions of an operator, the most expensive first. */
  expressions({ expressions = [], cpu_ns }) {
    byId("plan-expressions").replaceChildren(...expressions.length === 0 ? [] : table("Expressions", {
      text: { title: "expression", text: true, long: true, cell: (e) => e.text, value: (e) => e.text },
      core: { title: "core time, estimated", cell: (e) => `≈ ${timeText(e.cpu_ns / 1e6)}`, value: (e) => e.cpu_ns },
      share: { title: "of the operator", cell: (e) => percentText(cpu_ns > 0 ? e.cpu_ns / cpu_ns : null), value: (e) => e.cpu_ns },
      rows: { title: "rows", cell: (e) => countText(e.rows), value: (e) => e.rows },
    }, [...expressions], "core"));
  }

  /** Opens the details of a node, or moves the focus to the next one above, below or beside it. */
  key(event, node) {
    const next = {
      Enter: () => { this.choose(node); return node; },
      " ": () => { this.choose(node); return node; },
      ArrowUp: () => node.above[0],
      ArrowDown: () => this.nodes.find((other) => other.above.includes(node)),
      ArrowLeft: () => this.beside(node, -1),
      ArrowRight: () => this.beside(node, 1),
    }[event.key];
    if (!next) return;
    event.preventDefault();
    const { box } = next() ?? node;
    box.focus({ preventScroll: true });
    box.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /** Returns the nearest node on the left or on the right; one in the same row is preferred. */
  beside(node, sign) {
    const far = (other) => Math.abs(other.x - node.x) + 4 * Math.abs(other.y - node.y);
    return this.nodes.filter((other) => sign * (other.x - node.x) > 0).sort((a, b) => far(a) - far(b))[0];
  }

  /** Sets the scale, and keeps the middle of the view in its place. */
  zoom(scale) {
    const view = byId("plan-view"), before = this.scale ?? 1;
    const middle = [view.scrollLeft + view.clientWidth / 2, view.scrollTop + view.clientHeight / 2];
    this.scale = Math.min(MAX_ZOOM, Math.max(MIN_ZOOM, scale));
    this.picture.style.width = `${this.width * this.scale}px`;
    this.picture.style.height = `${this.height * this.scale}px`;
    view.scrollTo(middle[0] * this.scale / before - view.clientWidth / 2, middle[1] * this.scale / before - view.clientHeight / 2);
  }

  fit() {
    const view = byId("plan-view"), { paddingLeft } = getComputedStyle(view), around = 2 * parseFloat(paddingLeft);
    this.zoom(Math.min(1, (view.clientWidth - around) / this.width, (view.clientHeight - around) / this.height));
  }

  table(drawn) {
    const rows = [...this.nodes, ...this.codes], [columns, sorted] = this.measures.columns(rows);
    const stageOf = (n) => n.frame.stage === null ? "–" : this.stageName(n.frame).replace("stage ", "");
    byId("plan-table").open = !drawn;
    byId("plan-table-body").replaceChildren(...table("Operators", {
      operator: { title: "operator", cell: (n) => `${n.of.operator}`, value: (n) => n.of.operator },
      name: { title: "name", text: true, long: true, value: (n) => n.of.name,
        cell: (n) => element("span", {}, n.of.name, n.of.detail === undefined ? null : element("small", {}, short(n.of.detail, 160))) },
      stage: { title: "stage", cell: stageOf, value: (n) => n.frame.stage },
      inputs: { title: "inputs", text: true, cell: (n) => n.of.inputs?.join(", ") ?? (n.of.from === undefined ? "–" : this.stageName({ stage: n.of.from })) },
      ...columns,
    }, rows, sorted));
  }
}

/** Adds the plans of the jobs and queries whose operators were recorded, that of the longest first. */
function plans(document, stageOf) {
  const all = document.plans.map((plan) => {
    const graph = planGraph(plan);
    const job = document.analysis.jobs.find((job) => job.id === plan.job);
    return { plan, graph, measures: plan.query === null ? new CoreOperators(graph, plan, job) : new MetricOperators(graph, plan) };
  });
  all.sort((a, b) => b.measures.duration_ms - a.measures.duration_ms);
  if (all.length === 0) return;
  byId("plan").hidden = false;
  const show = ({ plan, measures, graph }) => new PlanView(plan, measures, graph, stageOf);
  let view = show(all[0]);
  const select = byId("plan-job");
  byId("plan-job-choice").hidden = all.length === 1;
  byId("plan-job-kind").textContent = all[0].plan.query === null ? "Job" : "Query";
  select.replaceChildren(...all.map(({ measures }, ix) => element("option", { value: ix }, measures.caption)));
  select.addEventListener("change", () => { view = show(all[select.value]); });
  const area = byId("plan-view");
  area.addEventListener("pointermove", (event) => {
    if (event.pointerType === "mouse" && event.buttons === 1 && !event.target.closest(".node")) area.scrollBy(-event.movementX, -event.movementY);
  });
  area.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    view.zoom(view.scale * Math.exp(-event.deltaY / 400));
  }, { passive: false });
  const actions = { out: () => view.zoom(view.scale / 1.25), in: () => view.zoom(view.scale * 1.25), fit: () => view.fit() };
  for (const button of byId("plan").querySelectorAll("[data-zoom]")) button.addEventListener("click", actions[button.dataset.zoom]);
}
