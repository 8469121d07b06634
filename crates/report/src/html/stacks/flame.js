// Draws the sampled stacks as a flame graph: a box for each function, as wide as its samples, below its caller.

const FLAME_ROW = 18, FLAME_MIN_WIDTH = 2, FLAME_COLORS = 4;

class FlameView {
  constructor({ rate_hz, samples, names, nodes }) {
    this.view = byId("flame-view");
    this.picture = byId("flame-picture");
    this.pencil = document.createElement("canvas").getContext("2d");
    this.pencil.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    this.samples = samples;
    this.msOf = (count) => count / rate_hz * 1000;
    this.nodes = nodes.map(([, name, count]) => ({ name: names[name], count, parent: null, children: [], depth: 0, box: null, x: 0, width: 0 }));
    nodes.forEach(([parent], ix) => {
      if (ix === 0) return;
      const node = this.nodes[ix];
      node.parent = this.nodes[parent];
      node.depth = node.parent.depth + 1;
      node.parent.children.push(node);
    });
    for (const node of this.nodes) node.children.sort((a, b) => b.count - a.count);
    this.root = this.nodes[0];
    this.show(this.root);
  }

  /** Draws a node over the whole width, its callers above, and the functions that it called below. */
  show(node) {
    this.shown = node;
    this.drawn = [];
    const width = Math.max(200, this.view.clientWidth);
    let rows = 0;
    for (const each of this.nodes) each.box = null;
    for (let above = node.parent; above; above = above.parent) this.place(above, 0, width);
    const below = [[node, 0, width]];
    while (below.length > 0) {
      const [each, x, room] = below.pop();
      this.place(each, x, room);
      rows = Math.max(rows, each.depth + 1);
      let at = x;
      for (const child of each.children) {
        const part = room * child.count / each.count;
        if (part < FLAME_MIN_WIDTH) break;
        below.push([child, at, part]);
        at += part;
      }
    }
    this.picture.setAttribute("viewBox", `0 0 ${width} ${rows * FLAME_ROW}`);
    this.picture.style.width = `${width}px`;
    this.picture.style.height = `${rows * FLAME_ROW}px`;
    this.picture.replaceChildren(...this.drawn.map((each) => each.box));
    this.choose(node);
  }

  svg(name, attributes, ...children) {
    return filled(document.createElementNS(this.picture.namespaceURI, name), attributes, children);
  }

  place(node, x, width) {
    const y = node.depth * FLAME_ROW, said = this.said(node);
    const kind = node.depth < 3 ? `place-${node.depth}` : `function-${FlameView.color(node.name)}`;
    Object.assign(node, { x, width });
    node.box = this.svg("g", { class: `node ${kind}`, role: "button", tabindex: -1, "aria-label": said,
      onclick: () => { this.show(node); node.box.focus({ preventScroll: true }); }, onkeydown: (event) => this.key(event, node) },
    this.svg("title", {}, said),
    this.svg("rect", { x: x + 0.5, y: y + 0.5, width: Math.max(1, width - 1), height: FLAME_ROW - 1, rx: 2 }),
    width < 30 ? null : this.svg("text", { x: x + 5, y: y + 13 }, fitted(this.pencil, node.name, width - 8)));
    this.drawn.push(node);
  }

  said({ name, count }) {
    return `${name}, ${timeText(this.msOf(count))}, ${percentText(count / this.samples)} of ${plural(this.samples, "sample")}`;
  }

  /** Gives the functions of a crate one colour. */
  static color(name) {
    const crate = name.match(/[A-Za-z_][A-Za-z0-9_]*/)?.[0] ?? "";
    return [...crate].reduce((hash, letter) => (hash * 31 + letter.charCodeAt(0)) % 997, 7) % FLAME_COLORS;
  }

  /** Makes a node the one that the tab key reaches, and tells its numbers. */
  choose(node) {
    for (const each of this.drawn) each.box.setAttribute("tabindex", each === node ? "0" : "-1");
    byId("flame-chosen").textContent = this.said(node);
  }

  /** Zooms, or moves the focus to the caller, to the widest function called, or to a neighbour. */
  key(event, node) {
    const beside = (sign) => {
      const row = this.drawn.filter((other) => other.depth === node.depth && sign * (other.x - node.x) > 0);
      return row.sort((a, b) => sign * (a.x - b.x))[0];
    };
    const next = {
      Enter: () => { this.show(node); return node; },
      " ": () => { this.show(node); return node; },
      Escape: () => { this.show(this.root); return this.root; },
      ArrowUp: () => node.parent,
      ArrowDown: () => node.children.find((child) => child.box),
      ArrowLeft: () => beside(-1),
      ArrowRight: () => beside(1),
    }[event.key];
    if (!next) return;
    event.preventDefault();
    const to = next() ?? node;
    this.choose(to);
    to.box.focus({ preventScroll: true });
    to.box.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}

/** Adds the flame graph and the table of functions of a trace with stacks. */
function flame(data) {
  if (data === null) return;
  byId("flame").hidden = false;
  const view = new FlameView(data);
  byId("flame-all").addEventListener("click", () => view.show(view.root));
  let width = view.view.clientWidth;
  addEventListener("resize", () => {
    if (view.view.clientWidth === width) return;
    width = view.view.clientWidth;
    view.show(view.shown);
  });
  const part = (count) => percentText(count / data.samples);
  byId("flame-table-body").replaceChildren(...table("Functions", {
    name: { title: "function", text: true, long: true, cell: (f) => f.name, value: (f) => f.name },
    own: { title: "own core time", cell: (f) => timeText(view.msOf(f.own)), value: (f) => f.own },
    share: { title: "of all", cell: (f) => part(f.own), value: (f) => f.own },
    total: { title: "with callees", cell: (f) => timeText(view.msOf(f.total)), value: (f) => f.total },
    of: { title: "of all", cell: (f) => part(f.total), value: (f) => f.total },
  }, [...data.functions], "own"));
}
