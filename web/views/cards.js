// SPDX-License-Identifier: Apache-2.0
// Cards: who has the memory of each device, and all leases.
import {leaseActs} from "../acts.js";
import {Acts} from "../dialog.js";
import {LeaseLink, Live, Names, Plot, State, Table, Text} from "../parts.js";
import {startActs} from "../start.js";
import {useStore, useTable} from "../store.js";
import {html, useMemo} from "../vendor/preact.js";
import {clock, compact, deviceNames, moment, nameOf, reason, since, size, sizeAtMost, time} from "../words.js";

const MOST_PARTS = 40;  // leases with a part of their own in a bar
const MOST_EVENTS = 12;  // shown
const MOST_WARNINGS = 3;  // shown at once

const isOn = (lease, device) => lease.devices.includes(device.uuid) && !["queued", "paused"].includes(lease.state);

const sum = (list, of) => list.reduce((total, one) => total + of(one), 0);

function processName({pid, user, command}) {
  return `pid ${pid}${user ? ` of ${user}` : ""}${command ? `: ${command.split(" ")[0]}` : ""}`;
}

// The parts of a bar: {key, kind, bytes, used, name, href}.
function partsOf(device, leases, processes) {
  const held = leases.filter((lease) => isOn(lease, device)).sort((a, b) => b.vram_bytes - a.vram_bytes);
  const usedOf = (lease) => lease.used_bytes / lease.devices.length;
  const parts = held.slice(0, MOST_PARTS).map((lease) => ({key: lease.id, kind: "lease", used: usedOf(lease),
    bytes: Math.max(lease.vram_bytes, usedOf(lease)), name: `${nameOf(lease)} (${lease.user})`,
    href: `#/lease/${lease.id}`}));
  const rest = held.slice(MOST_PARTS);
  if (rest.length)
    parts.push({key: "rest", kind: "lease", bytes: sum(rest, (one) => one.vram_bytes), used: sum(rest, usedOf),
      name: `${rest.length} more leases`});
  const own = processes.filter((one) => one.device === device.uuid);
  for (const one of own)
    parts.push({key: `pid-${one.pid}`, kind: "other", bytes: one.used_bytes ?? 0, name: processName(one)});
  const lost = device.other_bytes - sum(own, (one) => one.used_bytes ?? 0);
  if (lost > 0) parts.push({key: "lost", kind: "lost", bytes: lost, name: "unaccounted"});
  const kept = device.residue_bytes;
  if (kept > 0) parts.push({key: "kept", kind: "kept", bytes: kept, name: "kept for paused programs"});
  const free = Math.max(0, device.effective_free_bytes);
  parts.push({key: "free", kind: "free", bytes: free, name: "free"});
  const left = device.total_bytes - sum(parts, (part) => part.bytes);
  if (left > 0) parts.push({key: "driver", kind: "kept", bytes: left, name: "driver and headroom"});
  return parts.filter((part) => part.bytes > 0);
}

function Bar({device, parts}) {
  const total = sum(parts, (part) => part.bytes) || 1;
  const of = (bytes) => `${(100 * bytes) / total}%`;
  const filled = (part) => `${Math.min(100, (100 * part.used) / part.bytes)}%`;
  const text = (part) => `${part.name} ${part.kind === "free" ? sizeAtMost(part.bytes) : size(part.bytes)}` +
    (part.kind === "lease" ? `, ${size(part.used)} used` : "");
  return html`<ul class="bar" aria-label=${`Memory of ${device.id}`}>${parts.map((part) => html`
    <li key=${part.key} class=${part.kind} style=${{width: of(part.bytes)}} title=${text(part)}>
      ${part.kind === "lease" && html`<span class="used" style=${{width: filled(part)}}></span>`}
      ${part.href
    ? html`<a class="text" dir="auto" href=${part.href} tabindex="-1" aria-hidden="true">${text(part)}</a>`
    : html`<span class="text" dir="auto" aria-hidden="true">${text(part)}</span>`}
      <span class="hidden">${text(part)}</span></li>`)}</ul>`;
}

