// Lays out a plan: rows from the leaves at the top down to the result, and columns from the left.
//
// Every operator above its consumer takes a row. Its first input stays in its column, so that a pipeline runs straight
// down; other inputs, such as build sides, come in from the right. A frame (a stage, or a fragment of a query's plan)
// takes rows of its own below those that it reads, so that frames do not overlap. Rows count upwards from the result.

// A node takes two rows, and the headings of frames and of generated code one.
const NODE_ROWS = 2, COLUMN = 212, ROW = 38, NODE_WIDTH = 184, NODE_HEIGHT = 46, FRAME = 9, HEADING = 23;
// The frame of generated code around its boxes, and the room for its heading.
const CODE = 5, CODE_HEADING = 20;

/**
 * An operator and its place.
 * @typedef {object} PlanNode
 * @property {any} of
 * @property {any} frame
 * @property {any} [code] the generated code that it is a part of
 * @property {PlanNode[]} above the nodes placed above it: its inputs, and those that read nothing and have no consumer
 * @property {PlanNode} [below] its consumer
 * @property {number} rows
 * @property {number} row
 * @property {number} column
 * @property {number} [x]
 * @property {number} [y]
 */

/**
 * Returns a plan as a graph: nodes, edges from inputs to consumers, frames, the result's first, and generated code, which
 * is an operator of its own in the plan, with the nodes that it consists of.
 */
function planGraph(plan) {
  const frames = new Map(plan.frames.map((frame) => [frame.frame, { ...frame, nodes: [], inputs: [], base: 0, top: 0 }]));
  const frameOf = (of) => frames.get(of.fragment ?? of.stage);
  const containers = new Set(plan.operators.map((of) => of.within).filter((number) => number !== undefined));
  const codes = new Map(), seen = new Map(), nodes = [], edges = [];
  const edge = (from, to) => {
    edges.push({ from, to });
    // A frame is placed by its output, which is its last node.
    if (from.below || (from.frame !== to.frame && from !== from.frame.nodes.at(-1))) return;
    from.below = to;
    to.above.push(from);
  };
  for (const of of plan.operators) {
    const frame = frameOf(of);
    if (containers.has(of.operator)) {
      codes.set(of.operator, { of, frame, nodes: [] });
      continue;
    }
    const node = /** @type {PlanNode} */ ({ of, frame, code: codes.get(of.within), above: [], rows: NODE_ROWS, row: 0, column: 0 });
    nodes.push(node);
    frame.nodes.push(node);
    node.code?.nodes.push(node);
    // A damaged trace may name inputs that are not before the operator.
    const inputs = (of.inputs ?? []).map((number) => seen.get(number)).filter((input) => input && input.frame.frame <= frame.frame);
    // The pipeline goes on in the same code or frame. Build sides, which return no rows, are beside it.
    const beside = (input) => input.frame !== frame || input.code !== node.code || (of.part !== undefined && input.of.rows === undefined);
    inputs.sort((a, b) => Number(beside(a)) - Number(beside(b)));
    inputs.forEach((input) => edge(input, node));
    frame.inputs.push(...inputs.map((input) => input.frame).filter((read) => read !== frame));
    seen.set(of.operator, node);
  }
  for (const { nodes } of codes.values()) {
    const top = nodes.find((node) => !node.above.some((input) => input.code === node.code));
    if (top) top.rows++;
  }
  const byConsumer = [...frames.values()].filter((frame) => frame.nodes.length > 0).sort((a, b) => b.frame - a.frame);
  for (const frame of byConsumer) frame.output = frame.nodes.at(-1);
  for (const frame of byConsumer) {
    for (const node of frame.nodes) {
      const source = node.of.from < frame.frame ? frames.get(node.of.from) : undefined;
      if (!source?.output) continue;
      frame.inputs.push(source);
      edge(source.output, node);
    }
    placeAlone(frame);
  }
  return { nodes, edges, frames: byConsumer, codes: [...codes.values()].filter((code) => code.nodes.length > 0) };
}

