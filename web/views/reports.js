// SPDX-License-Identifier: Apache-2.0
// Reports: who held, used and waited for memory in a period.
import {CommandLine, Instead, Plot, Table} from "../parts.js";
import {useTable} from "../store.js";
import {html, useMemo, useState} from "../vendor/preact.js";
import {command, compact, moment, time} from "../words.js";

const PERIODS = [["1h", "an hour"], ["24h", "a day"], ["7d", "a week"], ["30d", "30 days"], ["365d", "a year"]];
const BY = ["user", "consumer", "tenant", "session", "device"].map((word) => [word, word]);
const GIB = 2 ** 30;

const hours = (value) => (value === null || value === undefined ? "–" : (value / 1024 / 3600).toFixed(1));
const spoken = (seconds) => (seconds === null || seconds === undefined ? "–" : compact(seconds * 1000));
const share = (row) => (row.idle_mib_seconds === null || !row.held_mib_seconds ? "–"
  : `${Math.round((100 * row.idle_mib_seconds) / row.held_mib_seconds)} %`);

const COLUMNS = [
  {title: "Name", cell: (row) => html`<span class="name" dir="auto" title=${row.name}>${row.name}</span>`},
  {title: "Leases", cell: (row) => row.leases, cls: "right"},
  {title: "Held GiB·h", cell: (row) => hours(row.held_mib_seconds), cls: "right"},
  {title: "Used GiB·h", cell: (row) => hours(row.used_mib_seconds), cls: "right"},
  {title: "GPU work", cell: (row) => spoken(row.busy_seconds), cls: "right wide"},
  {title: "Idle", cell: share, cls: "right wide"},
  {title: "Waited", cell: (row) => spoken(row.waited_seconds), cls: "right"},
  {title: "Wait p50", cell: (row) => (row.wait ? compact(row.wait.p50_ms) : "–"), cls: "right wide"},
  {title: "p95", cell: (row) => (row.wait ? compact(row.wait.p95_ms) : "–"), cls: "right wide"},
  {title: "Waits caused", cell: (row) => spoken(row.wait_caused_seconds), cls: "right wide"},
  {title: "Pauses caused", cell: (row) => row.pauses_caused ?? "–", cls: "right wide"},
  {title: "Pauses", cell: (row) => row.pauses_suffered ?? "–", cls: "right wide"},
];

const of = (points, field, by) => points.map((point) => (point[field] === null ? null : point[field] / by));
const times = (points) => points.map((point) => time(point.at) / 1000);

const MEMORY = [{}, {label: "leased", stroke: "#3b7dd8", width: 2},
  {label: "used", stroke: "#2f9e62", width: 2, dash: [5, 3]}];
const WORK = [{}, {label: "busy", stroke: "#d9822b", width: 2}];
const WAITING = [{}, {label: "waiting", stroke: "#d9822b", width: 2}];

function DevicePlots({device}) {
  const {points} = device;
  const memory = useMemo(
    () => [times(points), of(points, "leased_bytes", GIB), of(points, "used_bytes", GIB)], [points]);
  const work = useMemo(() => [times(points), of(points, "busy_percent", 1)], [points]);
  const gib = device.total_bytes / GIB;
  if (points.length < 2) return null;
  return html`
    <${Plot} title=${`Memory of ${device.device}, GiB`} data=${memory} scales=${{y: {range: [0, gib]}}}
      series=${MEMORY} />
    <${Plot} title=${`GPU work of ${device.device}, %`} data=${work} scales=${{y: {range: [0, 100]}}}
      series=${WORK} />`;
}

function Waiting({points}) {
  const data = useMemo(() => [times(points), of(points, "waiting", 1)], [points]);
  if (points.length < 2) return null;
  return html`<${Plot} title="Waiting leases" data=${data} series=${WAITING} />`;
}

// The matrix as a table of numbers, which says more than shades.
function Matrix({matrix}) {
  const some = matrix.seconds.some((row) => row.some((value) => value > 0));
  if (!some) return html`<p class="dim">No lease waited for another.</p>`;
  const cell = (at) => (row) => (row.seconds[at] > 0 ? spoken(row.seconds[at]) : "");
  const columns = [{title: "waited ↓ for →", cell: (row) => html`<span class="name" dir="auto">${row.name}</span>`},
    ...matrix.names.map((name, at) => ({title: name, cls: "right", cell: cell(at)}))];
  const rows = matrix.names.map((name, at) => ({name, seconds: matrix.seconds[at] ?? []}));
  return html`<${Table} label="Who waited for whom" columns=${columns} rows=${rows} rowKey=${(row) => row.name} />`;
}