const GIB = 2 ** 30, HOUR = 3600;
const SERIES = [{}, {label: "used GiB", scale: "GiB", stroke: "#3b7dd8", width: 2},
  {label: "busy %", scale: "%", stroke: "#d9822b", dash: [4, 3]}];

// The last hour: from the report of the past, then from the readings that came since.
function LastHour({device, past, live}) {
  const row = past?.series?.devices.find((one) => one.uuid === device.uuid);
  const data = useMemo(() => {
    const points = [];
    if (row) {
      for (const point of row.points) points.push([time(point.at), point.used_bytes, point.busy_percent]);
    }
    const last = points.length ? points.at(-1)[0] : 0;
    for (const point of live ?? []) if (point[0] > last) points.push(point);
    const of = (at, by) => points.map((point) => ((point[at] ?? null) === null ? null : point[at] / by));
    return [of(0, 1000), of(1, GIB), of(2, 1)];
  }, [row, live]);
  if (data[0].length < 2) return null;
  const title = `The last hour of ${device.id}: memory in use and utilisation`;
  return html`<${Plot} title=${title} data=${data} height=${130}
    scales=${{x: {range: (plot, min, max) => [max - HOUR, max]}, "%": {range: [0, 100]},
    GiB: {range: [0, device.total_bytes / GIB]}}}
    axes=${[{scale: "GiB", size: 40, space: 20}, {scale: "%", side: 1, grid: {show: false}, size: 40, space: 20}]}
    series=${SERIES} />`;
}

function Card({device, past}) {
  const {leases, status, history} = useStore("leases", "status");
  const parts = partsOf(device, [...leases.values()], status.unleased_processes);
  const known = device.state === "ok";
  const more = [device.other_bytes > 0 ? `, unleased ${size(device.other_bytes)}` : "",
    device.busy_percent !== null ? `, busy ${device.busy_percent} %` : ""];
  return html`<section class="card" aria-label=${device.id}>
    <h3><span>${device.id}</span><span>${device.name}</span><span>${size(device.total_bytes)}</span>
      ${device.simulated && html`<span class="dim">(simulated)</span>`}
      ${!known && html`<span class="state failed">${device.state.toUpperCase()}</span>`}</h3>
    ${device.problem && html`<p class="refusal">${device.problem}</p>`}
    ${device.service && html`<p class="dim">${device.service.state} by ${device.service.by}${
      device.service.reason && `: ${device.service.reason}`}</p>`}
    ${known && html`<${Bar} device=${device} parts=${parts} />`}
    <p>free <strong>${known ? sizeAtMost(device.effective_free_bytes) : "unknown"}</strong>,
      leased ${sizeAtMost(Math.max(0, device.leased_bytes - device.residue_bytes))},
      used ${known ? size(device.used_bytes) : "unknown"}${more.join("")}</p>
    <${LastHour} device=${device} past=${past} live=${history.get(device.uuid)} />
  </section>`;
}

const KEY = [["usedKey", "leased, used"], ["leasedKey", "leased, unused"], ["otherKey", "unleased process"],
  ["lostKey", "unaccounted"], ["freeKey", "free"], ["keptKey", "driver, headroom, kept"]];

const LIVE = ["active", "offered", "queued", "pausing", "paused", "resuming", "poisoned"];

function Counts() {
  const {leases, status} = useStore("leases", "status");
  const counts = new Map();
  for (const {state} of leases.values()) counts.set(state, (counts.get(state) ?? 0) + 1);
  const words = LIVE.filter((state) => counts.has(state)).map((state) => `${counts.get(state)} ${state}`);
  const {ledger, waiting_bytes: waiting} = status;
  if (waiting > 0) words.push(`${size(waiting)} requested by waiting leases`);
  if (ledger.parked_bytes > 0)
    words.push(`${size(ledger.parked_bytes)} of ${size(ledger.limit_bytes)} parked in host memory`);
  return html`<p>${words.length ? `leases: ${words.join(", ")}` : "no leases"}</p>`;
}

