// SPDX-License-Identifier: Apache-2.0
#include "report/html_page.h"

namespace thimble::report {

// Colours by role are one set for light and dark: each is told from both
// backgrounds and from the others.
const std::string_view kPageStyle = R"css(
:root { color-scheme: light dark; --page: #fff; --text: #1c1f24; --soft: #5b6470;
  --line: #d4d9e0; --field: #f4f6f8; --mark: #000; }
@media (prefers-color-scheme: dark) { :root { --page: #15181c; --text: #e6e9ed;
  --soft: #9aa4b1; --line: #363d47; --field: #1e2329; --mark: #fff; } }
.input { --role: #17a2b8; } .parameter { --role: #3f78c9; }
.gradient { --role: #e08a2e; } .optimizer { --role: #9467c7; }
.statistic { --role: #8a8f98; } .activation { --role: #2fa565; }
.activation-gradient { --role: #d4504a; } .workspace { --role: #b39b1e; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 16px 24px; max-width: 1800px;
  background: var(--page); color: var(--text);
  font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 22px; margin: 0 0 8px; } h2 { font-size: 16px; margin: 20px 0 6px; }
p { margin: 4px 0; color: var(--soft); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(230px, 1fr));
  gap: 4px 16px; margin: 0; }
dl div { overflow-wrap: anywhere; }
dt { color: var(--soft); font-size: 12px; } dd { margin: 0; }
.chart { display: grid; grid-template-columns: 84px 1fr; gap: 0 8px; }
.scale { display: flex; flex-direction: column; justify-content: space-between;
  text-align: right; font-size: 12px; line-height: 1; color: var(--soft); }
.scale.curve { height: 140px; margin-bottom: 10px; } .scale.arena { height: 460px; }
.plots { overflow-x: auto; outline-offset: 2px; }
.inner { width: calc(100% * var(--zoom, 1)); }
svg { display: block; width: 100%; background: var(--field);
  border: 1px solid var(--line); }
.box { position: relative; } .box.curve { margin-bottom: 10px; }
.box.curve svg { height: 140px; } #picture { height: 460px; }
svg rect { fill: var(--role); fill-opacity: .75; vector-effect: non-scaling-stroke; }
svg rect.tall { stroke: var(--field); stroke-width: .7; }
svg rect:hover, svg rect.chosen { fill-opacity: 1; stroke: var(--mark);
  stroke-width: 2; }
g.off { display: none; }
#again { fill: #3f78c9; fill-opacity: .35; pointer-events: none; }
#live { fill: var(--soft); fill-opacity: .3; stroke: var(--text);
  vector-effect: non-scaling-stroke; }
line { vector-effect: non-scaling-stroke; stroke: var(--line); pointer-events: none; }
line.peak { stroke: #e0245e; stroke-width: 1.5; stroke-dasharray: 4 3; }
line.cursor { stroke: var(--mark); stroke-width: 1; }
#peak-label { position: absolute; top: 4px; padding: 0 6px; font-size: 12px;
  white-space: nowrap; pointer-events: none; border-radius: 3px;
  background: #e0245e; color: #fff; }
.phases { position: relative; height: 20px; font-size: 12px; color: var(--soft); }
.phases span { position: absolute; overflow: hidden; white-space: nowrap; padding-left: 3px;
  border-left: 1px solid var(--soft); }
#detail { display: block; min-height: 116px; margin: 10px 0 0; padding: 8px 12px;
  border: 1px solid var(--line); border-radius: 4px; background: var(--field); }
.tables { display: grid; grid-template-columns: repeat(auto-fit, minmax(440px, 1fr));
  gap: 0 32px; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: 3px 8px; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }
td.number, th.number { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.swatch { display: inline-block; width: 12px; height: 12px; margin: 0 6px;
  background: var(--role); border-radius: 2px; vertical-align: -1px; }
kbd { border: 1px solid var(--line); border-radius: 3px; padding: 0 4px;
  background: var(--field); color: var(--text); font: 12px system-ui, sans-serif; }
)css";

const std::string_view kPageScript = R"js(
"use strict";
(() => {
const byId = (id) => document.getElementById(id);
const plan = JSON.parse(byId("plan").textContent);
const plots = byId("plots"), picture = byId("picture"), detail = byId("detail");
const last = plan.ops.length - 1;

const byRect = new Map();
const buffers = [];
for (const rect of picture.querySelectorAll("g[data-role] > rect")) {
  const number = (name) => Number(rect.getAttribute(name));
  const begin = number("x");
  const buffer = { rect, name: rect.textContent, group: rect.parentNode, begin,
    end: begin + number("width"), offset: number("y") * plan.unit,
    bytes: number("height") * plan.unit };
  buffers.push(buffer);
  byRect.set(rect, buffer);
}
const live = new Array(last + 2).fill(0);
for (const b of buffers) { live[b.begin] += b.bytes; live[b.end] -= b.bytes; }
for (let t = 1; t <= last; ++t) live[t] += live[t - 1];

const grouped = (n) => n.toLocaleString("en");
function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  while (bytes >= 1000 ** (i + 1) && i < 4) ++i;
  if (i === 0) return `${bytes} B`;
  // Rounded up, as everywhere on the page.
  const hundredths = Math.ceil(bytes / (1000 ** i / 100));
  return `${(hundredths / 100).toFixed(2)} ${units[i]} (${grouped(bytes)} bytes)`;
}
function opAt(time) {
  const phase = plan.phases.find((p) => time >= p[1] && time < p[2]);
  const again = plan.again.some((run) => time >= run[0] && time < run[1]);
  return `'${plan.ops[time]}' (op ${time}, ${phase[0]}${again ? ", again" : ""})`;
}

let now = plan.peak, chosen = null;

function rows(pairs) {
  const list = document.createElement("dl");
  for (const [term, text, id] of pairs) {
    const row = list.appendChild(document.createElement("div"));
    row.appendChild(document.createElement("dt")).textContent = term;
    const value = row.appendChild(document.createElement("dd"));
    value.textContent = text;
    if (id) value.id = id;
  }
  detail.replaceChildren(list);
}

function show(time, buffer) {
  now = Math.max(0, Math.min(last, time));
  if (chosen) chosen.rect.classList.remove("chosen");
  chosen = buffer;
  for (const line of document.querySelectorAll("line.cursor")) {
    line.setAttribute("x1", now + 0.5);
    line.setAttribute("x2", now + 0.5);
  }
  const pairs = [["time", opAt(now), "now"], ["live there", size(live[now]), "live-now"]];
  if (chosen) {
    chosen.rect.classList.add("chosen");
    pairs.push(["buffer", chosen.name, "name"],
      ["role", chosen.group.dataset.role, "role"],
      ["bytes", size(chosen.bytes), "bytes"],
      ["offset", grouped(chosen.offset), "offset"],
      ["lives from", opAt(chosen.begin), "from"],
      ["to the end of", opAt(chosen.end - 1), "to"]);
  }
  rows(pairs);
}

function timeAt(event) {
  const box = picture.getBoundingClientRect();
  return Math.floor((event.clientX - box.left) / box.width * (last + 1));
}

// Live at `now` and not switched off, lowest address first.
function liveNow() {
  return buffers.filter((b) => b.begin <= now && now < b.end &&
      !b.group.classList.contains("off"))
    .sort((a, b) => a.offset - b.offset);
}

function step(by) {
  now = Math.max(0, Math.min(last, now + by));
  const found = liveNow();
  if (found.includes(chosen)) return show(now, chosen);
  // Stay near the address that was looked at.
  const address = chosen ? chosen.offset : 0;
  show(now, found.find((b) => b.offset + b.bytes > address) || found[0] || null);
}

function climb(by) {
  const found = liveNow();
  const at = found.indexOf(chosen);
  const next = at < 0 ? 0 : Math.max(0, Math.min(found.length - 1, at + by));
  show(now, found[next] || null);
}

// By frame: a mouse reports more moves than can be shown.
let pending = null;
plots.addEventListener("mousemove", (event) => {
  if (!pending) requestAnimationFrame(() => {
    show(timeAt(pending), byRect.get(pending.target) || null);
    pending = null;
  });
  pending = event;
});
plots.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const many = event.shiftKey ? 10 : 1;
  const actions = { ArrowLeft: () => step(-many), ArrowRight: () => step(many),
    ArrowUp: () => climb(1), ArrowDown: () => climb(-1), Home: () => step(-last),
    End: () => step(last), p: () => step(plan.peak - now) };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});
for (const box of document.querySelectorAll("input[data-role]")) {
  const apply = () => picture.querySelector(`g[data-role="${box.dataset.role}"]`)
    .classList.toggle("off", !box.checked);
  box.addEventListener("change", apply);
  apply();  // a browser may keep the ticks of a page that is loaded again
}
const zoom = byId("zoom");
const widen = () => plots.style.setProperty("--zoom", zoom.value);
zoom.addEventListener("input", widen);
widen();
show(plan.peak, null);
})();
)js";

}  // namespace thimble::report
