// The dashboard: asks the server for requests and runs while it is in view. All text goes in as text, never as markup.
const SECONDS = { traces: 2, runs: 10, opening: 60 };
const PARTS = ["traces", "runs"];
const MOST = 200;
const GOOD = ["accepted", "tool_calls"];
const BAD = ["failed", "cancelled"];
const byId = id => document.getElementById(id);
const known = new Map(); // request id -> {json, item}
let paused = false, runsShown = "";

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "data") Object.assign(made.dataset, value);
    else if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function drawing(width, height, ...shapes) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("aria-hidden", "true");
  for (const [tag, attributes] of shapes) {
    const shape = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, value);
    svg.append(shape);
  }
  return svg;
}

const number = (value, digits = 0) =>
  Number.isFinite(value) ? value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }) : "-";
const money = value => (Number.isFinite(value) ? value.toLocaleString("en", { maximumSignificantDigits: 3 }) : "-");
const sum = values => values.reduce((total, value) => total + (value || 0), 0);
const median = values => [...values].sort((a, b) => a - b)[values.length >> 1];
const ago = seconds => (seconds < 90 ? `${number(seconds)} s` : seconds < 5400 ? `${number(seconds / 60)} min` : `${number(seconds / 3600)} h`);

async function ask(path) {
  const key = sessionStorage.getItem("key");
  const answer = await fetch(path, { headers: key ? { Authorization: `Bearer ${key}` } : {}, cache: "no-store" });
  const unknown = answer.status === 401;
  if (unknown || answer.ok) byId("key").hidden = !unknown;
  if (answer.status === 403) throw new Error("This key shows its own requests alone; the runs need an admin's.");
  if (!answer.ok) throw new Error(unknown ? "The server wants a key." : `The server answers ${answer.status}.`);
  return answer;
}

function say(text) {
  if (byId("status").textContent !== text) byId("status").textContent = text;
}

const words = text => String(text ?? "").replaceAll("_", " ");
const capital = text => text.slice(0, 1).toUpperCase() + text.slice(1);
const ended = trace => words(trace.end ?? "running");

function facts(spoken) {
  const found = [];
  const sure = value => number(value, 2);
  if (Number.isFinite(spoken.model_probability)) found.push(`model chosen with probability ${sure(spoken.model_probability)}`);
  if (spoken.forced) found.push("role asked for by the Thinker");
  else if (Number.isFinite(spoken.role_probability)) found.push(`role with ${sure(spoken.role_probability)}`);
  if (spoken.substitute) found.push(`in place of the chosen model: ${words(spoken.substitute)}`);
  if (spoken.outcome && spoken.outcome !== "ok") found.push([words(spoken.outcome), spoken.detail].filter(Boolean).join(": "));
  found.push(`${number(spoken.input_tokens)} tokens in, ${number(spoken.output_tokens)} out`);
  if (spoken.cost) found.push(`cost ${money(spoken.cost)}`);
  found.push(`${number(spoken.call_ms)} ms for the call, ${number(spoken.decide_ms, spoken.decide_ms < 10 ? 1 : 0)} ms to decide`);
  return `${found.join("; ")}.`;
}

function turn(spoken) {
  const role = String(spoken.role ?? "");
  const who = element("p", { className: "who" }, element("strong", { textContent: capital(role) }), ` – ${spoken.model}`);
  if (spoken.verdict === true) who.append(" – ", element("span", { className: "accepts", textContent: "✓ accepts" }));
  if (spoken.verdict === false) who.append(" – ", element("span", { className: "rejects", textContent: "✗ rejects" }));
  const style = ["worker", "thinker", "verifier"].includes(role) ? role : "other";
  return element("li", { className: style }, who, element("div", { className: "soft", textContent: facts(spoken) }));
}

