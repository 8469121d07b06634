// Unpacks the document and draws the page, timeline first.

function provenance(document) {
  const { source } = document.analysis, parts = [];
  if (source.application) parts.push(source.application);
  if (source.engine) parts.push(`${source.engine} ${source.engine_version ?? ""}`.trim());
  if (document.recorded_unix_ns && document.recorded_unix_ns !== "0") {
    const at = new Date(Number(BigInt(document.recorded_unix_ns) / 1000000n));
    parts.push(`recorded ${at.toISOString().slice(0, 16).replace("T", " ")} UTC`);
  }
  if (document.timeline.activities > 0) parts.push(`${countText(document.timeline.activities)} activities`);
  byId("provenance").textContent = parts.map((part) => `· ${part}`).join(" ");
}

function warnings(document) {
  const all = document.analysis.source.warnings;
  byId("warnings").hidden = all.length === 0;
  byId("warnings").replaceChildren(...all.map((text) => element("li", {}, `${text[0]?.toUpperCase() ?? ""}${text.slice(1)}.`)));
}

function job(document) {
  const [only, ...others] = document.analysis.jobs;
  if (!only || others.length > 0) return;
  byId("job").append(element("pre", { class: "sql", tabindex: "0", "aria-label": "Job" }, only.name.trim() || "(unnamed job)"));
  if (only.error) byId("job").append(element("p", { class: "notice" }, only.error));
}

/** Connects the theme switch. The choice is saved if the browser provides storage. */
function theme(changed) {
  const set = (value) => {
    document.documentElement.dataset.theme = value;
    changed();
  };
  const inputs = /** @type {HTMLInputElement[]} */ ([...document.querySelectorAll("input[name=theme]")]);
  let saved = null;
  try { saved = localStorage.getItem("pellucid-theme"); } catch { /* Browsers may deny storage to local files. */ }
  for (const input of inputs) {
    input.addEventListener("change", () => {
      set(input.value);
      try { localStorage.setItem("pellucid-theme", input.value); } catch { /* As above. */ }
    });
    if (input.value === saved) input.checked = true;
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  if (saved) set(saved);
}

async function start() {
  const data = JSON.parse(new TextDecoder().decode(await chunk(DOCUMENT_CHUNK)));
  const stageOf = new Map(data.analysis.stages.map((stage) => [stage.id, stage]));
  const stageName = (stage) => stageOf.get(stage)?.name ?? "";
  const labels = (stage) => (stageOf.has(stage) ? stageLabel(stageOf.get(stage)) : `${stage}`);
  provenance(data);
  warnings(data);
  job(data);
  const longest = [...data.analysis.jobs].sort((a, b) => (b.duration_ms ?? 0) - (a.duration_ms ?? 0))[0];
  facts(data, data.analysis.jobs);
  if (longest) causes(data, longest);
  await readLevels(data.timeline);
  let view = null;
  if (data.timeline.lanes.length > 0) {
    view = new TimelineView(data.timeline, stageName, labels);
  } else {
    byId("timeline-whole").hidden = true;
    byId("timeline-empty").hidden = false;
  }
  performance.mark("first-picture");
  theme(() => { if (view) { view.lanes.readColors(); view.draw(); } });
  await new Promise((resolve) => setTimeout(resolve));
  plans(data, stageOf);
  flame(data.stacks);
  whatIf(data.what_if, data.no_what_if);
  bounds(data);
  advice(data);
  jobs(data);
  stages(data, (stage) => view?.showStage(stage));
  blocked(data);
  tuned(data);
  resources(data);
  missing(data);
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  const remedy = typeof DecompressionStream === "undefined" ? "; open it in a browser from 2023 or later" : "";
  byId("failure").textContent = `Cannot draw this page: ${error.message}${remedy}.`;
  byId("failure").hidden = false;
});
