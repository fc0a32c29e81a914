// A zoomable timeline on a canvas. Draws only what is in view, so that an hour stays quick.
// data: {length_us, rows: [{name, height, spans: [[from, to, colour, label, tip]], marks: [[at, colour, tip]],
//        envelope: {step_us, peaks: base64 of bytes}, colour}], audio: data URL or null, cut_us: a line to draw, or null}
"use strict";
function timeline(root, data) {
  const canvas = root.querySelector("canvas"), tip = root.querySelector(".tip"), audio = root.querySelector("audio");
  const context = canvas.getContext("2d"), AXIS = 22, least = 200000;
  context.font = "11px system-ui, sans-serif";
  const LEFT = 24 + Math.max(72, ...data.rows.map((row) => context.measureText(row.name).width));
  let from = 0, to = Math.max(data.length_us, least), drag = null, waiting = false;
  const rows = data.rows.map((row) => ({
    ...row,
    spans: row.spans.slice().sort((a, b) => a[0] - b[0]),
    peaks: row.envelope ? Uint8Array.from(atob(row.envelope.peaks), (c) => c.charCodeAt(0)) : null,
  }));
  // The longest span so far, so that a search for what is in view does not miss one that began long before.
  for (const row of rows) { let longest = 0; row.reach = row.spans.map((s) => (longest = Math.max(longest, s[1] - s[0]))); }
  const height = AXIS + rows.reduce((sum, row) => sum + row.height + 6, 0);
  const width = () => canvas.clientWidth;
  const x = (us) => LEFT + ((us - from) / (to - from)) * (width() - LEFT);
  const at = (px) => from + ((px - LEFT) / (width() - LEFT)) * (to - from);
  const clock = (us) => { const s = us / 1e6, m = Math.floor(s / 60); return m + ":" + (s % 60).toFixed(to - from < 2e7 ? 2 : to - from < 6e8 ? 1 : 0).padStart(to - from < 2e7 ? 5 : to - from < 6e8 ? 4 : 2, "0"); };
  function first(row) {
    const reach = row.spans.length ? row.reach[row.reach.length - 1] : 0;
    let low = 0, high = row.spans.length;
    while (low < high) { const mid = (low + high) >> 1; if (row.spans[mid][0] < from - reach) low = mid + 1; else high = mid; }
    return low;
  }
  function draw() {
    waiting = false;
    const ratio = window.devicePixelRatio || 1, w = width();
    canvas.width = w * ratio; canvas.height = height * ratio; canvas.style.height = height + "px";
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, w, height);
    context.font = "11px system-ui, sans-serif"; context.textBaseline = "middle";
    const steps = [1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 3e7, 6e7, 3e8, 6e8, 1.8e9, 3.6e9];
    const step = steps.find((s) => (s / (to - from)) * (w - LEFT) > 70) || 7.2e9;
    context.fillStyle = "#777"; context.strokeStyle = "#eee";
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      context.beginPath(); context.moveTo(x(t), AXIS - 4); context.lineTo(x(t), height); context.stroke();
      context.textAlign = "center"; context.fillText(clock(t), x(t), AXIS / 2);
    }
    let y = AXIS;
    for (const row of rows) {
      row.y = y;
      context.save(); context.beginPath(); context.rect(LEFT, y, w - LEFT, row.height); context.clip();
      if (row.peaks) wave(row, y);
      let end = -1;
      for (let i = first(row); i < row.spans.length; i++) {
        const [a, b, colour, label] = row.spans[i];
        if (a > to) break;
        if (b < from) continue;
        const left = x(a), wide = Math.max(1, x(b) - left);
        // Many spans in one pixel look like one.
        if (wide <= 1 && left - end < 0.5) continue;
        end = left;
        context.globalAlpha = row.peaks ? 0.35 : 0.85; context.fillStyle = colour;
        context.fillRect(left, y + 1, wide, row.height - 2); context.globalAlpha = 1;
        if (label && wide > 24) {
          context.save(); context.beginPath(); context.rect(left, y, wide - 3, row.height); context.clip();
          context.fillStyle = row.peaks ? "#333" : "#fff"; context.textAlign = "left"; context.fillText(label, Math.max(left, LEFT) + 4, y + row.height / 2); context.restore();
        }
      }
      for (const [t, colour] of row.marks || []) if (t >= from && t <= to) {
        context.strokeStyle = colour; context.lineWidth = to - from > 3e8 ? 0.4 : 2; context.beginPath(); context.moveTo(x(t), y); context.lineTo(x(t), y + row.height); context.stroke(); context.lineWidth = 1;
      }
      context.restore();
      context.fillStyle = "#333"; context.textAlign = "right"; context.fillText(row.name, LEFT - 8, y + row.height / 2);
      context.strokeStyle = "#ddd"; context.beginPath(); context.moveTo(LEFT, y + row.height + 3); context.lineTo(w, y + row.height + 3); context.stroke();
      y += row.height + 6;
    }
    if (data.cut_us !== null && data.cut_us !== undefined) line(data.cut_us, "#d4a017");
    if (audio && audio.duration) line(audio.currentTime * 1e6, "#c1121f");
  }
  function line(us, colour) {
    if (us < from || us > to) return;
    context.strokeStyle = colour; context.beginPath(); context.moveTo(x(us), AXIS); context.lineTo(x(us), height); context.stroke();
  }
  function wave(row, y) {
    const w = width(), middle = y + row.height / 2; context.fillStyle = row.colour || "#888";
    for (let px = LEFT; px < w; px++) {
      const a = Math.floor(at(px) / row.envelope.step_us), b = Math.max(a + 1, Math.ceil(at(px + 1) / row.envelope.step_us));
      let peak = 0;
      for (let i = Math.max(0, a); i < Math.min(b, row.peaks.length); i++) if (row.peaks[i] > peak) peak = row.peaks[i];
      const half = (peak / 255) * (row.height / 2 - 1);
      if (half > 0.3) context.fillRect(px, middle - half, 1, 2 * half);
    }
  }
  function redraw() { if (!waiting) { waiting = true; requestAnimationFrame(draw); } }
  function move(a, b) {
    const span = Math.min(Math.max(b - a, least), Math.max(data.length_us, least));
    from = Math.min(Math.max(0, a), Math.max(0, Math.max(data.length_us, least) - span)); to = from + span; redraw();
  }
  canvas.addEventListener("wheel", (e) => {
    e.preventDefault();
    const middle = at(e.offsetX), factor = e.shiftKey ? 1 : Math.exp(e.deltaY / 400);
    if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) { const by = ((e.deltaX || e.deltaY) / (width() - LEFT)) * (to - from); move(from + by, to + by); }
    else move(middle - (middle - from) * factor, middle + (to - middle) * factor);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (e) => { drag = { px: e.offsetX, from, to, moved: false }; canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointerup", (e) => {
    if (drag && !drag.moved && audio && e.offsetX > LEFT) { audio.currentTime = at(e.offsetX) / 1e6; redraw(); }
    drag = null;
  });
  canvas.addEventListener("pointermove", (e) => {
    if (drag) { const by = ((drag.px - e.offsetX) / (width() - LEFT)) * (drag.to - drag.from); if (Math.abs(e.offsetX - drag.px) > 3) { drag.moved = true; move(drag.from + by, drag.to + by); } return; }
    const found = hit(e.offsetX, e.offsetY);
    tip.style.display = found ? "block" : "none";
    if (found) { tip.textContent = found; tip.style.left = Math.min(e.offsetX + 14, width() - 340) + "px"; tip.style.top = e.offsetY + 14 + "px"; }
  });
  canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
  canvas.addEventListener("dblclick", () => move(0, data.length_us));
  function hit(px, py) {
    const row = rows.find((r) => py >= r.y && py <= r.y + r.height), slack = (2 / (width() - LEFT)) * (to - from);
    if (!row || px < LEFT) return "";
    const t = at(px);
    for (const [m, , text] of row.marks || []) if (Math.abs(m - t) < slack * 2) return clock(m) + "  " + text;
    let best = "";
    for (let i = first(row); i < row.spans.length && row.spans[i][0] <= t + slack; i++) { const s = row.spans[i]; if (s[1] >= t - slack) best = clock(s[0]) + " – " + clock(s[1]) + "  " + (s[4] || s[3] || ""); }
    return best;
  }
  if (audio) {
    const follow = () => { if (audio.paused) return; const t = audio.currentTime * 1e6; if (t > to || t < from) move(t, t + (to - from)); else redraw(); requestAnimationFrame(follow); };
    audio.addEventListener("play", follow); audio.addEventListener("seeked", redraw);
  }
  root.querySelectorAll("button[data-zoom]").forEach((b) => b.addEventListener("click", () => {
    const f = parseFloat(b.dataset.zoom), m = (from + to) / 2; if (f === 0) move(0, data.length_us); else move(m - ((to - from) * f) / 2, m + ((to - from) * f) / 2);
  }));
  new ResizeObserver(redraw).observe(canvas);
  root.show = (a, b) => move(a, b);
  draw(); // Now, not with the next frame: what prints or reads the page as soon as it is loaded finds the picture.
}
