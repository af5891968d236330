// The mouse, fingers and the keyboard on the timeline.
"use strict";

function listenToPointers(timeline) {
  const { canvas } = timeline, pointers = new Map();
  let moved = 0, grip = null, band = null;

  const placeOf = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const overviewTo = (x) => {
    const at = (x / timeline.width) * timeline.axis.size, width = timeline.right - timeline.left;
    timeline.show(at - width / 2, at + width / 2);
  };

  canvas.addEventListener("pointerdown", (event) => {
    const at = placeOf(event);
    pointers.set(event.pointerId, at);
    canvas.setPointerCapture(event.pointerId);
    moved = 0;
    grip = at.y < OVERVIEW ? "overview" : at.y < TOP || event.shiftKey ? "range" : "pan";
    if (grip === "overview") overviewTo(at.x);
    if (grip === "range") band = { from: at.x, to: at.x };
  });

  canvas.addEventListener("pointermove", (event) => {
    const at = placeOf(event), before = pointers.get(event.pointerId);
    if (!before) return point(event, at);
    moved += Math.abs(at.x - before.x) + Math.abs(at.y - before.y);
    if (pointers.size === 2) {
      const other = [...pointers.entries()].find(([id]) => id !== event.pointerId)[1];
      const was = Math.abs(before.x - other.x), is = Math.abs(at.x - other.x);
      if (was > 5 && is > 5) timeline.zoom(was / is, (at.x + other.x) / 2);
    } else if (grip === "overview") overviewTo(at.x);
    else if (grip === "range") {
      band.to = at.x;
      timeline.drawNow();
      drawBand();
    } else if (moved > 3) {
      canvas.classList.add("panning");
      timeline.pan(before.x - at.x);
      timeline.scrollBy(before.y - at.y);
    }
    pointers.set(event.pointerId, at);
  });

  function drawBand() {
    const { paint } = timeline;
    paint.fillStyle = timeline.colours.accent;
    paint.globalAlpha = 0.2;
    paint.fillRect(Math.min(band.from, band.to), OVERVIEW, Math.abs(band.to - band.from), timeline.height);
    paint.globalAlpha = 1;
  }

  function point(event, at) {
    const item = timeline.itemAt(at.x, at.y);
    canvas.classList.toggle("pointing", Boolean(item || timeline.entryAt(at.y)?.process));
    timeline.listener.pointed(item, at.x, at.y);
  }

  const leave = (event) => {
    pointers.delete(event.pointerId);
    canvas.classList.remove("panning");
    if (band && Math.abs(band.to - band.from) > 4) {
      const ends = [band.from, band.to].sort((a, b) => a - b);
      timeline.show(timeline.placeAt(ends[0]), timeline.placeAt(ends[1]));
    } else if (band) timeline.draw();
    band = null;
  };
  canvas.addEventListener("pointerup", (event) => {
    const at = placeOf(event), isClick = moved <= 3 && at.y >= TOP;
    leave(event);
    if (!isClick) return;
    const { process } = timeline.entryAt(at.y) ?? {};
    if (process) timeline.toggle(process);
    else timeline.select(timeline.itemAt(at.x, at.y), false);
  });
  canvas.addEventListener("pointercancel", leave);
  canvas.addEventListener("pointerleave", () => timeline.listener.pointed(null));
  canvas.addEventListener("dblclick", () => {
    if (timeline.selected) timeline.zoomTo(timeline.selected);
  });

  // The wheel zooms; with Shift or sideways it moves; on names, and with Alt, it scrolls rows.
  canvas.addEventListener("wheel", (event) => {
    const { x } = placeOf(event), line = event.deltaMode === 1 ? 16 : 1;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) timeline.pan(event.deltaX * line);
    else if (event.shiftKey) timeline.pan(event.deltaY * line);
    else if (event.altKey || x < timeline.gutter) timeline.scrollBy(event.deltaY * line);
    else timeline.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY * line)) * 0.004), x);
  }, { passive: false });
}

// Tab walks from slice to slice until Escape; then it leaves the timeline, as everywhere.
function listenToKeys(timeline) {
  let walks = true;
  const far = () => timeline.plot * 0.2;
  const keys = {
    ArrowLeft: () => timeline.pan(-far()), ArrowRight: () => timeline.pan(far()),
    a: () => timeline.pan(-far()), d: () => timeline.pan(far()),
    ArrowUp: () => timeline.stepRow(-1), ArrowDown: () => timeline.stepRow(1),
    w: () => timeline.zoom(0.7), s: () => timeline.zoom(1 / 0.7),
    "+": () => timeline.zoom(0.7), "=": () => timeline.zoom(0.7), "-": () => timeline.zoom(1 / 0.7),
    PageUp: () => timeline.scrollBy(-200), PageDown: () => timeline.scrollBy(200),
    Home: () => timeline.select(timeline.trace.items[0] ?? null),
    End: () => timeline.select(timeline.trace.items.at(-1) ?? null),
    0: () => timeline.fit(), f: () => timeline.selected && timeline.zoomTo(timeline.selected),
    Enter: () => timeline.selected && timeline.listener.opened(timeline.selected),
    Escape: () => {
      walks = false;
      timeline.select(null);
    },
  };
  timeline.canvas.addEventListener("focus", () => (walks = true));
  timeline.canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Tab") {
      if (walks && timeline.step(event.shiftKey ? -1 : 1)) event.preventDefault();
      return;
    }
    const action = keys[event.key] ?? keys[event.key.toLowerCase()];
    if (!action) return;
    if (event.key !== "Escape") walks = true;
    event.preventDefault();
    action();
  });
}
