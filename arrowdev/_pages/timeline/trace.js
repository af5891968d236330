// A trace as rows of slices and instants. Times are microseconds after the first event.
"use strict";

const MOST_LANES = 24; // of a row; slices that do not fit share the last one
const KINDS_OF_FLOW = new Set(["event", "memory", "race"]);

// What to look at first in the details, and how it is called there.
const LABELS = new Map(Object.entries({
  line: "Your line", message: "What happened", advice: "What to do", first: "First access", second: "Second access",
  why: "Why", from: "From", to: "To", protocol: "Protocol", type: "Type", shape: "Shape",
  bytes: "Bytes", bandwidth: "Bandwidth", device: "Device", target: "Target", stream: "Stream",
  how: "How", address: "Address", allocation: "Allocation", dropped: "Dropped", lost: "Lost",
}));

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const isRecord = (value) =>
  value !== null && typeof value === "object" && !Array.isArray(value);

function textOf(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}

// --- rows ----------------------------------------------------------------------------

class Row {
  constructor(process, tid) {
    this.process = process;
    this.tid = tid;
    this.name = process.pid === 0 ? `thread ${tid}` : `queue ${tid}`;
    this.order = null;
    this.lanes = []; // of slices: {items, reach}, where reach[i] is the last end up to i
    this.marks = { items: [], races: [] }; // instants
  }

  // Puts a slice into the first lane that is free; slices arrive in order of their start.
  add(slice) {
    let at = this.lanes.findIndex((lane) => lane.reach[lane.reach.length - 1] <= slice.start);
    if (at < 0) {
      if (this.lanes.length < MOST_LANES) this.lanes.push({ items: [], reach: [] });
      at = this.lanes.length - 1;
    }
    const lane = this.lanes[at], last = lane.reach[lane.reach.length - 1] ?? -Infinity;
    lane.items.push(slice);
    lane.reach.push(Math.max(last, slice.end));
    slice.lane = at;
  }

  // The innermost slice at a time, of a category if one is given; null: there is none.
  sliceAt(time, category) {
    for (let n = this.lanes.length - 1; n >= 0; n--) {
      const lane = this.lanes[n];
      const item = lane.items[firstAtLeast(lane.reach, time)];
      if (item && item.start <= time && (!category || item.category === category)) return item;
    }
    return null;
  }

  // The innermost slice at a time, else the instant of that very time, else null.
  at(time) {
    const slice = this.sliceAt(time);
    if (slice) return slice;
    const mark = this.marks.items[firstBy(this.marks.items, time - 0.0005)];
    return mark && mark.start <= time + 0.0005 ? mark : null;
  }
}

