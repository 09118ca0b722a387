// SPDX-License-Identifier: Apache-2.0
// Parts that several views are made of.
import {useLive} from "./store.js";
import {html, useEffect, useLayoutEffect, useMemo, useRef, useState} from "./vendor/preact.js";
import {nameOf} from "./words.js";

const ROW = 52;  // height of a row in px, as in page.css; rows of long tables are all of one height
const LONG = 60;  // rows; a longer table draws only the rows that are seen
const BEYOND = 8;  // rows drawn above and below these

// A state as a word, with a mark, so that colour is not needed to tell it.
const MARKS = {active: "●", running: "●", ready: "●", paused: "❚❚", parked: "❚❚", queued: "◷", backoff: "◷",
  offered: "◔", poisoned: "✕", failed: "✕", pausing: "↓", resuming: "↑", ended: "■", stopped: "■", exited: "■"};

export function State({is, more}) {
  const text = is + (more ? ` (${more})` : "");
  return html`<span class=${`state ${is}`}><span aria-hidden="true">${MARKS[is] ?? "○"}</span> ${text}</span>`;
}

export const LeaseLink = ({id}) => html`<a href=${`#/lease/${id}`}>${id}</a>`;

// A sentence of the daemon, with the commands that it has between backquotes.
export const Text = ({text}) => text.split("`").map((part, at) => (at % 2 ? html`<code>${part}</code>` : part));

// The names of a lease: user's words, which may be long. The tag is the name that its user chose.
export function Names({lease}) {
  const name = nameOf(lease);
  const other = lease.consumer !== name && lease.consumer;
  return html`<span class="name" dir="auto" title=${name}>${name}</span>${" "}
    ${other && html`<span class="tag wide" dir="auto" title=${`consumer ${other}`}>${other}</span>`}`;
}

export function Refused({refusal}) {
  return html`<p class="refusal" role="alert">${refusal.message}
    ${refusal.hint && html`<br /><small><${Text} text=${refusal.hint} /></small>`}</p>`;
}

// Stands in place of a table that is being read, was refused, or is empty.
export function Instead({table, empty}) {
  if (table.refusal) return html`<${Refused} refusal=${table.refusal} />`;
  if (!table.data) return html`<p class="dim" role="status">Reading …</p>`;
  return html`<p class="dim">${empty}</p>`;
}

// The rows between `from` and `to` of those that are seen in a box that scrolls.
function useWindow(count) {
  const box = useRef(null);
  const [range, set] = useState([0, LONG]);
  const look = () => {
    const element = box.current;
    if (!element || count <= LONG) return;
    const from = Math.max(0, Math.floor(element.scrollTop / ROW) - BEYOND);
    const to = Math.min(count, Math.ceil((element.scrollTop + element.clientHeight) / ROW) + BEYOND);
    set((old) => (old[0] === from && old[1] === to ? old : [from, to]));
  };
  useLayoutEffect(look, [count]);
  useEffect(() => {
    addEventListener("resize", look);
    return () => removeEventListener("resize", look);
  }, [count]);
  return {box, look, from: count > LONG ? range[0] : 0, to: count > LONG ? Math.min(range[1], count) : count};
}

// Text that changes with time: `of(now)`.
export const Live = ({of}) => useLive(of);

function Note({of}) {
  const text = useLive(of);
  return html`<small class="note" dir="auto" title=${text}>${text}</small>`;
}

// A row is drawn again if it is another object, or if the columns are. Texts that change with time draw themselves.
function Row({row, index, columns, note}) {
  const content = (one) => (one.live ? html`<${Live} of=${(now) => one.live(row, now)} />` : one.cell(row));
  const cell = (one, at) => html`<td class=${one.cls ?? ""}>
    <div>${content(one)}</div>${at === 0 && note && html`<${Note} of=${(now) => note(row, now)} />`}</td>`;
  return useMemo(() => html`<tr aria-rowindex=${index + 2}>${columns.map(cell)}</tr>`, [row, index, columns]);
}

