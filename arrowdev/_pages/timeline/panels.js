// What stands around the timeline: races, search, details and the summary.
"use strict";

const byId = (id) => document.getElementById(id);

// Text is only ever put as text: names in a trace are of foreign origin.
function element(tag, content, attributes = {}) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  for (const part of [content ?? []].flat()) made.append(part);
  return made;
}

function button(text, action) {
  const made = element("button", text, { type: "button" });
  made.addEventListener("click", action);
  return made;
}

const count = (number, one, many = `${one}s`) =>
  `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

// --- the top -------------------------------------------------------------------------

function showHead(trace) {
  const { other } = trace;
  const command = Array.isArray(other.command) ? other.command.map(textOf).join(" ") : "";
  byId("command").textContent = command || "";
  byId("version").textContent = [
    other.arrowdev && `arrowdev ${textOf(other.arrowdev)}`,
    other.pid && [other.pid].flat().map((pid) => `process ${textOf(pid)}`).join(", "),
  ].filter(Boolean).join(", ");
  byId("facts").append(...facts(trace).map(([text, kind]) => element("li", text, { class: kind })));
}

function facts(trace) {
  const of = (category) => trace.items.filter((item) => item.category === category);
  const sum = (items, measure) => items.reduce((total, item) => total + (measure(item) || 0), 0);
  const time = (items) => sum(items, (item) => item.end - item.start);
  const found = [];
  const add = (items, text, kind = "") => items.length && found.push([text, kind]);
  const copies = of("copy"), waits = of("wait").filter((item) => /^host\b/.test(item.row.process.name));
  if (trace.races.length || trace.other.race_search) found.push(racesFound(trace));
  add(of("refusal"), count(of("refusal").length, "refusal"));
  add(of("import"), count(of("import").length, "import"));
  add(of("export"), count(of("export").length, "export"));
  const bytes = sum(copies, (item) => isNumber(item.args.bytes) && item.args.bytes);
  add(copies, `${count(copies.length, "copy", "copies")}, ${bytesText(bytes).split(" (")[0]}`);
  add(waits, `${count(waits.length, "wait")} of the host, ${durationText(time(waits))}`);
  if (trace.items.length) found.push([`${durationText(trace.end)} in all`, ""]);
  if (isNumber(trace.other.dropped) && trace.other.dropped > 0)
    found.push([`${count(trace.other.dropped, "event")} dropped: the trace was full`, "bad"]);
  if (isNumber(trace.other.lost) && trace.other.lost > 0)
    found.push([`${count(trace.other.lost, "event")} lost: no memory was left`, "bad"]);
  if (trace.ignored) found.push([`${count(trace.ignored, "entry", "entries")} not shown`, ""]);
  return found;
}

// Without a device that can search nothing is said.
function racesFound(trace) {
  if (trace.other.race_search === "off" && !trace.races.length)
    return ["races not searched for: set ARROWDEV_RACES=1", ""];
  const isIncomplete = trace.other.race_search === "incomplete";
  const text = count(trace.races.length, "race") + (isIncomplete ? ", and some may have been missed" : "");
  return [text, trace.races.length || isIncomplete ? "bad" : ""];
}

// --- races ---------------------------------------------------------------------------

function showRaces(trace, timeline) {
  if (!trace.races.length) return;
  byId("races").hidden = false;
  byId("races-title").textContent = trace.races.length === 1 ? "A race was found"
    : `${trace.races.length} races were found`;
  const list = byId("race-list");
  trace.races.slice(0, 200).forEach((race, n) => {
    const { first, second, message, advice, run } = race.args;
    const name = race.name.replace(/^race:\s*/, "");
    const show = button("Show it", () => {
      timeline.select(race);
      byId("view").scrollIntoView({ block: "nearest" });
      timeline.canvas.focus({ preventScroll: true });
    });
    show.setAttribute("aria-label", `Show race ${n + 1} in the timeline`);
    const ends = [raceEnd("First", first), raceEnd("Second", second), show];
    list.append(element("li", [
      element("p", `${n + 1}. ${name.charAt(0).toUpperCase()}${name.slice(1)}`, { class: "race-name" }),
      element("p", textOf(message), { class: "wrap" }),
      ...(advice ? [element("p", `What to do: ${textOf(advice)}`, { class: "wrap" })] : []),
      ...(run ? [element("p", `In this run: ${textOf(run)}`, { class: "wrap" })] : []),
      element("div", ends, { class: "ends" }),
    ], { class: "race" }));
  });
  if (trace.races.length > 200)
    list.append(element("li", `${trace.races.length - 200} more: search for "race".`));
}

function raceEnd(title, access) {
  const end = isRecord(access) ? access : {};
  return element("div", [
    element("p", [element("span", `${title}: `, { class: "faint" }), accessText(end)]),
    element("p", textOf(end.line) || "line not known", { class: "code wrap" }),
  ], { class: "end" });
}

// Who did what, as {"queue": "queue 1", "access": "write"} says it.
function accessText(end) {
  const what = textOf(end.access) || "an access", who = textOf(end.queue);
  return who ? `${what}, by ${isNumber(end.queue) ? `queue ${who}` : who}` : what;
}

function markRace(trace, item) {
  [...byId("race-list").children].forEach((li, n) =>
    li.classList.toggle("chosen", Boolean(item) && trace.races[n] === item));
}

// --- details -------------------------------------------------------------------------

function showDetails(timeline, item) {
  const details = byId("details");
  details.replaceChildren();
  byId("summary").hidden = Boolean(item);
  details.hidden = !item;
  if (!item) return;
  const list = element("dl");
  const entry = (name, text, kind = "wrap") =>
    list.append(element("dt", name), element("dd", text, { class: kind }));
  const known = [...LABELS.keys()].filter((key) => key in item.args);
  const others = Object.keys(item.args).filter((key) => !LABELS.has(key));
  for (const key of [...known, ...others]) {
    const value = item.args[key], name = LABELS.get(key) ?? key;
    if (value === null || value === undefined || value === "") continue;
    if (isRecord(value) && (key === "first" || key === "second"))
      entry(name, `${accessText(value)}\n${textOf(value.line) || "line not known"}`);
    else entry(name, valueText(key, value), key === "line" ? "line wrap" : "wrap");
  }
  entry("Start", `${durationText(item.start)} after the first event`);
  if (item.isSlice)
    entry("Duration", item.hasEnd ? durationText(item.end - item.start) : "not known");
  entry("Row", placeText(item));
  details.append(element("h2", item.name, { class: "wrap" }), list, ...linksOf(timeline, item));
  details.append(element("p", [
    button("Zoom to it", () => timeline.zoomTo(item)), " ",
    button("Close", () => {
      timeline.select(null);
      timeline.canvas.focus();
    }),
  ]));
}

// The other ends of the arrows of an item.
function linksOf(timeline, item) {
  const words = {
    event: ["Waited for by", "Waits for"], memory: ["Memory goes to", "Memory from"],
    race: ["Begins later", "Begins earlier"],
  };
  const ends = item.flows.slice(0, 50).flatMap((flow) =>
    [[flow.from, 1], [flow.to, 0]].filter(([end]) => end.item !== item)
      .map(([end, word]) => [end, words[flow.category][word]]));
  const links = ends.map(([end, word]) => {
    if (!end.item) return element("li", `${word}: ${placeText(end)}`);
    return element("li", button(`${word}: ${end.item.name} (${placeText(end)})`, () =>
      timeline.select(end.item)));
  });
  if (!links.length) return [];
  return [element("h3", "Arrows"), element("ul", links, { class: "links" })];
}

// --- the summary ---------------------------------------------------------------------

function showSummary(trace) {
  const summary = isRecord(trace.other.summary) ? trace.other.summary : {};
  const advice = [summary.advice ?? []].flat().map(textOf).filter(Boolean);
  byId("advice").hidden = !advice.length;
  byId("advice").append(...advice.map((text) => element("p", text, { class: "wrap" })));
  const isAbove = new Set(["advice", "ns", "dropped", "lost", "refusals"]); // the top says it
  const parts = Object.entries(summary).filter(([name]) => !isAbove.has(name));
  for (const [name, value] of parts) {
    const shown = summaryPart(value);
    if (!shown) continue;
    const title = name.replaceAll("_", " ");
    byId("summary").append(element("h3", title.charAt(0).toUpperCase() + title.slice(1)), shown);
  }
}

// Lists of records as what they are about and their numbers; nothing for what is empty.
function summaryPart(value) {
  if (Array.isArray(value) && value.some(isRecord)) {
    const entries = value.filter(isRecord).slice(0, 50).map(recordEntry);
    if (value.length > entries.length) entries.push(element("li", `${value.length} in all`));
    return element("ul", entries, { class: "records" });
  }
  if (isRecord(value)) return Object.keys(value).length ? recordEntry(value) : null;
  const text = Array.isArray(value) ? value.map(textOf).join(", ") : textOf(value);
  return text && text !== "0" ? element("p", text, { class: "wrap" }) : null;
}

function recordEntry(record) {
  const rest = { ...record };
  let title = "";
  for (const [from, to] of [["from", "to"], ["device", "target"]]) {
    if (title || !(from in rest) || !(to in rest)) continue;
    title = [rest[from], rest[to]].map((one) => textOf(one) || "not known").join(" \u2192 ");
    delete rest[from];
    delete rest[to];
  }
  const key = title ? null : Object.keys(rest).find((name) => typeof rest[name] === "string");
  if (key) [title] = [rest[key], delete rest[key]];
  const numbers = Object.entries(rest).filter(([name]) => name !== "why" && name !== "line")
    .map(([name, one]) => numberText(name, one)).filter(Boolean).join(", ");
  const lines = [title, numbers, textOf(rest.why), textOf(rest.line)];
  return element("li", lines.map((text, n) =>
    text && element("div", text, { class: ["name", "", "", "code"][n] })).filter(Boolean));
}

function numberText(name, value) {
  const label = name.replaceAll("_", " ");
  if (name === "ns" && isNumber(value)) return durationText(value / 1000);
  if (name === "bytes" && isNumber(value)) return bytesText(value).split(" (")[0];
  if (name === "count" && isNumber(value)) return count(value, "time");
  if (name === "zero_copy" && isNumber(value)) return `${value.toLocaleString("en")} without a copy`;
  return `${label}: ${valueText(name, value)}`;
}

// --- search and tools ----------------------------------------------------------------

function connectSearch(trace, timeline) {
  const field = byId("search");
  let hits = [], at = -1, text = "";
  const say = () => {
    byId("found").textContent = !text ? ""
      : !hits.length ? "nothing found"
      : at < 0 ? `${hits.length.toLocaleString("en")} found`
      : `${at + 1} of ${hits.length.toLocaleString("en")}`;
  };
  const look = () => {
    if (field.value.trim() === text) return;
    text = field.value.trim();
    hits = trace.find(text);
    at = -1;
    timeline.setHits(hits);
    say();
  };
  const step = (by) => {
    look();
    if (!hits.length) return;
    at = (at + by + hits.length + (at < 0 && by < 0 ? 1 : 0)) % hits.length;
    timeline.select(hits[at]);
    say();
  };
  field.addEventListener("input", look);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
    if (event.key !== "Escape") return;
    field.value = "";
    look();
    timeline.canvas.focus();
  });
  byId("next").addEventListener("click", () => step(1));
  byId("previous").addEventListener("click", () => step(-1));
  return step;
}

function connectTools(trace, timeline, step) {
  byId("in").addEventListener("click", () => timeline.zoom(0.5));
  byId("out").addEventListener("click", () => timeline.zoom(2));
  byId("fit").addEventListener("click", () => timeline.fit());
  const short = byId("short");
  short.checked = timeline.isShort;
  short.disabled = !timeline.isShort;
  short.closest("label").hidden = !timeline.isShort;
  short.addEventListener("change", () => timeline.setAxis(short.checked));
  let race = -1;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === byId("search")) return;
    if (event.key === "/") {
      event.preventDefault();
      byId("search").select();
    } else if (event.key === "n" || event.key === "N") step(event.key === "n" ? 1 : -1);
    else if (event.key === "r" && trace.races.length)
      timeline.select(trace.races[(race = (race + 1) % trace.races.length)]);
    else if (event.key === "?") byId("keys").open = !byId("keys").open;
  });
  byId("details").addEventListener("keydown", (event) => {
    if (event.key === "Escape") timeline.canvas.focus();
  });
}

function showLegend(trace) {
  const present = new Set(trace.items.map((item) => item.category));
  const entries = [...COLOURS].filter(([category]) => present.has(category));
  if ([...present].some((category) => !COLOURS.has(category))) entries.push(["other", OTHER]);
  byId("legend").append(...entries.map(([category, colour]) => {
    const square = element("i", null, { "aria-hidden": "true" });
    square.style.background = colour;
    return element("li", [square, category]);
  }));
}

// --- the page ------------------------------------------------------------------------

function showTip(item, x, y) {
  const tip = byId("tip");
  tip.hidden = !item;
  if (!item) return;
  const length = item.isSlice ? (item.hasEnd ? durationText(item.end - item.start) : "no end") : "";
  tip.replaceChildren(element("b", item.name),
    ...[length, textOf(item.args.why), textOf(item.args.line)].filter(Boolean)
      .map((text) => element("div", text)));
  const view = byId("view");
  const left = Math.min(x + 14, view.clientWidth - tip.offsetWidth - 6);
  const isBelow = y + 18 + tip.offsetHeight < view.clientHeight;
  tip.style.left = `${Math.max(left, 4)}px`;
  tip.style.top = `${isBelow ? y + 18 : Math.max(y - tip.offsetHeight - 12, 2)}px`;
}

function start() {
  const trace = new Trace(JSON.parse(byId("trace").textContent));
  showHead(trace);
  showSummary(trace);
  if (!trace.items.length) {
    byId("empty").hidden = false;
    byId("whole").hidden = true;
    return { trace };
  }
  const timeline = new Timeline(byId("canvas"), trace, {
    selected(item) {
      showDetails(timeline, item);
      markRace(trace, item);
      byId("said").textContent = item ? `${item.name}, ${placeText(item)}` : "";
    },
    opened() {
      byId("details").focus();
      byId("details").scrollIntoView({ block: "nearest" });
    },
    pointed: showTip,
  });
  showRaces(trace, timeline);
  showLegend(trace);
  listenToPointers(timeline);
  listenToKeys(timeline);
  connectTools(trace, timeline, connectSearch(trace, timeline));
  return { trace, timeline };
}

const shown = start();