// The first index whose number is at least `value`.
function firstAtLeast(numbers, value) {
  let low = 0, high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The first index of items, in order of their start, that starts at `time` or later.
function firstBy(items, time) {
  let low = 0, high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (items[middle].start < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

const orderOf = (one, number) => one.order ?? (isNumber(number) ? number : Infinity);

// Processes by their number; threads of the host likewise, queues of a device by their name.
function compareProcesses(a, b) {
  return orderOf(a, a.pid) - orderOf(b, b.pid) || 0;
}

function compareRows(a, b) {
  if (a.order !== null || b.order !== null || a.process.pid === 0)
    return orderOf(a, a.tid) - orderOf(b, b.tid) || 0;
  return a.name.localeCompare(b.name, "en", { numeric: true });
}

const itemAt = (row, time) => row.at(time);
// The access of a race: the work that a queue ran; of the host, what is there.
const accessAt = (row, time) => row.sliceAt(time, "work") ?? row.at(time);

// --- reading -------------------------------------------------------------------------

class Trace {
  constructor(data) {
    this.other = isRecord(data.otherData) ? data.otherData : {};
    this.processes = [];
    this.items = []; // slices and instants in order of time
    this.flows = []; // {category, from, to}: each end has a row, a time and maybe an item
    this.ignored = 0;
    this.byKey = new Map();
    const events = Array.isArray(data.traceEvents) ? data.traceEvents : [];
    const flows = new Map();
    this.origin = Infinity;
    for (const event of events)
      if (isRecord(event) && isNumber(event.ts) && event.ph !== "M")
        this.origin = Math.min(this.origin, event.ts);
    for (const event of events) if (!this.take(event, flows)) this.ignored++;
    this.arrange();
    this.races = this.items.filter((item) => item.category === "race");
    this.connect(flows);
  }

  row(pid, tid) {
    const key = JSON.stringify([pid ?? 0, tid ?? 0]);
    let row = this.byKey.get(key);
    if (!row) {
      row = new Row(this.process(pid ?? 0), tid ?? 0);
      row.process.rows.push(row);
      this.byKey.set(key, row);
    }
    return row;
  }

  process(pid) {
    let process = this.processes.find((one) => one.pid === pid);
    if (!process) {
      process = { pid, name: pid === 0 ? "host" : `process ${textOf(pid)}`, order: null };
      Object.assign(process, { rows: [], isOpen: true });
      this.processes.push(process);
    }
    return process;
  }

  // Takes an event of the file; false if it is none that the page shows.
  take(event, flows) {
    if (!isRecord(event)) return false;
    if (event.ph === "M") return this.takeName(event);
    if (!isNumber(event.ts)) return false;
    const args = isRecord(event.args) ? event.args : {};
    const start = event.ts - this.origin;
    if (event.ph === "s" || event.ph === "f") {
      const key = `${event.cat} ${textOf(event.id)}`;
      const flow = flows.get(key) ?? { category: textOf(event.cat) };
      flow[event.ph === "s" ? "from" : "to"] = { row: this.row(event.pid, event.tid), start };
      flows.set(key, flow);
      return KINDS_OF_FLOW.has(event.cat);
    }
    if (event.ph !== "X" && event.ph !== "i" && event.ph !== "I") return false;
    const isSlice = event.ph === "X", duration = isNumber(event.dur) ? Math.max(event.dur, 0) : 0;
    this.items.push({
      isSlice, start, end: start + (isSlice ? duration : 0), args, lane: 0, flows: [],
      hasEnd: !isSlice || isNumber(event.dur),
      name: textOf(event.name) || "(no name)", category: textOf(event.cat),
      row: this.row(event.pid, event.tid),
      key: "id" in event ? `${event.cat} ${textOf(event.id)}` : null, // that of its flow
    });
    return true;
  }

  takeName(event) {
    const args = isRecord(event.args) ? event.args : {};
    if (event.name === "process_name") this.process(event.pid ?? 0).name = textOf(args.name);
    else if (event.name === "process_sort_index")
      this.process(event.pid ?? 0).order = isNumber(args.sort_index) ? args.sort_index : null;
    else if (event.name === "thread_name") this.row(event.pid, event.tid).name = textOf(args.name);
    else if (event.name === "thread_sort_index")
      this.row(event.pid, event.tid).order = isNumber(args.sort_index) ? args.sort_index : null;
    return true;
  }

  arrange() {
    this.items.sort((a, b) => a.start - b.start || b.end - a.end);
    this.end = 0;
    this.items.forEach((item, index) => {
      item.index = index;
      this.end = Math.max(this.end, item.end);
      if (item.isSlice) item.row.add(item);
      else item.row.marks.items.push(item);
      if (item.category === "race") item.row.marks.races.push(item);
    });
    this.processes.sort(compareProcesses);
    for (const process of this.processes) {
      process.rows = process.rows.filter((row) => row.lanes.length || row.marks.items.length);
      process.rows.sort(compareRows);
    }
    this.processes = this.processes.filter((process) => process.rows.length);
  }

  connect(flows) {
    for (const flow of flows.values()) {
      if (!flow.from || !flow.to || !KINDS_OF_FLOW.has(flow.category)) continue;
      for (const end of [flow.from, flow.to]) {
        end.item = (flow.category === "race" ? accessAt : itemAt)(end.row, end.start);
        end.item?.flows.push(flow);
      }
      this.flows.push(flow);
    }
    for (const race of this.races) {
      const flow = flows.get(race.key), { row, start } = race;
      race.ends = flow?.from && flow.to ? [flow.from, flow.to]
        : [{ row, start, item: accessAt(row, start) }];
      if (race.ends.length === 2 && !race.flows.includes(flow)) race.flows.push(flow);
    }
  }

  // The items with a text in their name, category or arguments.
  find(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    return this.items.filter((item) => {
      item.text ??= `${item.name} ${item.category} ${item.row.name} ${item.row.process.name} ` +
        textOf(item.args);
      item.lower ??= item.text.toLowerCase();
      return words.every((word) => item.lower.includes(word));
    });
  }
}

// --- idle time -----------------------------------------------------------------------

// Where nothing happens for long, the axis is drawn short: places are busy microseconds.
class Axis {
  constructor(trace, isShort) {
    this.length = Math.max(trace.end, 0.001);
    this.gaps = []; // {from, to (times), place (of its begin), width}
    if (isShort) this.shorten(trace);
    this.size = this.placeOf(this.length);
  }

  shorten(trace) {
    const idle = [];
    let busy = 0, end = 0;
    for (const item of trace.items) {
      if (item.start > end) idle.push({ from: end, to: item.start });
      busy += Math.max(0, item.end - Math.max(item.start, end));
      end = Math.max(end, item.end);
    }
    if (busy <= 0) return;
    idle.sort((a, b) => b.to - b.from - (a.to - a.from));
    const width = busy / 12, total = idle.reduce((sum, gap) => sum + gap.to - gap.from, 0);
    if (total < busy) return;
    const long = idle.filter((gap) => gap.to - gap.from > 3 * width).slice(0, 1000);
    // A margin at both ends keeps what happens there apart from the gap.
    const drawn = Math.min(width, (3 * busy) / Math.max(long.length, 1));
    let removed = 0;
    for (const gap of long.sort((a, b) => a.from - b.from)) {
      const margin = drawn / 4, from = gap.from + margin, to = gap.to - margin;
      if (to - from <= drawn) continue;
      this.gaps.push({ from, to, place: from - removed, width: drawn });
      removed += to - from - drawn;
    }
  }

  gapBefore(key, value) {
    let low = 0, high = this.gaps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.gaps[middle][key] <= value) low = middle + 1;
      else high = middle;
    }
    return this.gaps[low - 1];
  }

  placeOf(time) {
    const gap = this.gapBefore("from", time);
    if (!gap) return time;
    if (time >= gap.to) return gap.place + gap.width + time - gap.to;
    return gap.place + ((time - gap.from) * gap.width) / (gap.to - gap.from);
  }

  timeOf(place) {
    const gap = this.gapBefore("place", place);
    if (!gap) return place;
    const within = place - gap.place;
    if (within >= gap.width) return gap.to + within - gap.width;
    return gap.from + (within * (gap.to - gap.from)) / gap.width;
  }
}

// --- words ---------------------------------------------------------------------------

const plain = (number, digits) => String(Number(number.toFixed(digits)));

function durationText(us) {
  const ns = Math.abs(us) * 1000;
  if (ns < 1000) return `${plain(us * 1000, 0)} ns`;
  if (ns < 1e6) return `${plain(us, ns < 1e5 ? 2 : 1)} \u00b5s`;
  if (ns < 1e9) return `${plain(us / 1e3, ns < 1e8 ? 2 : 1)} ms`;
  return `${plain(us / 1e6, 3)} s`;
}

function bytesText(bytes) {
  const units = ["bytes", "KB", "MB", "GB", "TB"];
  let at = 0, value = bytes;
  while (value >= 1000 && at < units.length - 1) [value, at] = [value / 1000, at + 1];
  const exact = bytes.toLocaleString("en");
  return at ? `${plain(value, 1)} ${units[at]} (${exact} bytes)` : `${exact} bytes`;
}

function valueText(key, value) {
  if (key === "bytes" && isNumber(value)) return bytesText(value);
  if (key === "bandwidth" && isNumber(value)) return `${plain(value / 1e9, 2)} GB/s`;
  if (key === "shape" && Array.isArray(value))
    return value.map(textOf).join(" \u00d7 ") || "scalar";
  if (Array.isArray(value)) return value.map(textOf).join(", ");
  return textOf(value);
}

const placeText = (item) => `${item.row.process.name}, ${item.row.name}`;