// A table. A column has `title`, `cell(row)` or `live(row, now)`, and `cls`: "right" for numbers, "wide" if it is left
// out on a phone. `note(row, now)` is a second line below the first cell. The same columns and rows must be the same
// objects: nothing is drawn for them then.
export function Table({label, columns, rows, rowKey, note}) {
  const {box, look, from, to} = useWindow(rows.length);
  const long = rows.length > LONG;
  const space = (count) => html`<tr aria-hidden="true" style=${{height: `${count * ROW}px`}}>
    <td colspan=${columns.length}></td></tr>`;
  return html`
    <div class=${long ? "box long" : "box"} ref=${box} onScroll=${look} tabindex="0" role="region" aria-label=${label}>
      <table aria-rowcount=${rows.length + 1}>
        <caption class="hidden">${label}${long ? `: ${rows.length} rows` : ""}</caption>
        <thead><tr aria-rowindex="1">
          ${columns.map((one) => html`<th scope="col" class=${one.cls ?? ""}>${one.title}</th>`)}</tr></thead>
        <tbody>
          ${from > 0 && space(from)}
          ${rows.slice(from, to).map((row, index) => html`<${Row} key=${rowKey(row)} row=${row} index=${from + index}
            columns=${columns} note=${note} />`)}
          ${to < rows.length && space(rows.length - to)}
        </tbody>
      </table>
    </div>`;
}

// Names and values.
export function Facts({facts}) {
  const given = facts.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return html`<dl class="facts">${given.map(([name, value]) => html`
    <div key=${name}><dt>${name}</dt><dd dir="auto">${value}</dd></div>`)}</dl>`;
}

// The same on the command line.
export function CommandLine({line}) {
  const [copied, set] = useState(false);
  const copy = () => navigator.clipboard?.writeText(line).then(() => set(true), () => set(false));
  return html`<p class="line"><span class="dim">The same on the command line:</span><br /><code>${line}</code>${" "}
    <button type="button" class="small" onClick=${copy}>${copied ? "Copied" : "Copy"}</button></p>`;
}

const DAY = 86400;  // s

// Moments below a plot: days if it shows several of them.
function momentsOf(plot, splits) {
  const days = plot.scales.x.max - plot.scales.x.min > 2 * DAY;
  const format = days ? {month: "short", day: "numeric"} : {hour: "2-digit", minute: "2-digit", hour12: false};
  return splits.map((at) => new Date(at * 1000).toLocaleString([], format));
}

// A plot over time by uPlot, which is loaded with the first one. `data` and `series` are uPlot's.
export function Plot({title, data, series, axes, scales, height = 160}) {
  const box = useRef(null), made = useRef(null), newest = useRef(data);
  newest.current = data;
  const [failed, fail] = useState(false);
  useEffect(() => {
    let stopped = false;
    const resize = () => made.current?.setSize({width: box.current.clientWidth, height});
    import("./vendor/uplot.js").then(({default: UPlot}) => {
      if (stopped) return;
      const style = getComputedStyle(document.documentElement);
      const ink = style.getPropertyValue("--dim"), grid = style.getPropertyValue("--line");
      const paint = (axis) => ({stroke: ink, grid: {stroke: grid, width: 1}, ticks: {stroke: grid}, ...axis});
      made.current = new UPlot({width: box.current.clientWidth, height, series, scales,
        cursor: {show: false}, legend: {live: false}, axes: [{values: momentsOf}, ...(axes ?? [{}])].map(paint)},
      newest.current, box.current);
      addEventListener("resize", resize);
    }).catch(() => fail(true));
    return () => {
      stopped = true;
      removeEventListener("resize", resize);
      made.current?.destroy();
      made.current = null;
    };
  }, [series.length]);
  useEffect(() => made.current?.setData(data), [data]);
  return html`<figure class="plot" role="img" aria-label=${title}><figcaption>${title}</figcaption>
    <div ref=${box}></div>
    ${failed && html`<p class="dim">The plot could not be loaded: reload the page.</p>`}</figure>`;
}