/** Places the nodes without a consumer, such as the copy of a stage's input, above a leaf. */
function placeAlone(frame) {
  let leaf = frame.output;
  const seen = new Set();
  for (let next = leaf; next && !seen.has(next); next = leaf.above.find((node) => node.frame === frame)) {
    leaf = next;
    seen.add(next);
  }
  const alone = frame.nodes.filter((node) => !node.below && node !== frame.output);
  const under = leaf.of.from === undefined ? leaf : frame.output;
  under.above.push(...alone.filter((node) => node !== under));
}

/** Sets the places of a graph's nodes, frames and code, in pixels, and returns the size of the picture. */
function layout({ nodes, frames, codes }) {
  // A plan may be drawn again.
  for (const node of nodes) node.column = 0;
  for (const frame of frames) frame.base = 0;
  for (const frame of frames) {
    stack(frame.output, frame.base);
    frame.top = Math.max(...frame.nodes.map((node) => node.row + node.rows));
    // A frame follows those that it reads, so these are still to come.
    for (const input of frame.inputs) input.base = Math.max(input.base, frame.top + 1);
  }
  const outputs = new Map(frames.map((frame) => [frame.output, frame]));
  const whole = pack(frames.map((frame) => frame.output).filter((node) => !node.below), blockOf([]), outputs);
  const top = Math.max(...frames.map((frame) => frame.top)) + 0.5;
  for (const node of nodes) {
    node.x = FRAME + 1 + node.column * COLUMN;
    node.y = (top - node.row - NODE_ROWS) * ROW + (NODE_ROWS * ROW - NODE_HEIGHT) / 2;
  }
  for (const frame of frames) {
    const [x, right] = extent(frame.nodes.map((node) => node.x)), [, bottom] = extent(frame.nodes.map((node) => node.y));
    const y = Math.min(...frame.nodes.map((node) => node.y - (node.rows - NODE_ROWS) * ROW));
    Object.assign(frame, { x: x - FRAME, y: y - HEADING, width: right - x + NODE_WIDTH + 2 * FRAME,
      height: bottom - y + NODE_HEIGHT + HEADING + FRAME });
  }
  for (const code of codes) {
    const [x, right] = extent(code.nodes.map((node) => node.x)), [y, bottom] = extent(code.nodes.map((node) => node.y));
    Object.assign(code, { x: x - CODE, y: y - CODE_HEADING, width: right - x + NODE_WIDTH + 2 * CODE,
      height: bottom - y + NODE_HEIGHT + CODE_HEADING + CODE });
  }
  const columns = Math.max(...whole.nodes.map((node) => node.column));
  return { width: columns * COLUMN + NODE_WIDTH + 2 * FRAME + 2, height: top * ROW };
}

const extent = (values) => [Math.min(...values), Math.max(...values)];

/** Sets the rows of a node and of those of its frame above it. */
function stack(node, row) {
  node.row = row;
  for (const input of node.above) if (input.frame === node.frame) stack(input, row + node.rows);
}

/** A block of placed nodes, with the first and last column that it uses of each row. */
const blockOf = (nodes) => ({ nodes, from: [], to: [] });

function use(block, row, from, to = from) {
  block.from[row] = Math.min(block.from[row] ?? from, from);
  block.to[row] = Math.max(block.to[row] ?? to, to);
}

/** Places nodes, each with all above it, side by side over a block: each as far to the left as there is room. */
function pack(nodes, block, outputs) {
  for (const node of nodes) {
    const own = blockOf([node]);
    for (let row = node.row; row < node.row + node.rows; row++) use(own, row, 0);
    pack(node.above, own, outputs);
    for (const input of node.above) {
      // A longer edge crosses rows in the column of its source.
      for (let row = node.row + node.rows; row < input.row; row++) use(own, row, input.column);
    }
    const frame = outputs.get(node);
    if (frame) {
      const [from, to] = extent(frame.nodes.map((of) => of.column));
      for (let row = frame.base; row <= frame.top; row++) use(own, row, from, to);
    }
    let shift = 0;
    own.from.forEach((from, row) => { shift = Math.max(shift, (block.to[row] ?? -1) + 1 - from); });
    for (const moved of own.nodes) moved.column += shift;
    own.from.forEach((from, row) => use(block, row, from + shift, own.to[row] + shift));
    block.nodes.push(...own.nodes);
  }
  return block;
}
