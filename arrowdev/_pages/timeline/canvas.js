// The timeline: a canvas that draws what is in view, and how it is moved.
"use strict";

const LANE = 20, BAR = 17, MARKS = 16, HEAD = 24, PAD = 5, LABEL = 15;
const OVERVIEW = 26, AXIS = 22, TOP = OVERVIEW + AXIS;
const MOST_ARROWS = 300;
const NEAREST = 0.0005; // microseconds of time in view at least
const FONT = "12px system-ui, sans-serif", BOLD = `600 ${FONT}`;

// Dark enough for white text on both backgrounds.
const COLOURS = new Map(Object.entries({
  import: "#2563c9", export: "#0f7b83", convert: "#7446c4", copy: "#b45f06", wait: "#b02a7c",
  release: "#57606a", "deferred release": "#3f4953", work: "#2b7a3d", event: "#b8860b",
  refusal: "#c2410c", race: "#cf222e",
}));
const OTHER = "#6e6a86";
const colourOf = (category) => COLOURS.get(category) ?? OTHER;

class Timeline {
  constructor(canvas, trace, listener) {
    this.canvas = canvas;
    this.paint = canvas.getContext("2d");
    this.trace = trace;
    this.listener = listener; // of selected(item), opened(item), pointed(item, x, y)
    this.isShort = true;
    this.selected = null;
    this.hits = new Set();
    this.hitList = [];
    this.scroll = 0;
    this.widths = new Map();
    this.isAsked = false;
    this.setAxis(true);
    this.readColours();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.readColours();
      this.draw();
    });
    new ResizeObserver(() => this.resize()).observe(canvas.parentElement);
    this.resize();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const named = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colours = Object.fromEntries(
      ["text", "faint", "line", "back", "raised", "grid", "accent", "race"].map((name) =>
        [name, named(name)]));
  }

  // --- places ------------------------------------------------------------------------

  setAxis(isShort) {
    const kept = this.axis && [this.axis.timeOf(this.left), this.axis.timeOf(this.right)];
    this.axis = new Axis(this.trace, isShort);
    this.isShort = this.axis.gaps.length > 0;
    if (kept) this.show(this.axis.placeOf(kept[0]), this.axis.placeOf(kept[1]));
    else this.fit();
    this.overview = null;
  }

  fit() {
    const margin = this.axis.size * 0.02;
    this.show(-margin, this.axis.size + margin);
  }

  show(left, right) {
    const margin = this.axis.size * 0.05;
    const width = Math.min(Math.max(right - left, NEAREST), this.axis.size + 2 * margin);
    const middle = (left + right) / 2;
    this.left = Math.min(Math.max(middle - width / 2, -margin), this.axis.size + margin - width);
    this.right = this.left + width;
    this.draw();
  }

  x(time) {
    return this.xOfPlace(this.axis.placeOf(time));
  }

  xOfPlace(place) {
    return this.gutter + ((place - this.left) * this.plot) / (this.right - this.left);
  }

  placeAt(x) {
    return this.left + ((x - this.gutter) * (this.right - this.left)) / this.plot;
  }

  timeAt(x) {
    return this.axis.timeOf(this.placeAt(x));
  }

  zoom(factor, x = this.gutter + this.plot / 2) {
    const at = this.placeAt(x);
    this.show(at - (at - this.left) * factor, at + (this.right - at) * factor);
  }

  pan(pixels) {
    const by = (pixels * (this.right - this.left)) / this.plot;
    this.show(this.left + by, this.right + by);
  }

  scrollBy(pixels) {
    const most = Math.max(0, this.content - (this.height - TOP));
    this.scroll = Math.min(Math.max(this.scroll + pixels, 0), most);
    this.draw();
  }

  // The names of rows stand beside them, or above them where that is too narrow.
  resize() {
    this.width = this.canvas.parentElement.clientWidth;
    this.paint.font = FONT;
    const names = this.trace.processes.flatMap((process) => process.rows.map((row) => row.name));
    const longest = Math.max(60, ...names.slice(0, 2000).map((name) => this.widthOf(name)));
    this.isBeside = longest + 24 < this.width * 0.28;
    this.gutter = this.isBeside ? longest + 24 : 0;
    this.plot = Math.max(this.width - this.gutter, 1);
    this.arrange();
    const most = Math.max(300, Math.min(innerHeight * 0.72, innerHeight - 180));
    this.height = Math.ceil(Math.min(TOP + this.content, most));
    const scale = devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * scale);
    this.canvas.height = Math.round(this.height * scale);
    this.canvas.style.height = `${this.height}px`;
    this.scale = scale;
    this.overview = null;
    this.scrollBy(0);
  }

  arrange() {
    this.entries = [];
    let y = 0;
    for (const process of this.trace.processes) {
      this.entries.push({ process, y, height: HEAD });
      for (const row of process.rows) [row.y, row.isShown] = [y + HEAD / 2, process.isOpen];
      y += HEAD;
      for (const row of process.isOpen ? process.rows : []) {
        row.y = y + PAD + (this.isBeside ? 0 : LABEL);
        row.marksY = row.y + row.lanes.length * LANE + MARKS / 2;
        const height = row.lanes.length * LANE + (row.marks.items.length ? MARKS : 0);
        this.entries.push({ row, y, height: row.y - y + Math.max(height, LANE) + PAD });
        y += this.entries[this.entries.length - 1].height;
      }
    }
    this.content = y + 4;
  }

  toggle(process) {
    process.isOpen = !process.isOpen;
    this.resize();
  }

  yOf(end) {
    const { row, item } = end;
    if (!row.isShown) return row.y;
    if (item && !item.isSlice) return row.marksY;
    return row.y + (item ? item.lane : 0) * LANE + BAR / 2;
  }

  // --- drawing -----------------------------------------------------------------------

  draw() {
    if (this.isAsked || !this.entries) return;
    this.isAsked = true;
    requestAnimationFrame(() => {
      this.isAsked = false;
      this.drawNow();
    });
  }

  drawNow() {
    const paint = this.paint;
    paint.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    paint.fillStyle = this.colours.back;
    paint.fillRect(0, 0, this.width, this.height);
    paint.font = FONT;
    paint.textBaseline = "middle";
    this.drawGrid();
    paint.save();
    paint.beginPath();
    paint.rect(0, TOP, this.width, this.height - TOP);
    paint.clip();
    paint.translate(0, TOP - this.scroll);
    for (const entry of this.entries) {
      if (entry.y + entry.height < this.scroll || entry.y > this.scroll + this.height) continue;
      if (entry.process) this.drawProcess(entry);
      else this.drawRow(entry);
    }
    this.drawArrows();
    this.drawSelected();
    paint.restore();
    this.drawOverview();
    this.drawScrollbar();
  }

  drawGrid() {
    const { paint, colours } = this;
    const gaps = this.axis.gaps;
    paint.fillStyle = colours.raised;
    const first = firstAtLeast(gaps.map((gap) => gap.place + gap.width), this.left);
    for (let n = first; n < gaps.length && gaps[n].place < this.right; n++) {
      const from = Math.max(this.xOfPlace(gaps[n].place), this.gutter);
      const to = this.xOfPlace(gaps[n].place + gaps[n].width);
      paint.fillRect(from, OVERVIEW, to - from, this.height);
      this.drawGap(gaps[n], from, to);
    }
    let last = -Infinity;
    for (const { time, text } of this.ticks()) {
      const x = this.x(time), width = this.widthOf(text);
      if (x < this.gutter || x - width / 2 < last + 10 || x + width / 2 > this.width) continue;
      paint.fillStyle = colours.grid;
      paint.fillRect(x, TOP - 5, 1, this.height);
      paint.fillStyle = colours.faint;
      paint.fillText(text, Math.max(x - width / 2, 3), OVERVIEW + 9);
      last = x + width / 2;
    }
    paint.fillStyle = colours.line;
    paint.fillRect(0, TOP - 1, this.width, 1);
  }

  drawGap(gap, from, to) {
    const { paint, colours } = this, text = `${durationText(gap.to - gap.from)} idle`;
    paint.strokeStyle = colours.line;
    paint.setLineDash([3, 3]);
    for (const x of [from, to]) this.line(x, OVERVIEW, x, this.height);
    paint.setLineDash([]);
    if (this.widthOf(text) + 8 > to - from) return;
    paint.fillStyle = colours.faint;
    paint.fillText(text, (from + to - this.widthOf(text)) / 2, OVERVIEW + 9);
  }

  line(x, y, toX, toY) {
    this.paint.beginPath();
    this.paint.moveTo(x, y);
    this.paint.lineTo(toX, toY);
    this.paint.stroke();
  }

  // Round times in view, apart from what is drawn short.
  *ticks() {
    const rough = ((this.right - this.left) * 110) / this.plot;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(power * [1, 2, 5, 10].find((n) => n * power >= rough), 0.001);
    const gaps = this.axis.gaps, end = this.axis.timeOf(this.right);
    const perPixel = (this.right - this.left) / this.plot;
    let time = Math.max(0, Math.ceil(this.axis.timeOf(this.left) / step) * step);
    let next = firstAtLeast(gaps.map((gap) => gap.to), time);
    for (let n = 0; n < 500 && time <= end; n++) {
      const gap = gaps[next];
      if (gap && time > gap.from) {
        // Many short stretches between gaps: skip those that have no room for a tick.
        time = Math.max(time, Math.ceil(gap.to / step) * step);
        next++;
        continue;
      }
      yield { time, text: tickText(time, step) };
      time = Math.round(time / step + 1) * step;
      if (perPixel * 60 > step) time += step;
    }
  }

  drawProcess({ process, y }) {
    const { paint, colours } = this;
    paint.fillStyle = colours.raised;
    paint.fillRect(0, y, this.width, HEAD);
    paint.fillStyle = colours.line;
    paint.fillRect(0, y, this.width, 1);
    paint.fillStyle = colours.text;
    paint.font = BOLD;
    const sign = process.isOpen ? "\u25be" : "\u25b8";
    paint.fillText(this.cut(`${sign} ${process.name}`, this.width - 20), 8, y + HEAD / 2 + 1);
    paint.font = FONT;
  }

  drawRow({ row, y, height }) {
    const { paint, colours } = this;
    paint.fillStyle = colours.line;
    paint.globalAlpha = 0.5;
    paint.fillRect(0, y + height - 1, this.width, 1);
    paint.globalAlpha = 1;
    paint.fillStyle = colours.text;
    if (this.isBeside) paint.fillText(row.name, 12, row.y + BAR / 2 + 1);
    else paint.fillText(this.cut(row.name, this.width - 20), 8, y + PAD + LABEL / 2);
    paint.save();
    paint.beginPath();
    paint.rect(this.gutter, y, this.plot, height);
    paint.clip();
    row.lanes.forEach((lane, n) => this.drawLane(lane, row.y + n * LANE));
    if (row.marks.items.length) this.drawMarks(row);
    paint.restore();
  }

  // What is narrower than a pixel is drawn once for each pixel.
  drawLane(lane, y) {
    const { paint } = this, end = this.axis.timeOf(this.right);
    const { items, reach } = lane;
    let n = firstAtLeast(reach, this.axis.timeOf(this.left)), colour = null;
    while (n < items.length && items[n].start <= end) {
      const item = items[n], from = this.x(item.start), to = this.x(item.end);
      const next = colourOf(item.category);
      if (next !== colour) paint.fillStyle = colour = next;
      paint.globalAlpha = this.hits.size && !this.hits.has(item) ? 0.3 : 1;
      if (to - from < 1.5) {
        paint.fillRect(from, y, 1.5, BAR);
        n = Math.max(n + 1, firstAtLeast(reach, this.timeAt(from + 1.5)));
        continue;
      }
      const x = Math.max(from, this.gutter - 2), width = Math.min(to, this.width + 2) - x;
      paint.fillRect(x, y, Math.max(width - (width > 4 ? 1 : 0), 1.5), BAR);
      if (width > 24) {
        const text = this.cut(item.name, width - 9);
        paint.fillStyle = "#fff";
        paint.fillText(text, x + 4, y + BAR / 2 + 1);
        paint.fillStyle = colour;
      }
      n++;
    }
    paint.globalAlpha = 1;
    this.drawHits(lane, y);
  }

  // What was found is never covered by a neighbour on the same pixel.
  drawHits(lane, y) {
    if (!this.hits.size) return;
    const { paint } = this, items = this.hitsOf(lane);
    let last = -Infinity;
    paint.strokeStyle = this.colours.accent;
    paint.lineWidth = 2;
    let n = firstBy(items, this.axis.timeOf(this.left) - lane.longestHit);
    for (; n < items.length; n++) {
      const from = this.x(items[n].start), to = this.x(items[n].end);
      if (from > this.width) break;
      if (from <= last && to <= last + 1) continue;
      paint.strokeRect(from, y + 1, Math.max(to - from - 1, 1), BAR - 2);
      last = Math.max(to, from + 2);
    }
    paint.lineWidth = 1;
  }

  hitsOf(holder) {
    if (holder.hitsOf !== this.hits) {
      holder.hitsOf = this.hits;
      holder.hits = holder.items.filter((item) => this.hits.has(item));
      holder.longestHit = holder.hits.reduce((most, hit) => Math.max(most, hit.end - hit.start), 0);
    }
    return holder.hits;
  }

  // Races, and what was found, are drawn last and never left out.
  drawMarks(row) {
    const { items } = row.marks, end = this.timeAt(this.width + 8);
    for (let n = firstBy(items, this.timeAt(this.gutter - 8)); n < items.length;) {
      if (items[n].start > end) break;
      const x = this.x(items[n].start);
      this.drawMark(items[n], x, row.marksY);
      n = Math.max(n + 1, firstBy(items, this.timeAt(x + 4)));
    }
    const rare = this.hits.size ? this.hitsOf(row.marks) : row.marks.races;
    for (const mark of rare) {
      const x = this.x(mark.start);
      if (x > this.gutter - 8 && x < this.width + 8) this.drawMark(mark, x, row.marksY);
    }
  }

  drawMark(mark, x, y) {
    const { paint } = this, r = mark.category === "race" ? 7 : 4.5;
    paint.globalAlpha = this.hits.size && !this.hits.has(mark) ? 0.35 : 1;
    paint.fillStyle = paint.strokeStyle = colourOf(mark.category);
    paint.lineWidth = 1.6;
    paint.beginPath();
    if (mark.category === "race") {
      paint.moveTo(x, y - r);
      paint.lineTo(x + r, y + r - 1);
      paint.lineTo(x - r, y + r - 1);
      paint.fill();
      paint.fillStyle = "#fff";
      paint.font = `700 10px system-ui, sans-serif`;
      paint.fillText("!", x - 1.6, y + 2);
      paint.font = FONT;
    } else if (mark.category === "refusal") {
      for (const sign of [1, -1]) {
        paint.moveTo(x - r, y - r * sign);
        paint.lineTo(x + r, y + r * sign);
      }
      paint.stroke();
    } else {
      paint.moveTo(x, y - r);
      paint.lineTo(x + r, y);
      paint.lineTo(x, y + r);
      paint.lineTo(x - r, y);
      paint.closePath();
      if (mark.name === "event recorded") paint.stroke();
      else paint.fill();
    }
    paint.globalAlpha = paint.lineWidth = 1;
  }

  // Of memory only the arrows of what is selected, of events and races all that can be told apart.
  drawArrows() {
    const own = new Set(this.selected?.flows), events = [], races = [];
    let left = 0;
    for (const flow of this.trace.flows) {
      if (own.has(flow) || flow.category === "memory") continue;
      const arrow = this.arrowOf(flow);
      if (!arrow) continue;
      if (flow.category === "race") races.push(arrow);
      else if (events.length < MOST_ARROWS) events.push(arrow);
      else left++;
    }
    const { paint, colours } = this;
    paint.save();
    paint.beginPath();
    paint.rect(this.gutter, this.scroll, this.plot, this.height);
    paint.clip();
    paint.globalAlpha = left ? 0.3 : 0.6;
    this.strokeArrows(events, colours.text, 1.1);
    paint.globalAlpha = 1;
    this.strokeArrows(races, colours.race, 1.8);
    for (const flow of own) {
      const arrow = this.arrowOf(flow), isMemory = flow.category === "memory";
      if (isMemory) paint.setLineDash([5, 3]);
      const colour = flow.category === "race" ? colours.race : isMemory ? colours.accent : colours.text;
      if (arrow) this.strokeArrows([arrow], colour, 2.2);
      paint.setLineDash([]);
    }
    paint.restore();
    this.sayLeft(left);
  }

  // The ends of an arrow, [x, y, toX, toY], or null where it is not in view.
  arrowOf({ from, to }) {
    const x = this.x(from.start), toX = this.x(to.start);
    if (Math.max(x, toX) < this.gutter || Math.min(x, toX) > this.width) return null;
    const y = this.yOf(from), toY = this.yOf(to);
    if (Math.max(y, toY) < this.scroll || Math.min(y, toY) > this.scroll + this.height) return null;
    return Math.abs(toX - x) < 2 && Math.abs(toY - y) < 2 ? null : [x, y, toX, toY];
  }

  strokeArrows(arrows, colour, width) {
    if (!arrows.length) return;
    const { paint } = this;
    paint.strokeStyle = paint.fillStyle = colour;
    paint.lineWidth = width;
    paint.beginPath();
    for (const [x, y, toX, toY] of arrows) {
      const bend = Math.max(Math.min(Math.abs(toX - x) / 2, 60), 14);
      paint.moveTo(x, y);
      paint.bezierCurveTo(x + bend, y, toX - bend, toY, toX - 5, toY);
    }
    paint.stroke();
    paint.beginPath();
    for (const [, , toX, toY] of arrows) {
      paint.moveTo(toX, toY);
      paint.lineTo(toX - 7, toY - 4);
      paint.lineTo(toX - 7, toY + 4);
    }
    paint.fill();
    paint.lineWidth = 1;
  }

  sayLeft(left) {
    if (!left) return;
    const { paint, colours } = this;
    const text = `${left.toLocaleString("en")} arrows more: zoom in`, width = this.widthOf(text) + 16;
    const x = this.width - width - 8, y = this.scroll + this.height - TOP - 26;
    paint.fillStyle = colours.back;
    paint.fillRect(x, y, width, 20);
    paint.fillStyle = colours.faint;
    paint.fillText(text, x + 8, y + 10);
  }

  drawSelected() {
    const item = this.selected;
    if (!item?.row.isShown) return;
    const { paint } = this, x = this.x(item.start), y = item.row.y + item.lane * LANE;
    paint.strokeStyle = this.colours.text;
    paint.lineWidth = 2;
    if (item.isSlice) {
      const from = Math.max(x, this.gutter + 1), to = Math.min(this.x(item.end), this.width - 1);
      if (to >= from - 3) paint.strokeRect(from - 2, y - 1, Math.max(to - from, 2) + 3, BAR + 2);
    } else if (x >= this.gutter) {
      paint.beginPath();
      paint.arc(x, item.row.marksY, 9, 0, 7);
      paint.stroke();
    }
    paint.lineWidth = 1;
  }

  drawOverview() {
    const { paint, colours } = this, columns = Math.max(Math.floor(this.width), 1);
    this.overview ??= this.density(columns);
    paint.fillStyle = colours.raised;
    paint.fillRect(0, 0, this.width, OVERVIEW);
    paint.fillStyle = colours.faint;
    this.overview.forEach((share, x) => {
      const height = share * (OVERVIEW - 8);
      if (share > 0) paint.fillRect(x, OVERVIEW - 3 - height, 1.6, height); // no seams if zoomed
    });
    const scale = this.width / this.axis.size;
    paint.fillStyle = colours.race;
    for (const race of this.trace.races)
      paint.fillRect(this.axis.placeOf(race.start) * scale - 1, 2, 2.5, OVERVIEW - 5);
    const from = Math.max(this.left * scale, 1), to = Math.min(this.right * scale, this.width - 1);
    paint.fillStyle = colours.accent;
    paint.globalAlpha = 0.16;
    paint.fillRect(from, 0, to - from, OVERVIEW - 1);
    paint.globalAlpha = 1;
    paint.strokeStyle = colours.accent;
    paint.strokeRect(from - 0.5, 0.5, Math.max(to - from, 3), OVERVIEW - 2);
  }

  // How many rows are busy in each column of the overview, between 0 and 1.
  density(columns) {
    const changes = new Float64Array(columns + 2), scale = columns / this.axis.size;
    for (const item of this.trace.items) {
      const from = Math.floor(this.axis.placeOf(item.start) * scale);
      const to = Math.max(Math.ceil(this.axis.placeOf(item.end) * scale), from + 1);
      changes[Math.min(from, columns)] += 1;
      changes[Math.min(to, columns + 1)] -= 1;
    }
    let sum = 0, most = 1;
    const sums = Array.from(changes.subarray(0, columns), (change) => (sum += change));
    for (const value of sums) most = Math.max(most, value);
    return sums.map((value) => (value > 0 ? 0.25 + (0.75 * value) / most : 0));
  }

  drawScrollbar() {
    const inside = this.height - TOP;
    if (this.content <= inside + 1) return;
    const length = Math.max((inside * inside) / this.content, 24);
    const y = TOP + ((inside - length) * this.scroll) / (this.content - inside);
    this.paint.fillStyle = this.colours.faint;
    this.paint.globalAlpha = 0.6;
    this.paint.fillRect(this.width - 6, y, 4, length);
    this.paint.globalAlpha = 1;
  }

  widthOf(text) {
    const key = this.paint.font + text;
    let width = this.widths.get(key);
    if (width === undefined) {
      if (this.widths.size > 20000) this.widths.clear();
      width = this.paint.measureText(text).width;
      this.widths.set(key, width);
    }
    return width;
  }

  // The text, or its beginning with an ellipsis where it is wider.
  cut(text, width) {
    if (this.widthOf(text) <= width) return text;
    const share = width / this.widthOf(text);
    const letters = Math.floor(text.length * share) - 1;
    return letters > 0 ? `${text.slice(0, letters)}\u2026` : "";
  }

  // --- what is where -----------------------------------------------------------------

  entryAt(y) {
    const inside = y - TOP + this.scroll;
    if (y < TOP) return null;
    return this.entries.find((entry) => inside >= entry.y && inside < entry.y + entry.height);
  }

  itemAt(x, y) {
    const row = this.entryAt(y)?.row, inside = y - TOP + this.scroll;
    if (!row || x < this.gutter) return null;
    if (inside >= row.marksY - MARKS / 2) {
      const { items } = row.marks;
      const near = items.slice(firstBy(items, this.timeAt(x - 7)), firstBy(items, this.timeAt(x + 7)));
      const far = (mark) => Math.abs(this.x(mark.start) - x) - (mark.category === "race" ? 6 : 0);
      return near.sort((a, b) => far(a) - far(b))[0] ?? null;
    }
    const lane = row.lanes[Math.floor((inside - row.y) / LANE)];
    if (!lane) return null;
    const item = lane.items[firstAtLeast(lane.reach, this.timeAt(x - 3))];
    return item && item.start <= this.timeAt(x + 3) ? item : null;
  }

  // --- choosing ----------------------------------------------------------------------

  select(item, isShown = true) {
    this.selected = item;
    if (item && !item.row.process.isOpen) this.toggle(item.row.process);
    if (item && isShown) this.bring(item);
    this.listener.selected(item);
    this.draw();
  }

  // Moves as little as needed for the item to be in view; of a race, both accesses.
  bring(item) {
    if (item.ends) return this.zoomTo(item);
    const from = this.axis.placeOf(item.start), width = this.right - this.left;
    if (from < this.left || from > this.right - (20 * width) / this.plot)
      this.show(from - width / 3, from + (2 * width) / 3);
    this.bringRows(...this.heightOf(item));
  }

  // The item, and of a race both accesses, as wide as they fit.
  zoomTo(item) {
    const items = [item, ...(item.ends ?? []).map((end) => end.item ?? { start: end.start, end: end.start })];
    const from = Math.min(...items.map((one) => this.axis.placeOf(one.start)));
    const to = Math.max(...items.map((one) => this.axis.placeOf(one.end)));
    const margin = Math.max((to - from) * 0.6, 0.05);
    for (const { row } of item.ends ?? []) if (!row.process.isOpen) this.toggle(row.process);
    this.show(from - margin, to + margin);
    const heights = [item, ...(item.ends ?? []).map((end) => end.item)].filter(Boolean)
      .map((one) => this.heightOf(one));
    this.bringRows(Math.min(...heights.map(([top]) => top)), Math.max(...heights.map(([, end]) => end)));
  }

  // Where the item begins and ends among the rows.
  heightOf(item) {
    const y = item.isSlice ? item.row.y + item.lane * LANE : item.row.marksY - MARKS / 2;
    return [y, y + LANE];
  }

  // Scrolls as little as needed; what is higher than the view is shown from its end.
  bringRows(top, end) {
    if (top < this.scroll + 20) this.scrollBy(top - this.scroll - 30);
    if (end > this.scroll + this.height - TOP) this.scrollBy(end - this.scroll - this.height + TOP + 10);
  }

  // The item after or before what is selected, or the first one in view.
  step(by) {
    const { items } = this.trace;
    if (!items.length) return null;
    const at = this.selected ? this.selected.index + by
      : Math.min(firstBy(items, this.axis.timeOf(this.left)), items.length - 1);
    if (at < 0 || at >= items.length) return null;
    this.select(items[at]);
    return items[at];
  }

  // The nearest item of the row above or below.
  stepRow(by) {
    const rows = this.trace.processes.flatMap((process) => process.rows);
    if (!this.selected) return this.step(1);
    const row = rows[rows.indexOf(this.selected.row) + by];
    if (!row) return null;
    const time = (this.selected.start + this.selected.end) / 2;
    const near = [...row.lanes, row.marks].flatMap(({ items }) => {
      const n = firstBy(items, time);
      return items.slice(Math.max(n - 1, 0), n + 1);
    });
    const distance = (item) => Math.max(item.start - time, time - item.end, 0);
    const item = near.sort((a, b) => distance(a) - distance(b))[0];
    if (item) this.select(item);
    return item;
  }

  setHits(items) {
    this.hitList = items;
    this.hits = new Set(items);
    this.draw();
  }
}

function tickText(time, step) {
  const [unit, size] = time >= 1e6 || step >= 1e5 ? ["s", 1e6]
    : time >= 1e3 || step >= 100 ? ["ms", 1e3] : ["\u00b5s", 1];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
  return `${(time / size).toFixed(Math.min(digits, 9))} ${unit}`;
}
