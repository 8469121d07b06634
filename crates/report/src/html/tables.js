// The text of the page: facts, causes, what-ifs, jobs, stages, resources, and missing measurements.

const MAX_ROWS = 60;

/**
 * Creates a sortable table. `columns` maps names to columns, in display order. A column has a title,
 * cell(row) → text or element, an optional value(row) to sort by, and an optional group (a heading shared by
 * neighbours). The first column is the row header. `sorted` names the column of the initial order, which is
 * descending; by default, rows keep their order.
 */
function table(caption, columns, rows, sorted) {
  const names = Object.keys(columns), heads = {};
  for (const [ix, name] of names.entries()) {
    const { group } = columns[name];
    columns[name].first = Boolean(group) && group !== columns[names[ix - 1]]?.group;
    heads[name] = element("th", { scope: "col", "data-column": name, class: classes(columns[name]) });
  }
  const body = element("tbody");
  let shown = MAX_ROWS;
  const more = element("p", { class: "more" });
  const fill = () => {
    body.replaceChildren(...rows.slice(0, shown).map((row) => element("tr", {}, ...names.map((name, ix) => {
      const column = columns[name], cell = column.cell(row), none = cell === "–";
      const kinds = [classes(column), none && "none", column.strong?.(row) && "limits"].filter(Boolean).join(" ");
      return element(ix === 0 ? "th" : "td", { class: kinds, scope: ix === 0 ? "row" : null }, cell);
    }))));
    more.replaceChildren(...(shown < rows.length
      ? [element("button", { type: "button", class: "link", onclick: () => { shown = rows.length; fill(); } },
        `Show all ${countText(rows.length)} (${countText(shown)} shown)`)] : []));
  };
  const sort = (name, descending) => {
    const { value } = columns[name], sign = descending ? -1 : 1;
    rows.sort((a, b) => {
      const [x, y] = [value(a), value(b)], missing = (v) => v === null || v === undefined;
      if (missing(x) || missing(y)) return Number(missing(x)) - Number(missing(y));
      return sign * (typeof x === "string" ? x.localeCompare(y) : x - y);
    });
    for (const [other, head] of Object.entries(heads)) {
      if (other === name) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    fill();
  };
  for (const name of names) {
    const { title, value } = columns[name];
    const flip = () => sort(name, heads[name].getAttribute("aria-sort") !== "descending");
    heads[name].append(value ? element("button", { type: "button", onclick: flip }, title) : title);
  }
  const whole = element("table", {}, element("caption", { class: "unseen" }, caption),
    element("thead", {}, groupsRow(names.map((name) => columns[name].group)), element("tr", {}, ...Object.values(heads))), body);
  // A console error fails the tests, but readers still get the rows and the rest of the page.
  const sortable = sorted === undefined || Boolean(columns[sorted]?.value);
  if (!sortable) console.error(`table ${caption}: cannot sort by ${sorted}; sortable columns: ${names.filter((name) => columns[name].value)}`);
  sorted !== undefined && sortable ? sort(sorted, true) : fill();
  return [element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption }, whole), more];
}

/** Returns the row of group headings, or null if no column has a group. */
function groupsRow(groups) {
  if (!groups.some(Boolean)) return null;
  const starts = groups.flatMap((group, ix) => ix === 0 || group !== groups[ix - 1] ? [ix] : []);
  return element("tr", {}, ...starts.map((ix, n) => element(groups[ix] ? "th" : "td", {
    colspan: (starts[n + 1] ?? groups.length) - ix, scope: groups[ix] ? "colgroup" : null,
    class: groups[ix] ? "group first-of-group" : null }, groups[ix] ?? "")));
}

const stageLabel = (stage) => `${stage.source_id ?? stage.id}`;
const classes = (column) => [column.text && "text", column.long && "long", column.picture && "picture", column.first && "first-of-group"].filter(Boolean).join(" ") || null;