const NEIGHBOURS = [
  {title: "Name", cell: (row) => html`<span class="name" dir="auto" title=${row.name}>${row.name}</span>`},
  {title: "Waits caused", cell: (row) => spoken(row.wait_caused_seconds), cls: "right"},
  {title: "Pauses caused", cell: (row) => row.pauses_caused, cls: "right"},
  {title: "Used GiB·h", cell: (row) => row.used_gib_hours.toFixed(1), cls: "right"},
  {title: "Seconds of waiting for a used GiB·h", cell: (row) => row.per_gib_hour?.toFixed(1) ?? "–", cls: "right wide"},
];
const GAPS = [
  {title: "From", cell: (row) => moment(row.from)},
  {title: "To", cell: (row) => moment(row.to)},
  {title: "Not known", cell: (row) => row.what},
  {title: "Because", cell: (row) => row.why},
];
const WAITS = [
  {title: "From", cell: (row) => row.name},
  {title: "Waits", cell: (row) => row.waits, cls: "right"},
  {title: "Waited", cell: (row) => spoken(row.waited_seconds), cls: "right"},
  {title: "", cell: (row) => html`<span class="share" style=${{width: `${100 * row.share}%`}}></span>`, cls: "plotted"},
  {title: "p95", cell: (row) => compact(row.p95_ms), cls: "right"},
];

// With the share of the largest row, which is drawn as a bar beside the number.
function shared(rows) {
  const most = Math.max(1, ...rows.map((row) => row.waited_seconds));
  return rows.filter((row) => row.waits > 0).map((row) => ({...row, share: row.waited_seconds / most}));
}

// Waits by hour of the day and by week, where there were any.
function Trend({trend}) {
  const hours = shared(trend.hours).map((one) => ({...one, name: `${String(one.hour).padStart(2, "0")}:00 UTC`}));
  const weeks = shared(trend.weeks).map((one) => ({...one, name: one.from.slice(0, 10)}));
  const table = (label, rows) => rows.length > 0 && html`<h3>${label}</h3>
    <${Table} label=${label} columns=${WAITS} rows=${rows} rowKey=${(row) => row.name} />`;
  return html`${table("Time waited, by hour of the day", hours)}${table("Time waited, by week", weeks)}`;
}

function Choice({label, value, set, options}) {
  return html`<label>${label}<select value=${value} onChange=${(event) => set(event.target.value)}>
    ${options.map(([word, text]) => html`<option key=${word} value=${word}>${text}</option>`)}</select></label>`;
}

export function Reports() {
  const [since, setSince] = useState("24h");
  const [by, setBy] = useState("user");
  const table = useTable(`v1/report?since=${since}&by=${by}&whole=true`, []);
  const report = table.data;
  return html`<h2>Reports</h2>
    <div class="chooser"><${Choice} label="Period" value=${since} set=${setSince} options=${PERIODS} />
      <${Choice} label="A row for each" value=${by} set=${setBy} options=${BY} />
      <button type="button" onClick=${table.reload}>Read again</button></div>
    ${!report ? html`<${Instead} table=${table} />` : html`
      <p class="dim">${moment(report.from)} to ${moment(report.to)}</p>
      ${!report.complete && html`<p class="warning">
        Some leases before ${moment(report.complete_since)} are not counted.</p>`}
      ${report.trend.sentences.map((line) => html`<p key=${line}>${line}</p>`)}
      ${report.rows.length
    ? html`<${Table} label="Use" columns=${COLUMNS} rows=${report.rows} rowKey=${(row) => row.name} />`
    : html`<p class="dim">No lease in this period.</p>`}
      ${report.series.devices.map((device) => html`<${DevicePlots} key=${device.uuid} device=${device} />`)}
      <${Waiting} points=${report.series.waiting} />
      <${Trend} trend=${report.trend} />
      <h3>Who waited for whom</h3><${Matrix} matrix=${report.matrix} />
      <h3>Noisy neighbours</h3>
      ${report.neighbours.length
    ? html`<${Table} label="Noisy neighbours" columns=${NEIGHBOURS} rows=${report.neighbours}
        rowKey=${(row) => row.name} />`
    : html`<p class="dim">No lease made others wait.</p>`}
      ${report.gaps.length > 0 && html`<h3>Gaps</h3>
        <${Table} label="Gaps" columns=${GAPS} rows=${report.gaps} rowKey=${(row) => row.from + row.what} />`}`}
    <${CommandLine} line=${command("sublet", "report", "--since", since, "--by", by)} />`;
}
