// The live page: shows what /events says once a second. Whatever came from a peer is put in as text, never as HTML.
"use strict";

const KEPT = 300; // seconds in the charts
const points = { time: [], good: [], bad: [], p50: [], p95: [] };
const charts = [];
let source, lastNews = 0, cutSince = 0, applied, latest;

const at = (id) => document.getElementById(id);

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function make(tag, kind, text) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  if (text !== undefined) element.textContent = text;
  return element;
}

// Keeps the children of an element in step with a list: those that stay are changed in place, so that what is
// selected, opened or focused stays so.
function keep(parent, items, key, begin, fill) {
  const rows = (parent.rows ??= new Map());
  const seen = new Set();
  let next = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    if (seen.has(name)) continue;
    seen.add(name);
    let row = rows.get(name);
    if (!row) rows.set(name, (row = begin(item)));
    if (row === next) next = next.nextElementSibling;
    else parent.insertBefore(row, next);
    fill(row, item);
  }
  for (const [name, row] of rows) {
    if (!seen.has(name)) {
      row.remove();
      rows.delete(name);
    }
  }
}

// --- Numbers for people ----------------------------------------------------------------------------------------------

function number(value) {
  if (value >= 100) return Math.round(value).toLocaleString("en");
  return String(Number(value.toFixed(value >= 1 ? 1 : 2)));
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.001) return "< 1 ms";
  if (seconds < 1) return `${number(seconds * 1000)} ms`;
  return `${number(seconds)} s`;
}