function facts(document, jobs) {
  const sum = (key) => jobs.every((job) => job[key] === null) ? null : jobs.reduce((sum, job) => sum + (job[key] ?? 0), 0);
  const only = jobs.length === 1 ? jobs[0] : null;
  const span = document.analysis.wall_clock_ms.jobs;
  const entries = [
    [only ? "duration" : "job time", timeText(only ? only.duration_ms : span)],
    ["modelled", only ? timeText(only.modelled_ms) : null],
    ["rows", only ? countText(only.rows) : null],
    ["stages", countText(document.analysis.stages.length)],
    ["read", sizeText(sum("read_bytes"))],
    ["from page cache", sizeText(sum("cached_bytes"))],
    ["written", sizeText(sum("written_bytes"))],
    ["peak memory", only ? sizeText(only.memory_high_water_bytes) : null],
    ["held at once", only?.peak ? heldText(only.peak) : null],
    ["spilled", only?.spill ? spillText(only.spill) : null],
    ["core time", only ? timeText(only.core.total_ms) : null],
  ];
  byId("facts").replaceChildren(...definitions(entries));
}

/** Returns what held a job's memory at its peak: its three largest parts. */
const heldText = (peak) => `${sizeText(peak.bytes)} in stage ${peak.stage}: `
  + peak.held_by.slice(0, 3).map((held) => `${held.what} of stage ${held.stage} ${sizeText(held.bytes)}`).join(", ");

/** Returns what did not fit into a job's memory. */
const spillText = (spill) => `${sizeText(spill.write_bytes)}, read back ${sizeText(spill.read_bytes + spill.cached_bytes)}; `
  + `would fit into ${sizeText(spill.sufficient_memory_bytes)}`;

/** Creates the items of a list of facts; those without a text are omitted. */
const definitions = (entries) => entries.filter(([, text]) => text !== null).map(([name, text]) =>
  element("div", {}, element("dt", {}, name),
    element("dd", text === "–" ? { class: "none" } : {}, text === "–" ? "not measured" : text)));

function causes(document, job) {
  // Causes of pipelined tasks cover all jobs together.
  const together = Boolean(document.analysis.parts?.length);
  const all = document.analysis.causes.filter((cause) => together || cause.job === job.id);
  const shown = all.filter((cause) => cause.ms > 0 && cause.cause !== "failure");
  // Driver time between jobs lies outside the time in which jobs ran.
  const { application_ms: application, wall_clock_ms: { jobs: ran } } = document.analysis;
  const beyond = shown.some((cause) => cause.ms > ran) && application > ran;
  const whole = together ? beyond ? application : ran : job.duration_ms ?? job.modelled_ms;
  if (shown.length === 0 || !whole) return;
  byId("causes").hidden = false;
  const many = document.analysis.jobs.length > 1 ? ` Shown: job ${job.id}, the longest.` : "";
  byId("causes-about").textContent = together
    ? `Shares are of the ${timeText(whole)} of wall-clock time ${beyond ? "that the application took" : "in which jobs ran"}. Causes overlap, so they need not add up to it.`
    : `Attribution of the ${timeText(whole)}: each span of time counts towards the resource that its work needed longest.${many}`;
  byId("causes-bars").replaceChildren(...shown.map((cause) => {
    const share = cause.ms / whole, stage = cause.stage === null ? "" : ` Mostly in stage ${cause.stage}.`;
    return element("div", { class: "cause" },
      element("span", { class: "label" }, kindText(cause.cause)),
      element("span", { class: "track" }, element("div", { class: "fill", style: {
        width: `${Math.min(100, share * 100)}%`, background: kindColor(cause.cause) } })),
      element("span", { class: "number" }, (cause.at_most ? "≤ " : "") + timeText(cause.ms)),
      element("span", { class: "number share" }, percentText(share)),
      element("span", { class: "evidence" }, `${cause.evidence}.${stage}`));
  }));
}