const columnsOf = (devices) => [
  {title: "Lease", cell: (lease) => html`<${LeaseLink} id=${lease.id} /> <${Names} lease=${lease} />`},
  {title: "User", cell: (lease) => lease.user, cls: "wide"},
  {title: "State", cell: (lease) => html`<span title=${lease.summary}><${State} is=${lease.state}
    more=${lease.stopping ? "stopping" : ""} /></span>`},
  {title: "Tier", cell: (lease) => lease.tier, cls: "wide"},
  {title: "GPU", cell: (lease) => deviceNames(lease.devices, devices), cls: "wide"},
  {title: "VRAM", cell: (lease) => sizeAtMost(lease.vram_bytes), cls: "right"},
  {title: "Used", cell: (lease) => size(lease.used_bytes), cls: "right"},
  {title: "Age", live: (lease, now) => since(lease.created_at, now), cls: "right wide"},
  {title: "Acts", cell: (lease) => html`<${Acts} small acts=${leaseActs(lease)} />`, cls: "wide"},
];

function Leases() {
  const {leases, names} = useStore("leases", "names");
  const columns = useMemo(() => columnsOf(names), [names]);
  if (leases.size === 0)
    return html`<p class="dim">A first lease: <code>sublet run --vram 2GiB -- PROGRAM</code></p>`;
  return html`<${Table} label="Leases" columns=${columns} rows=${[...leases.values()]} rowKey=${(lease) => lease.id}
    note=${(lease, now) => reason(lease, names, now, lease.asOf)} />`;
}

const Warning = ({one}) => html`<p class="warning"><strong>${one.code}</strong>:${" "}<${Text} text=${one.text} />${" "}
  <span class="dim">(for <${Live} of=${(now) => compact(now - time(one.since))} />)</span>
  ${one.hint && html`<br /><small><${Text} text=${one.hint} /></small>`}</p>`;

// The first ones, and the others below a line, so that the cards stay in sight.
function Warnings() {
  const {warnings} = useStore("status").status;
  const all = warnings.map((one) => html`<${Warning} key=${one.code + one.text} one=${one} />`);
  const rest = all.slice(MOST_WARNINGS);
  return html`${all.slice(0, MOST_WARNINGS)}
    ${rest.length > 0 && html`<details><summary>${rest.length} more warnings</summary>${rest}</details>`}`;
}

function textOf({type, data}) {
  if (type === "lease") return `${data.lease} (${nameOf(data)}, ${data.user}): ${data.text}`;
  return data.text ?? data.summary ?? [data.device, data.state, data.problem].filter(Boolean).join(" ");
}

const EventLine = ({event}) => useMemo(() => html`<li>
  <span class="dim">${clock(event.data.at)}</span><span dir="auto">${textOf(event)}</span></li>`, [event]);

function Events() {
  const {events} = useStore("events");
  if (events.length === 0) return null;
  return html`<section><h2>Latest events</h2><ol class="steps">${events.slice(0, MOST_EVENTS).map((event) => html`
    <${EventLine} key=${event.id} event=${event} />`)}</ol></section>`;
}

function Daemon() {
  const {daemon, caller} = useStore("status").status;
  return html`<p class="dim">subletd ${daemon.version}, running since ${moment(daemon.since)}, for ${caller.user}${
  caller.admin ? ", an admin" : ""}${caller.scope === "read" ? ", who may only look" : ""}</p>`;
}

function Bars() {
  const {devices} = useStore("devices");
  const past = useTable("v1/report?since=1h&by=device&whole=true", []);
  if (devices.length === 0) return html`<p>The daemon knows no device.</p>`;
  return devices.map((device) => html`<${Card} key=${device.uuid} device=${device} past=${past.data} />`);
}

export const Cards = () => html`
  <${Warnings} />
  <h2 class="hidden">Cards</h2>
  <${Bars} />
  <ul class="key" aria-label="Key of the bars">${KEY.map(([kind, text]) => html`
    <li key=${kind}><span class=${`swatch ${kind}`}></span> ${text}</li>`)}</ul>
  <h2>Leases</h2>
  <p><${Acts} acts=${startActs()} /></p>
  <${Counts} /><${Leases} /><${Events} /><${Daemon} />`;