function remarks(trace) {
  const found = [];
  if (trace.fallback) found.push(`in place of the coordinator, ${trace.fallback.model} answered: ${words(trace.fallback.reason)}`);
  if (Number.isFinite(trace.distance)) found.push(`distance from the training questions ${number(trace.distance, 2)}, called unlike them beyond ${number(trace.threshold, 2)}`);
  if (trace.would) found.push(`a dry run: it would ask ${trace.would.model} as ${trace.would.role}`);
  if (trace.error) found.push(`error: ${trace.error}`);
  found.push(`${number(trace.ms)} ms in all`, `request ${trace.id}`);
  return found.map(capital).join(". ");
}

function fillItem(item, trace) {
  const turns = trace.turns ?? [];
  const good = GOOD.includes(trace.end), bad = BAD.includes(trace.end);
  const when = Number.isFinite(trace.created) ? new Date(trace.created * 1000).toLocaleTimeString() : "";
  const chain = turns.map(t => `${t.model} ${t.role}`).join(" → ") || (trace.would ? `${trace.would.model} ${trace.would.role}` : "no call");
  Object.assign(item.dataset, { outcome: ended(trace), turns: JSON.stringify(turns.map(t => [String(t.model), String(t.role)])) });
  item.querySelector("summary").replaceChildren(
    element("span", { className: good ? "right" : bad ? "failed" : "none", textContent: `${good ? "✓" : bad ? "✗" : "·"} ${ended(trace)}` }),
    element("span", { className: "kind", textContent: when }),
    element("span", { className: "gist", textContent: chain }),
    element("span", { className: "side", textContent: `${number(trace.ms)} ms` }),
  );
  item.querySelector(".body").replaceChildren(
    element("ol", { className: "turns" }, ...turns.map(turn)),
    element("p", { className: "soft", textContent: remarks(trace) }),
  );
}

function offer(name, values) {
  const select = form.elements[name];
  const there = new Set([...select.options].map(option => option.value));
  for (const value of new Set(values)) if (!there.has(value)) select.append(new Option(value, value));
}

function showTraces(traces) {
  for (const trace of [...traces].reverse()) {
    const json = JSON.stringify(trace);
    let old = known.get(trace.id);
    if (!old) {
      old = { item: element("li", {}, element("details", {}, element("summary"), element("div", { className: "body" }))) };
      known.set(trace.id, old);
      list.prepend(old.item);
    }
    if (old.json !== json) fillItem(old.item, trace);
    Object.assign(old, { json, trace });
  }
  for (const [id, { item }] of [...known].slice(0, Math.max(0, known.size - MOST))) {
    item.remove();
    known.delete(id);
  }
  const kept = [...known.values()].map(({ trace }) => trace);
  const turns = kept.flatMap(trace => trace.turns ?? []);
  offer("outcome", kept.map(trace => ended(trace)));
  offer("model", turns.map(t => String(t.model)));
  offer("role", turns.map(t => String(t.role)));
  filter();
  showTotals(kept, turns);
}

function showTotals(traces, turns) {
  const totals = [
    ["Requests", number(traces.length)],
    ["Turns per request", traces.length ? number(turns.length / traces.length, 2) : "-"],
    ["Milliseconds, median", number(median(traces.map(trace => trace.ms)))],
    ["Fell back", number(traces.filter(trace => trace.fallback).length)],
    ["Tokens in / out", `${number(sum(turns.map(t => t.input_tokens)))} / ${number(sum(turns.map(t => t.output_tokens)))}`],
    ["Cost", money(sum(turns.map(t => t.cost)))],
  ];
  byId("totals").replaceChildren(...totals.map(([name, value]) =>
    element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: value }))));
  const models = [...new Set(turns.map(t => String(t.model)))].sort();
  byId("choices").replaceChildren(...models.map((model, index) => {
    const own = turns.filter(t => String(t.model) === model);
    const share = own.length / turns.length;
    const bar = drawing(100, 10, ["rect", { class: `fill c${index % 8}`, width: 100 * share, height: 10, rx: 2 }]);
    bar.classList.add("bar");
    return row(model, ...["worker", "thinker", "verifier", "alone"].map(role => number(own.filter(t => t.role === role).length)),
      [bar, ` ${number(100 * share)} %`], number(sum(own.map(t => t.output_tokens))), money(sum(own.map(t => t.cost))),
      number(median(own.map(t => t.call_ms))));
  }));
}