/** Draws an interval on an axis from 0 to `max`, with the measured time as a dashed line. */
function intervalPicture(one, measured, max) {
  const at = (ms) => `${(Math.max(0, ms) / max) * 100}%`;
  return element("div", { class: "interval", role: "img",
    "aria-label": `${timeText(one.low_ms)} to ${timeText(one.high_ms)}, measured ${timeText(measured)}` },
  element("span", { class: "measured", style: { left: at(measured) } }),
  element("span", { class: "range", style: { left: at(one.low_ms), width: at(one.high_ms - one.low_ms) } }),
  element("span", { class: "point", style: { left: at(one.duration_ms) } }));
}

/** Creates a table of predicted times with their intervals drawn. */
function predictions(caption, title, rows, measured) {
  const max = Math.max(measured, ...rows.map((one) => one.high_ms)) * 1.02;
  const change = (one) => one.duration_ms / measured - 1;
  return table(caption, {
    set: { title, text: true, cell: (s) => s.set },
    predicted: { title: "predicted", cell: (s) => timeText(s.duration_ms), value: (s) => -s.duration_ms },
    change: { title: "change", cell: (s) => Math.abs(change(s)) < 0.005 ? "±0 %" : `${change(s) > 0 ? "+" : "−"}${percentText(Math.abs(change(s)))}` },
    picture: { title: `0 to ${timeText(max)}`, text: true, picture: true, cell: (s) => intervalPicture(s, measured, max) },
    interval: { title: "90 % interval", cell: (s) => `${timeText(s.low_ms)} – ${timeText(s.high_ms)}` },
    limit: { title: "bottleneck", text: true, cell: (s) => s.bottleneck ? kindText(s.bottleneck) : "–" },
  }, rows);
}

/** Adds the predicted single changes and their assumptions, or the reason why nothing is predicted. */
function whatIf(whatIf, reason) {
  const body = byId("what-if-body");
  if (!whatIf || whatIf.singles.length === 0) {
    body.append(element("p", { class: "empty" }, reason ? `Nothing is predicted: ${reason}.`
      : "No single change applies to the resources of this trace."));
    return;
  }
  const measured = whatIf.measured_ms;
  body.append(element("p", { class: "about" },
    "Predicted times for single changes, in the syntax of ", element("code", {}, "pellucid whatif --set"), `. Bars are 90 % intervals; the dashed line is the measured ${timeText(measured)}.`),
  ...predictions("Predicted times", "setting", whatIf.singles.filter((one) => !one.bound), measured));
  const bound = whatIf.singles.filter((one) => one.bound);
  if (bound.length > 0) {
    body.append(element("p", { class: "about bounds" }, "Upper bounds: predicted times if one part took no time at all. That is not achievable, but no change to that part can gain more."),
      ...predictions("Upper bounds", "without", bound, measured));
  }
  const replay = whatIf.simulated_ms === null ? [] : [
    `An unchanged replay takes ${timeText(whatIf.simulated_ms)}, ${percentText(Math.abs(whatIf.simulated_ms - measured) / measured)} off the measured time`];
  const notes = [...replay, ...whatIf.assumptions];
  body.append(element("details", {}, element("summary", {}, "Assumptions and accuracy"),
    element("ul", { class: "plain" }, ...notes.map((note) => element("li", {}, `${note}.`)))));
}

/** Adds upper bounds from blocked times, unless the what-ifs already include bounds. */
function bounds(document) {
  if (document.what_if?.singles.some((one) => one.bound)) return;
  const found = Object.entries(document.analysis.bounds ?? {}).filter(([, bound]) => bound?.duration_ms > 0);
  const measured = document.analysis.replay?.measured_ms;
  if (found.length === 0 || !measured) return;
  const rows = found.map(([key, bound]) => ({ ...bound, set: key.replaceAll("_", " ") })).sort((a, b) => a.duration_ms - b.duration_ms);
  byId("what-if-body").append(element("p", { class: "about bounds" },
    `Upper bounds: job time with one part removed. Measured: ${timeText(measured)}.`),
  ...predictions("Upper bounds", "with", rows, measured));
}