function long(seconds) {
  const [days, hours, minutes] = [seconds / 86400, (seconds / 3600) % 24, (seconds / 60) % 60].map(Math.floor);
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min` : `${Math.floor(seconds)} s`;
}

const clock = (time) => new Date(time).toLocaleTimeString("en-GB");
const moment = (time) => new Date(time).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

// --- The parts of the page -------------------------------------------------------------------------------------------

function showHead({ status }) {
  put(at("version"), status.version);
  const file = status.routes;
  const text = `up ${long(status.uptime_seconds)} · process ${status.process} · listening on ${status.listening.join(", ")} · ` +
    `${file.path}, applied ${moment(file.applied)}`;
  put(at("about"), text);
  const warnings = [];
  if (file.broken) warnings.push({ kind: "bad", title: "⚠ What runs is older than the file, which can't be applied:", text: file.broken });
  const trial = file.trial ?? status.trial;
  if (trial && trial.state === "on") {
    warnings.push({ kind: "odd", title: `⚠ Other routes are on trial until ${clock(trial.ends)}:`, text: trial.why });
  }
  keep(at("warnings"), warnings, (warning) => warning.title, ({ kind }) => {
    const row = make("div", `warning ${kind === "odd" ? "odd" : ""}`);
    row.append(make("strong"), make("pre"));
    return row;
  }, (row, { title, text }) => {
    put(row.children[0], title);
    put(row.children[1], text);
  });
}

function showTiles({ status, rates, tunnels }) {
  const flight = new Map();
  let waiting = 0;
  for (const site of status.sites) {
    waiting += site.waiting;
    for (const instance of site.instances) flight.set(instance.name, instance.in_flight);
  }
  const inFlight = [...flight.values()].reduce((sum, count) => sum + count, 0);
  put(at("t-flight"), String(inFlight) + (waiting ? ` + ${waiting} waiting` : ""));
  put(at("t-clients"), status.connections.toLocaleString("en") + (tunnels ? `, ${plural(tunnels, "tunnel")}` : ""));
  if (!rates) return;
  put(at("t-requests"), number(rates.requests));
  put(at("t-p50"), duration(rates.p50));
  put(at("t-p95"), duration(rates.p95));
  const part = rates.requests > 0 ? rates.errors / rates.requests : 0;
  put(at("t-errors"), rates.errors > 0 ? `${number(rates.errors)} /s (${number(part * 100)} %)` : "none");
  at("t-errors").className = rates.errors > 0 ? "bad" : "";
}

const STATES = {
  up: ["● up", "good"],
  down: ["▼ down", "bad"],
  aside: ["◆ put aside", "odd"],
  "not-asked": ["○ not asked yet", "odd"],
  draining: ["◐ draining", "odd"],
  drained: ["◌ drained", "odd"],
};

function showSites({ status, rates }) {
  const wanted = at("find").value.trim().toLowerCase();
  const is = (site) => [site.name, ...site.also, ...site.instances.map((one) => one.name)].some((name) => name.toLowerCase().includes(wanted));
  const sites = wanted ? status.sites.filter(is) : status.sites;
  at("find-line").hidden = status.sites.length < 8;
  put(at("found"), wanted ? `${sites.length} of ${status.sites.length}` : "");
  put(at("more-sites"), status.more_sites ? `and ${plural(status.more_sites, "more site")}: carom status shows each` : status.sites.length ? "" : "No line of the routes has instances.");
  keep(at("site-list"), sites, (site) => site.name, () => {
    const row = make("article", "site");
    const line = make("p");
    line.append(make("h3"), make("span", "also quiet"), make("span", "odd"), make("span", "numbers"));
    row.append(line, make("ul", "instances"));
    return row;
  }, (row, site) => {
    const [name, also, paused, numbers] = row.firstElementChild.children;
    put(name, site.name);
    put(also, [site.also.length ? `also ${site.also.join(", ")}` : "", site.passthrough ? "passed through" : ""].filter(Boolean).join(" · "));
    put(paused, site.paused ? `❚❚ paused: requests wait ${site.paused.wait_seconds} s` : "");
    const rate = rates?.sites[site.name];
    const parts = rate ? [`${number(rate.requests)} /s`, rate.requests > 0 ? `95 % within ${duration(rate.p95)}` : ""] : [];
    if (rate?.errors) parts.push(`${number(rate.errors)} 5xx/s`);
    if (site.waiting) parts.push(`${site.waiting} waiting`);
    put(numbers, parts.filter(Boolean).join(" · "));
    keep(row.lastElementChild, site.instances, (one) => one.name, () => {
      const line = make("li");
      line.append(make("span"), make("span", "state"), make("span", "why"), make("span", "right"), make("span", "right"));
      return line;
    }, showInstance);
  });
}

function showInstance(row, one) {
  const [name, state, why, flight, requests] = row.children;
  const [word, kind] = STATES[one.state] ?? [one.state, "odd"];
  put(name, one.name + (one.backup ? " (backup)" : ""));
  put(state, word);
  state.className = `state ${kind}`;
  const since = one.since && one.state !== "up" ? `since ${clock(one.since)}` : "";
  put(why, [one.why, since, one.back ? `back by ${one.back}` : ""].filter(Boolean).join(", "));
  put(flight, `${one.in_flight}${one.max_connections ? ` of ${one.max_connections}` : ""} in flight`);
  put(requests, plural(one.requests, "request"));
}

function showErrors({ reasons, failures }) {
  at("no-errors").hidden = reasons.length + failures.length > 0;
  keep(at("reasons"), reasons, ([reason]) => reason, () => make("li"), (row, [reason, count]) => put(row, `${reason} × ${count.toLocaleString("en")}`));
  keep(at("failures"), failures, (one) => String(one.number), (one) => {
    const row = make("li");
    const place = one.host + one.path.split("?")[0];
    const where = `${one.client} asked for ${one.method ? `${one.method} ${place}` : "something unreadable"}` +
      (one.route && one.route !== one.host ? ` · site ${one.route}` : "") + (one.backend ? ` · of ${one.backend}` : "");
    row.append(make("span", "quiet", clock(one.time)), make("span", "bad", one.reason ?? "its own answer"),
      make("span", "", one.status ? String(one.status) : "no answer"), make("span", "where", where));
    return row;
  }, () => {});
}

async function showHistory() {
  const answer = await fetch("history");
  if (!answer.ok) throw new Error(`history: ${answer.status}`);
  const tables = await answer.json();
  at("no-history").hidden = tables.length > 0;
  keep(at("history"), tables, (table) => String(table.number), (table) => {
    const row = make("details");
    const [first] = table.diff.split("\n");
    row.append(make("summary", "", `${table.number} · ${moment(table.time)} · ${first}`), make("pre", "", table.diff));
    return row;
  }, () => {});
}

function showCertificates({ status }) {
  at("no-certs").hidden = status.certificates.length > 0;
  keep(at("certs"), status.certificates, (one) => one.names.join(" "), () => {
    const row = make("li");
    row.append(make("span"), make("span", "quiet"), make("span", "names"));
    return row;
  }, (row, one) => {
    const [days, until, names] = row.children;
    const soon = one.days < 14;
    put(days, `${soon ? "⚠ " : ""}${plural(one.days, "day")} left`);
    days.className = one.days < 7 ? "bad" : soon ? "odd" : "";
    put(until, `until ${new Date(one.until).toLocaleDateString("en-GB", { dateStyle: "medium" })}`);
    put(names, one.names.join(", "));
  });
}

// --- The charts ------------------------------------------------------------------------------------------------------

function remember({ time_ms, rates }) {
  if (!rates) return;
  points.time.push(time_ms / 1000);
  points.good.push(rates.requests - rates.errors);
  points.bad.push(rates.errors);
  points.p50.push(rates.p50 === null ? null : rates.p50 * 1000);
  points.p95.push(rates.p95 === null ? null : rates.p95 * 1000);
  for (const list of Object.values(points)) while (list.length > KEPT) list.shift();
}

const DATA = [() => [points.time, points.good, points.bad], () => [points.time, points.p50, points.p95]];

function drawCharts() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  for (const chart of charts.splice(0)) chart.destroy();
  const axis = (more) => ({ stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") }, ...more });
  const line = (label, name, dash) => ({ label, stroke: color(name), width: 2, dash, points: { show: false } });
  const shapes = [
    ["c-requests", [line("others", "--one"), line("5xx", "--bad", [4, 3])], (value) => number(value)],
    ["c-duration", [line("half within", "--one"), line("95 % within", "--two", [4, 3])], (value) => duration(value / 1000)],
  ];
  shapes.forEach(([id, series, shown], index) => {
    const told = (value) => (value === null || value === undefined ? "–" : shown(value));
    // Where the pointer is; else the last.
    for (const one of series) one.value = (chart, value, index, place) => told(place === null ? chart.data[index].at(-1) : value);
    charts.push(new uPlot({
      width: at(id).clientWidth || 300,
      height: 170,
      padding: [10, 24, 0, 0],
      scales: { x: { time: true, range: (_, first, last) => [Math.min(first, last - 60), last] }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [axis({ values: (_, times) => times.map((time) => clock(time * 1000)), space: 90 }), axis({ size: 70, values: (_, values) => values.map((value) => (value ? shown(value) : "0")) })],
      series: [{ label: "At", value: (_, time) => (time ? clock(time * 1000) : "now") }, ...series],
      legend: { markers: { dash: (chart, index) => (chart.series[index].dash ? "dashed" : "solid") } },
      cursor: { drag: { setScale: false } },
    }, DATA[index](), at(id)));
  });
}

function updateCharts() {
  if (charts.length === 0) drawCharts();
  else charts.forEach((chart, index) => chart.setData(DATA[index]()));
}

// --- The connection --------------------------------------------------------------------------------------------------

function show(event) {
  latest = event;
  showHead(event);
  showTiles(event);
  showSites(event);
  showErrors(event);
  showCertificates(event);
  remember(event);
  updateCharts();
  // A new table, or another process.
  const mark = `${event.status.process} ${event.status.routes.applied}`;
  if (mark !== applied) {
    applied = mark;
    showHistory().catch(() => (applied = undefined));
  }
}

function link(kind, text) {
  at("link").className = kind;
  put(at("link"), text);
}

function connect() {
  source = new EventSource("events");
  source.onmessage = (message) => {
    [lastNews, cutSince] = [Date.now(), 0];
    link("live", "● live");
    show(JSON.parse(message.data));
  };
  source.onerror = () => {
    cutSince ||= Date.now();
    link("cut", `✕ cut off since ${clock(cutSince)}: trying again`);
    // The browser tries by itself, but not after an answer that is none of events.
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
  };
}

setInterval(() => {
  const silence = Math.round((Date.now() - lastNews) / 1000);
  if (lastNews && !cutSince && silence > 4) link("cut", `✕ no news for ${silence} s`);
}, 1000);

at("find").addEventListener("input", () => latest && showSites(latest));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCharts);
let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(drawCharts, 150);
});
connect();
