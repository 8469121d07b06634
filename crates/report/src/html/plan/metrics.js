// The operators of a query, with the metrics that its engine kept: Spark's SQL metrics.

// An operator is marked if its longest time is this share of the run time of the query's tasks.
const COSTLY_SHARE = 0.1;
// Times of more than the operator's own work.
const NOT_OWN = /cumulative|stream time|stage duration|reqs duration|^duration$/;
const OWN = /^(exclusive time|op time)$/;
const ROWS = ["number of output rows", "output rows", "join output rows", "shuffle records written", "number of written rows", "rows scanned"];
const BYTES = ["shuffle bytes written", "data size", "written output"];

class MetricOperators {
  constructor({ nodes, edges, codes }, plan) {
    const { id, name, duration_ms, task_ms } = plan.query;
    this.duration_ms = duration_ms ?? 0;
    this.caption = `SQL ${id}: ${short(name, 60)}`;
    for (const node of [...nodes, ...codes]) this.measure(node, task_ms);
    for (const code of codes) code.heading = `${code.of.name.replace("WholeStageCodegen", "code")}${code.ms === null ? "" : ` · ${timeText(code.ms)}`}`;
    for (const edge of edges) {
      const { from, to } = edge;
      edge.counted = from;
      // The bytes of several exchanges that a stage reads cannot be told apart.
      const only = new Set(to.frame.inputs).size === 1;
      if (from.frame !== to.frame) addRead(from, edge, only ? to.frame.shuffle_read : null, "task");
    }
    this.chosen = [...nodes].sort((a, b) => (b.ms ?? 0) - (a.ms ?? 0))[0];
    this.limits = this.untold(nodes, codes, task_ms);
  }

  measure(node, task_ms) {
    const metrics = node.of.metrics ?? [], times = metrics.filter((metric) => metric.unit === "ns");
    const longest = (all) => all.reduce((most, metric) => metric.value > (most?.value ?? -1) ? metric : most, null);
    const value = (names) => names.map((name) => metrics.find((metric) => metric.name === name)).find(Boolean)?.value;
    const time = node.nodes ? longest(times)
      : times.find((metric) => OWN.test(metric.name)) ?? longest(times.filter((metric) => !NOT_OWN.test(metric.name)));
    node.ms = time === null ? null : time.value / 1e6;
    node.timeName = time?.name ?? null;
    node.share = time === null || task_ms === 0 ? null : node.ms / task_ms;
    node.costly = node.share >= COSTLY_SHARE;
    [node.rowsOut, node.bytes] = [value(ROWS), value(BYTES)];
    // Nothing was updated if the stage did not end, or never ran.
    const none = node.code ? "in generated code" : metrics.length > 0 ? "no time of its own" : "no metrics";
    node.figure = time === null ? none : `${timeText(node.ms)} · ${shortTime(time.name)}`;
    node.mark = null;
    node.spoken = [node.of.name, time === null ? none : `${time.name} ${timeText(node.ms)}`, node.rowsOut !== undefined && plural(node.rowsOut, "row")];
  }

  /** Returns what the metrics cannot tell, in sentences. */
  untold(nodes, codes, task_ms) {
    const timeless = nodes.filter((node) => node.ms === null), without = nodes.filter((node) => node.frame.stage === null);
    const inCode = timeless.filter((node) => node.code);
    return [
      `Times are the engine’s own metrics, summed over tasks that ran side by side: they may exceed the query’s ${timeText(this.duration_ms)}. Bars show their share of the tasks’ run time, ${timeText(task_ms)}.`,
      "Times overlap: the time of a build, an aggregation or of generated code includes waiting for inputs. They do not add up.",
      codes.length > 0 && `Operators in a dashed frame were compiled into one function (whole-stage code generation). Its duration is measured as a whole${inCode.length > 0 ? `: ${inCode.length} of its operators have no time of their own` : ""}.`,
      timeless.length > inCode.length && `${timeless.length - inCode.length} of ${nodes.length} operators have no metric of time.`,
      without.length > 0 && `${without.length} of ${nodes.length} operators have no known stage: no completed stage updated a metric of their part of the plan, which was not needed, ran in the driver, or did not end.`,
      "The work of failed tasks is not in the metrics. The planner’s estimates of rows are not in the log.",
    ].filter(Boolean);
  }

  place(node, stageName) {
    const within = node.code ? `, compiled into ${node.code.of.name}${node.code.ms === null ? "" : `, which took ${timeText(node.code.ms)}`}` : "";
    return `operator ${node.of.operator} of ${stageName(node.frame)}${within}`;
  }

  facts(node) {
    return [...(node.of.metrics ?? []).map((metric) => [metric.name, metricText(metric)]), readFact(node)];
  }

  columns(nodes) {
    const others = (n) => (n.of.metrics ?? []).map((metric) => `${metric.name} ${metricText(metric)}`).join(" · ");
    return [{
      time: { title: "time", cell: (n) => timeText(n.ms), value: (n) => n.ms },
      of: { title: "of", text: true, cell: (n) => n.timeName ?? "–", value: (n) => n.timeName ?? "" },
      share: { title: "of tasks’ time", cell: (n) => percentText(n.share), value: (n) => n.share },
      code: { title: "within", text: true, cell: (n) => n.code?.of.name ?? "–", value: (n) => n.code?.of.name ?? "" },
      rows: { title: "rows out", cell: (n) => countText(n.rowsOut), value: (n) => n.rowsOut ?? null },
      bytes: { title: "bytes out", cell: (n) => sizeText(n.bytes), value: (n) => n.bytes ?? null },
      ...readColumn(nodes),
      metrics: { title: "metrics", text: true, long: true, cell: (n) => short(others(n), 400) || "–" },
    }, "time"];
  }
}

const metricText = ({ unit, value }) => unit === "ns" ? timeText(value / 1e6) : unit === "bytes" ? sizeText(value) : countText(value);

/** Shortens the name of a time: `time in aggregation build` to `aggregation build`, `sort time` to `sort`. */
const shortTime = (name) => name.replace(/^(total )?time (in|to|taken to|spent in|spent) /i, "").replace(/ time$/, "");