function advice(document) {
  const all = document.analysis.advice ?? [];
  if (all.length === 0) return;
  byId("advice").hidden = false;
  byId("advice-body").append(...all.map((one) => element("div", { class: "advice" },
    element("h3", {}, one.title), element("p", {}, one.change ?? ""), element("p", { class: "about" }, `${one.evidence}.`,
      one.saves_ms === null || one.saves_ms === undefined ? "" : ` Saves ${timeText(one.saves_ms)} (${timeText(one.low_ms)} – ${timeText(one.high_ms)}).`))));
}

function jobs(document) {
  const all = document.analysis.jobs;
  if (all.length < 2) return;
  byId("jobs").hidden = false;
  byId("jobs-body").append(...table("Jobs", {
    job: { title: "job", cell: (j) => `${j.id}`, value: (j) => -j.id },
    name: { title: "name", text: true, long: true, cell: (j) => short(j.name, 160) },
    ended: { title: "outcome", text: true, cell: (j) => j.outcome ?? "–" },
    took: { title: "duration", cell: (j) => timeText(j.duration_ms), value: (j) => j.duration_ms },
    model: { title: "modelled", cell: (j) => timeText(j.modelled_ms), value: (j) => j.modelled_ms },
    limit: { title: "limited by", text: true, cell: (j) => limitText(j.bottleneck) },
    stages: { title: "stages", cell: (j) => countText(j.stages.length), value: (j) => j.stages.length },
  }, [...all], "took"));
}

const short = (text, max) => text.length > max ? `${text.slice(0, max)}…` : text;
const limitText = (b) => !b ? "–" : b.name && b.kind !== "cpu" && b.name !== b.kind ? `${kindText(b.kind)} ${b.name}` : kindText(b.kind);

/** Returns the kinds of resources that the stages used, in conventional order. */
function kindsOf(stages) {
  const kinds = new Set(stages.flatMap((stage) => Object.entries(stage.ideal_ms)
    .filter(([kind, ms]) => ms > 0 || stage.service_ms[kind] > 0).map(([kind]) => kind)));
  const order = ["cpu", "disk", "network", "store"];
  return [...order.filter((kind) => kinds.has(kind)), ...[...kinds].filter((kind) => !order.includes(kind)).sort()];
}

function stages(document, show) {
  const all = document.analysis.stages, body = byId("stages-body");
  if (all.length === 0) {
    body.append(element("p", { class: "empty" }, "The trace contains no stages."));
    return;
  }
  const kinds = kindsOf(all), drawn = new Set(document.timeline.stages.map((span) => span.stage));
  const weight = (stage) => Math.max(stage.duration_ms ?? 0, ...Object.values(stage.limit_ms ?? {}).map((ms) => ms ?? 0));
  const name = (stage) => element("span", {}, stage.name,
    element("small", {}, [plural(stage.tasks, "task"), stage.failed_tasks > 0 && `${countText(stage.failed_tasks)} failed`,
      stage.attempt > 0 && `attempt ${stage.attempt}`,
      stage.skew.duration_max_over_median > 1.5 && `longest task ${stage.skew.duration_max_over_median.toFixed(1)} × the median`,
      stage.not_split.length > 0 && `not split: ${stage.not_split.join(", ")}`].filter(Boolean).join(" · ")));
  const columns = {
    stage: { title: "stage", cell: (s) => drawn.has(s.id)
      ? element("button", { type: "button", class: "link", title: "Show in the timeline", onclick: () => show(s.id) }, stageLabel(s)) : stageLabel(s),
    value: (s) => -s.id },
    work: { title: "name", text: true, long: true, cell: name, value: (s) => s.name },
    took: { title: "duration", cell: (s) => timeText(s.duration_ms), value: weight },
    limit: { title: "limited by", text: true, cell: (s) => limitText(s.bottleneck), value: (s) => limitText(s.bottleneck) },
  };
  for (const kind of kinds) {
    const column = (title, key, show) => ({ title, group: kindText(kind), cell: (s) => show(s[key][kind] ?? null),
      value: (s) => s[key][kind] ?? null, strong: (s) => key === "ideal_ms" && s.bottleneck?.kind === kind });
    columns[`${kind}-ideal`] = column("ideal", "ideal_ms", timeText);
    columns[`${kind}-used`] = column("used", "utilization", useText);
    columns[`${kind}-queue`] = column("queue", "queue_ms", timeText);
    columns[`${kind}-service`] = column("service", "service_ms", timeText);
  }
  byId("stages-about").hidden = kinds.length === 0;
  body.append(...table("Stages", columns, [...all], "took"));
}