function row(head, ...cells) {
  const first = element("th", { scope: "row" }, head);
  return element("tr", {}, first, ...cells.map(cell => element("td", {}, ...(Array.isArray(cell) ? cell : [cell]))));
}

function spark(points) {
  const [from, to] = [points[0][0], points[points.length - 1][0]];
  const place = ([x, y]) => `${(1 + 98 * (to > from ? (x - from) / (to - from) : 0.5)).toFixed(1)} ${(19 - 18 * y).toFixed(1)}`;
  const svg = drawing(100, 20, ["path", { class: "grid", d: "M0 19H100M0 1H100" }], ["path", { class: "line c0", d: `M${points.map(place).join("L")}` }]);
  svg.classList.add("spark");
  return svg;
}

function fail(error) {
  say(error instanceof TypeError ? "The server cannot be reached; asking again." : error.message);
}

async function openRun(event) {
  if (!sessionStorage.getItem("key")) return; // the link itself does
  event.preventDefault();
  const page = window.open("", "_blank");
  try {
    const html = await (await ask(event.currentTarget.href)).text();
    const address = URL.createObjectURL(new Blob([html], { type: "text/html" }));
    page.location = address;
    setTimeout(() => URL.revokeObjectURL(address), 1000 * SECONDS.opening); // it has been read by then
  } catch (error) {
    page?.close();
    fail(error);
  }
}

function showRuns(runs) {
  const json = JSON.stringify(runs);
  if (json === runsShown && runs.every(run => run.finished)) return;
  runsShown = json;
  const focused = document.activeElement?.getAttribute("href");
  byId("run-rows").replaceChildren(...runs.map(run => {
    const link = element("a", { href: `/dashboard/runs/${encodeURIComponent(run.name)}`, textContent: run.name });
    link.addEventListener("click", openRun);
    const text = run.problem ?? run.verdict;
    const head = [link, ...(text ? [element("br"), element("span", { className: "soft", textContent: text })] : [])];
    const name = element("span", {}, ...head);
    if (run.problem) return row(name, "cannot be read", "-", "-", "-", "-", "-", "-");
    const state = run.finished ? "finished" : `unfinished; changed ${ago(Date.now() / 1000 - run.changed)} ago`;
    const last = run.validation.length ? run.validation[run.validation.length - 1][1] : NaN;
    const curve = run.validation.length > 1 ? [spark(run.validation), ` ${number(100 * last, 1)}`] : number(100 * last, 1);
    return row(name, state, run.of ? `${run.generations} of ${run.of}` : `${run.generations}`, curve, number(run.calls),
      money(run.cost), run.failed_share === null ? "-" : number(100 * run.failed_share, 1), number(run.alarms));
  }));
  if (!runs.length) byId("run-rows").replaceChildren(row("none", "-", "-", "-", "-", "-", "-", "-"));
  [...document.querySelectorAll("#run-rows a")].find(link => link.getAttribute("href") === focused)?.focus();
}

async function refresh(what) {
  if (paused || document.hidden) return;
  try {
    if (what === "traces") showTraces((await (await ask(`/v1/traces?limit=${MOST}`)).json()).data);
    else showRuns((await (await ask("/dashboard/runs.json")).json()).runs);
    say("The server is answering.");
    byId("asked").textContent = `asked every ${SECONDS.traces} s while in view`;
  } catch (error) {
    fail(error);
  }
}

byId("pause").addEventListener("click", event => {
  paused = !paused;
  event.currentTarget.setAttribute("aria-pressed", String(paused));
  event.currentTarget.textContent = paused ? "Paused" : "Pause";
});
byId("key").addEventListener("submit", event => {
  event.preventDefault();
  sessionStorage.setItem("key", new FormData(event.currentTarget).get("key"));
  event.currentTarget.reset();
  PARTS.forEach(refresh);
});
for (const what of PARTS) {
  refresh(what);
  setInterval(refresh, 1000 * SECONDS[what], what);
}
