// The operators of a job, with their own core time, and how the tasks that read an exchange divide its bytes.

// Skew is marked if the longest monotask is this many times the mean, and longer by this share of the job's core time.
const SKEW_TIMES = 3, SKEW_SHARE = 0.01;
// An exchange is skewed if a task reads this many times the mean of its bytes, and this many bytes.
const READ_SKEW_TIMES = 2, READ_SKEW_BYTES = 1e6;

/**
 * Adds to an exchange's edge and node how the tasks of the stage that follows divide its bytes, null if that was not measured.
 * Of several such stages, the node keeps the most uneven.
 */
function addRead(node, edge, read, reader) {
  const uneven = read?.skew >= READ_SKEW_TIMES && read.largest_bytes >= READ_SKEW_BYTES;
  if (uneven) edge.mark = `skew ${numberText(read.skew)} ×`;
  if (node.read && !(read?.skew > node.read.skew)) return;
  Object.assign(node, { read: read && { ...read, reader }, unevenlyRead: uneven });
}

const readText = (read) => read === null ? "not measured"
  : `${sizeText(read.largest_bytes)} of ${sizeText(read.bytes)}, ${numberText(read.skew)} × mean of ${plural(read.tasks, read.reader)}`;

const readFact = ({ read }) => ["largest read", read === undefined ? null : readText(read)];

/** Returns the column of a plan with exchanges. */
const readColumn = (nodes) => nodes.some((n) => n.read !== undefined) ? { read: { title: "largest read ÷ mean",
  cell: (n) => n.read === undefined ? "–" : n.read === null ? "not measured" : numberText(n.read.skew),
  value: (n) => n.read?.skew ?? null, strong: (n) => n.unevenlyRead } } : {};

class CoreOperators {
  constructor({ nodes, edges }, plan, job) {
    this.caption = `${plan.job}: ${short(job?.name ?? "", 60)}`;
    this.duration_ms = job?.duration_ms ?? 0;
    const total = (job?.core.total_ms ?? 0) * 1e6 || nodes.reduce((sum, node) => sum + node.of.cpu_ns, 0);
    const byCost = [...nodes].sort((a, b) => b.of.cpu_ns - a.of.cpu_ns);
    let sum = 0;
    for (const node of byCost) {
      node.costly = node.of.cpu_ns > 0 && sum < total / 2;
      sum += node.of.cpu_ns;
    }
    this.chosen = byCost[0];
    const reads = new Map(job?.core.operators?.map((of) => [of.operator, of.exchange_read]));
    for (const edge of edges) {
      const { from, to } = edge;
      if (to.of.inputs && from.of.rows !== undefined) to.rowsIn = (to.rowsIn ?? 0) + from.of.rows;
      // The rows that end a stage are counted where the next one takes them.
      const { rows, bytes } = to.of.from === undefined ? from.of : to.of;
      edge.counted = { rowsOut: rows, bytes };
      const { misestimate, planned_rows } = from.of;
      if (misestimate) edge.mark = `planned ${countText(planned_rows)}`;
      if (to.of.from !== undefined) addRead(to, edge, reads.get(to.of.operator) ?? null, "multitask");
    }
    for (const node of nodes) this.measure(node, total);
  }

  measure(node, total) {
    const { name, cpu_ns, max_cpu_ns, inputs, rows, planned_rows, misestimate } = node.of, mean = cpu_ns / node.frame.monotasks;
    node.share = total > 0 ? cpu_ns / total : null;
    node.skew = mean > 0 ? max_cpu_ns / mean : null;
    node.skewed = node.skew >= SKEW_TIMES && max_cpu_ns - mean >= SKEW_SHARE * total;
    node.rowsIn ??= null;
    // A scan has no input but its own rows.
    const per = inputs ? node.rowsIn : rows;
    node.nsPerRow = per > 0 ? cpu_ns / per : null;
    node.figure = `${timeText(cpu_ns / 1e6)} · ${percentText(node.share)}`;
    node.mark = node.skewed ? `skew ${numberText(node.skew)} ×` : null;
    node.spoken = [name, `core time ${timeText(cpu_ns / 1e6)}, ${percentText(node.share)}`, rows !== undefined && plural(rows, "row"),
      misestimate && `planned ${countText(planned_rows)}`, node.mark];
  }

  place(node, stageName) {
    const { operator, from } = node.of;
    return `operator ${operator} of ${stageName(node.frame)}${from === undefined ? "" : `, reads ${stageName({ stage: from })}`}`;
  }

  facts(node) {
    const { of, share, skew, nsPerRow, rowsIn } = node;
    return [
      ["core time", `${timeText(of.cpu_ns / 1e6)} (${percentText(share)})`],
      ["longest monotask", `${timeText(of.max_cpu_ns / 1e6)}${skew === null ? "" : `, ${numberText(skew)} × mean`}`],
      ["core time per row", nsPerRow === null ? null : timeText(nsPerRow / 1e6)],
      ["rows in", rowsIn === null ? null : countText(rowsIn)],
      ["rows out", of.rows === undefined ? null : countText(of.rows)],
      ["planned rows", of.planned_rows === undefined || of.rows === undefined ? null
        : `${countText(of.planned_rows)}${of.misestimate ? `, ${timesText(of.rows / of.planned_rows)} came` : ""}`],
      readFact(node),
      ["batches", of.batches === undefined ? null : countText(of.batches)],
      ["output in memory", of.bytes === undefined ? null : sizeText(of.bytes)],
      ["peak memory", of.peak_bytes === undefined ? null : sizeText(of.peak_bytes)],
    ];
  }

  /** Returns the columns of the table after the name and the stage, and the one to sort by. */
  columns(nodes) {
    const optional = (key, title, show, strong) => nodes.some((node) => node.of[key] !== undefined)
      ? { [key]: { title, cell: (n) => show(n.of[key]), value: (n) => n.of[key] ?? null, strong } } : {};
    return [{
      core: { title: "core time", cell: (n) => timeText(n.of.cpu_ns / 1e6), value: (n) => n.of.cpu_ns },
      share: { title: "share", cell: (n) => percentText(n.share), value: (n) => n.share },
      perRow: { title: "per row", cell: (n) => n.nsPerRow === null ? "–" : timeText(n.nsPerRow / 1e6), value: (n) => n.nsPerRow },
      skew: { title: "longest ÷ mean", cell: (n) => n.skew === null ? "–" : numberText(n.skew), value: (n) => n.skew, strong: (n) => n.skewed },
      rowsIn: { title: "rows in", cell: (n) => countText(n.rowsIn), value: (n) => n.rowsIn },
      ...readColumn(nodes),
      ...optional("rows", "rows out", countText),
      ...optional("planned_rows", "planned rows", countText, (n) => n.of.misestimate),
      ...optional("batches", "batches", countText),
      ...optional("bytes", "output in memory", sizeText),
      ...optional("peak_bytes", "peak memory", sizeText),
    }, "core"];
  }
}

/** Formats how many times as many rows there were as planned. */
function timesText(times) {
  if (times === 0 || times === Infinity) return times === 0 ? "none" : "many";
  return times >= 1 ? `${numberText(times)} × as many` : `1/${numberText(1 / times)} as many`;
}