/** Adds blocked times and stragglers, if the trace has any. */
function blocked(document) {
  const parts = ["disk", "network", "gc", "scheduler", "deserialize", "other"];
  const some = (times) => times && Object.values(times).some((v) => v !== null);
  const rows = document.analysis.stages.filter((s) => some(s.blocked_ms) || some(s.blocked_at_most_ms) || s.stragglers?.count !== null);
  if (rows.length === 0) return;
  byId("blocked").hidden = false;
  const shares = (document.analysis.parts ?? []).filter(({ ms }) => ms > 0);
  const colors = { cpu: "--compute", core: "--compute", garbage: "--spill", disk: "--read", network: "--fetch", gc: "--spill", scheduler: "--write", deserialis: "--green" };
  const color = (part) => `var(${Object.entries(colors).find(([key]) => part.toLowerCase().startsWith(key))?.[1] ?? "--rest"})`;
  if (shares.length > 0) byId("blocked-body").append(element("h3", {}, `Where ${timeText(document.analysis.task_time_ms)} of task time went`));
  byId("blocked-body").append(...shares.map(({ part, ms, share }) => element("div", { class: "cause" },
    element("span", { class: "label" }, part),
    element("span", { class: "track" }, element("div", { class: "fill", style: { width: `${Math.min(100, share * 100)}%`, background: color(part) } })),
    element("span", { class: "number" }, timeText(ms)), element("span", { class: "number share" }, percentText(share)))));
  const value = (part) => (s) => s.blocked_ms?.[part] ?? s.blocked_at_most_ms?.[part] ?? null;
  const text = (part) => (s) => {
    const exact = s.blocked_ms?.[part] ?? null, bound = s.blocked_at_most_ms?.[part] ?? null;
    return exact !== null ? timeText(exact) : bound !== null ? `≤ ${timeText(bound)}` : "–";
  };
  const stragglers = (s) => {
    const causes = Object.entries(s.stragglers?.causes ?? {}).filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
    return causes.length === 0 ? "–" : causes.map(([cause, n]) => `${cause.replaceAll("_", " ")} ${countText(n)}`).join(", ");
  };
  byId("blocked-body").append(...table("Blocked time and stragglers by stage", {
    stage: { title: "stage", cell: stageLabel, value: (s) => -s.id },
    work: { title: "name", text: true, long: true, cell: (s) => short(s.name, 120) },
    tasks: { title: "task time", cell: (s) => timeText(s.task_time_ms), value: (s) => s.task_time_ms },
    ...Object.fromEntries(parts.map((part) => [part, { title: part === "deserialize" ? "deserialisation" : part, cell: text(part), value: value(part) }])),
    stragglers: { title: "stragglers", cell: (s) => countText(s.stragglers?.count), value: (s) => s.stragglers?.count ?? null },
    causes: { title: "causes", text: true, long: true, cell: stragglers },
  }, [...rows], "tasks"), element("ul", { class: "plain" }, ...(document.analysis.notes ?? []).map((note) => element("li", {}, note))));
}

/** Adds the concurrency of executors, if a controller chose it. */
function tuned(document) {
  const rows = document.analysis.concurrency ?? [];
  if (rows.length === 0) return;
  byId("tuned").hidden = false;
  const steps = (row) => row.steps.map((step, ix) => ix === 0 ? `${step.concurrency}` : `${step.concurrency} at ${timeText(step.at_ms)}`).join(", then ");
  const last = (row) => row.steps[row.steps.length - 1];
  byId("tuned-body").append(...table("Tasks at once by stage and executor", {
    stage: { title: "stage", cell: (row) => `${row.source_id ?? row.stage}`, value: (row) => -row.stage },
    executor: { title: "executor", text: true, cell: (row) => row.executor, value: (row) => row.executor },
    steps: { title: "tasks at once", text: true, long: true, cell: steps },
    last: { title: "final", cell: (row) => countText(last(row).concurrency), value: (row) => last(row).concurrency },
    because: { title: "reason", text: true, long: true, cell: (row) => last(row).reason ?? "–" },
  }, [...rows], "stage"));
}

function resources(document) {
  const all = document.analysis.resources, jobs = document.analysis.wall_clock_ms.jobs;
  const lane = (ix) => document.timeline.lanes.find((lane) => lane.resource === ix);
  // Slots only hold tasks, so they have no ideal time.
  const rows = all.map((resource, ix) => ({ ...resource, lane: lane(ix),
    ideal_ms: resource.kind === "slots" ? null : resource.ideal_ms }));
  if (rows.length === 0) {
    byId("resources-body").append(element("p", { class: "empty" }, "The trace contains no resources."));
    return;
  }
  const capacity = (r) => r.capacity === null ? "unknown" : r.kind === "cpu" ? plural(r.capacity, "core")
    : r.kind === "slots" ? plural(r.capacity, "slot") : `${sizeText(r.capacity)}/s`;
  byId("resources-body").append(...table("Resources", {
    resource: { title: "resource", text: true, cell: (r) => element("span", {}, element("i", { class: "swatch", style: { background: kindColor(r.kind) } }), r.name) },
    kind: { title: "kind", text: true, cell: (r) => kindText(r.kind) },
    machine: { title: "machine", text: true, cell: (r) => r.machine ?? "–" },
    capacity: { title: "capacity", cell: capacity, value: (r) => r.capacity },
    from: { title: "source", text: true, cell: (r) => r.capacity_from ?? "–" },
    ideal: { title: "ideal time", cell: (r) => timeText(r.ideal_ms), value: (r) => r.ideal_ms },
    used: { title: "used", cell: (r) => r.ideal_ms !== null && jobs > 0 ? useText(r.ideal_ms / jobs) : "–" },
    mean: { title: "mean concurrency", cell: (r) => r.lane ? numberText(r.lane.mean) : "–" },
    most: { title: "max concurrency", cell: (r) => r.lane ? countText(r.lane.rows) : "–" },
  }, rows, "ideal"));
}

function missing(document) {
  const notes = document.not_measured.map((what) => `${what[0].toUpperCase()}${what.slice(1)}.`);
  const { timeline } = document;
  if (timeline.lanes.length > 0 && !timeline.lanes.some((lane) => lane.samples.length > 0)) {
    notes.push("Machine counters, so the trace cannot be cross-checked.");
  }
  if (timeline.lanes.some((lane) => lane.kind === "slots")) {
    notes.push("When a task was blocked: only totals per task are recorded.");
  }
  if (!timeline.single) {
    notes.push(`Single activities are omitted: ${countText(timeline.activities)} are too many for a page. The finest resolution of the timeline is the mean over ${timeText(timeline.length_ns / timeline.bins / 1e6)}.`);
  }
  const recording = document.analysis.recording;
  byId("missing-body").append(notes.length === 0 ? element("p", {}, "Everything on this page was measured.")
    : element("ul", { class: "plain" }, ...notes.map((note) => element("li", {}, note))));
  if (recording.share !== null) {
    byId("missing-body").append(element("p", { class: "about" }, `Recording the trace took ${percentText(recording.share)} of the core time.`));
  }
}
