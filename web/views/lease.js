// SPDX-License-Identifier: Apache-2.0
// One lease: why it is as it is, what happened to it, its processes, and the log of its program.
import {leaseActs} from "../acts.js";
import {Acts} from "../dialog.js";
import {Log} from "../log.js";
import {CommandLine, Facts, Instead, LeaseLink, Names, State, Table, Text} from "../parts.js";
import {useNow, useStore, useTable} from "../store.js";
import {html} from "../vendor/preact.js";
import {clock, command, deviceName, deviceNames, duration, moment, programName, size, sizeAtMost, time,
  whySentences} from "../words.js";

// The phase that begins with a decision of this code; others change none.
const PHASES = {queued: "waits", lapsed: "waits", offered: "offered", granted: "runs", claimed: "runs",
  resumed: "runs", pausing: "pausing", paused: "paused", resuming: "resuming", poisoned: "poisoned"};
const RUNS = ["runs", "pausing", "resuming"], AWAY = ["paused", "poisoned"];

// [{name, from, to, text, slice}]: times in ms, the decision with which the phase began, and the lease whose time slice
// the pause is for.
export function phasesOf(lease, reasons, now) {
  const phases = [{name: "waits", from: time(lease.created_at)}];
  let slice = null;
  for (const {code, at, text, args} of reasons) {
    const last = phases.at(-1);
    const next = PHASES[code];
    // A lease that waits to grow runs on, and one that waits to resume is paused.
    const waits = code === "queued" && [...RUNS, ...AWAY].includes(last.name);
    if (code === "pausing") slice = args?.cause === "slice" ? args.preemptor : null;
    if (next && next !== last.name && !waits)
      phases.push({name: next, from: time(at), text, slice: next === "paused" ? slice : null});
  }
  const end = lease.ended_at ? time(lease.ended_at) : now;
  phases.forEach((phase, at) => (phase.to = phases[at + 1]?.from ?? end));
  return phases.filter((phase) => phase.to > phase.from);
}

function kindOf({name, slice}) {
  if (slice) return "slice";
  return RUNS.includes(name) ? "run" : AWAY.includes(name) ? "away" : "wait";
}

const SUMS = [["wait", "waits"], ["run", "runs"], ["slice", "paused for time slices of others"], ["away", "paused"]];

const sumOf = (phases) => phases.reduce((sum, phase) => sum + phase.to - phase.from, 0);
const lengthOf = (phase) => `${phase.name} ${duration(phase.to - phase.from)}`;
const phaseText = (phase) => lengthOf(phase) + (phase.slice ? `, for the time slice of ${phase.slice}` : "");

// A bar, the sum of each kind of phase as its key, and all phases in words.
function TimeLine({lease, reasons, now}) {
  const phases = phasesOf(lease, reasons, now);
  const share = (phase) => `${(100 * (phase.to - phase.from)) / (sumOf(phases) || 1)}%`;
  const sums = SUMS.map(([kind, name]) => [kind, name, sumOf(phases.filter((phase) => kindOf(phase) === kind))]);
  return html`<ol class="phases" aria-label="Time line">${phases.map((phase) => html`
    <li key=${phase.from} class=${kindOf(phase)} style=${{width: share(phase)}}>
      <span>${phaseText(phase)}</span></li>`)}</ol>
    <ul class="key" aria-label="Sums">${sums.filter(([, , sum]) => sum > 0).map(([kind, name, sum]) => html`
      <li key=${kind}><span class=${`swatch phase ${kind}`}></span> ${name} ${duration(sum)}</li>`)}
      <li>${moment(lease.created_at)} to ${lease.ended_at ? moment(lease.ended_at) : "now"}</li></ul>
    <details><summary>The time line in words</summary>
      <ol class="steps">${phases.map((phase) => html`<li key=${phase.from}>
        <span class="dim">${clock(phase.from)}</span>
        <span dir="auto">${phaseText(phase)}${phase.text ? `: ${phase.text}` : ""}</span></li>`)}</ol></details>`;
}

const PROCESSES = (devices) => [
  {title: "Pid", cell: (row) => row.pid, cls: "right"},
  {title: "User", cell: (row) => row.user},
  {title: "GPU", cell: (row) => deviceName(row.device, devices)},
  {title: "Used", cell: (row) => size(row.used_bytes), cls: "right"},
  {title: "Container", cell: (row) => row.container, cls: "wide"},
  {title: "Command", cell: (row) => row.command},
];

function Holders({queue, devices}) {
  if (!queue?.holders?.length) return null;
  const where = queue.device ? ` of ${deviceName(queue.device, devices)}` : "";
  return html`<h3>Who holds the memory${where}</h3><ul>${queue.holders.map((one) => html`<li key=${one.what}>
    ${one.lease && html`<${LeaseLink} id=${one.lease} />`}
    <span dir="auto">${one.lease ? one.what.replace(one.lease, "") : one.what}</span>:${" "}
    ${one.lease ? sizeAtMost(one.bytes) : size(one.bytes)}</li>`)}</ul>`;
}

function Output({name}) {
  const word = encodeURIComponent(name);
  return html`<h3>Output of <a href=${`#/program/${word}`}>${name}</a></h3>
    <${Log} label=${`Output of ${name}`} path=${`v1/programs/${word}/log?lines=100&follow=true`} />`;
}

function factsOf(lease, devices) {
  return [["User", lease.user], ["Tag", lease.tag], ["Tenant", lease.tenant === lease.user ? "" : lease.tenant],
    ["Tier", lease.tier], ["Priority", lease.priority || ""], ["GPU", deviceNames(lease.devices, devices)],
    ["VRAM", sizeAtMost(lease.vram_bytes)], ["Used", size(lease.used_bytes)], ["Peak", size(lease.peak_used_bytes)],
    ["Parked", lease.parked_bytes > 0 ? size(lease.parked_bytes) : ""],
    ["Ceiling", lease.memory_bytes === null ? "" : sizeAtMost(lease.memory_bytes)], ["Pausable", lease.pausable],
    ["Activity", lease.activity?.state],
    ["Owner", `${lease.owner.kind}${lease.owner.pid ? `, pid ${lease.owner.pid}` : ""}`],
    ["Session", lease.session], ["Command", lease.command]];
}

export function Lease({id}) {
  const store = useStore("leases", "names");
  const {names: devices} = store;
  const now = useNow();
  const mine = (data) => data.lease === id || data.leases?.some((one) => one.lease === id);
  // The place and the holders of a lease that waits change with others.
  const known = () => store.leases.get(id);
  const about = (data) => data.lease === id || !known()?.granted_at || known().state === "paused";
  const why = useTable(`v1/leases/${encodeURIComponent(id)}/why`, ["lease", "free"], about);
  const processes = useTable(`v1/processes?lease=${encodeURIComponent(id)}`, ["lease", "reading"], mine);
  const programs = useTable("v1/programs", ["lease"], (data) => data.lease === id);
  if (!why.data) return html`<h2 dir="auto">${id}</h2><${Instead} table=${why} />`;
  // The newest of both: an event changes the lease of the store at once.
  const {reasons, helps} = why.data;
  const newer = known();
  const newest = newer && newer.generation >= why.data.lease.generation ? newer : why.data.lease;
  const lease = {...newest, queue: why.data.queue ?? newest.queue};
  const program = programs.data?.programs.find((one) => one.lease === id);
  const rows = processes.data?.processes ?? [];
  return html`
    <h2 dir="auto"><span>${id}</span> <${Names} lease=${lease} />${" "}
      <${State} is=${lease.state} more=${lease.stopping ? "stopping" : ""} /></h2>
    <p><${Acts} acts=${leaseActs(lease)} /></p>
    <section aria-label="Why"><h3>Why</h3>
      ${whySentences(lease, devices, now, why.asOf).map((line) => html`<p key=${line} dir="auto">${line}</p>`)}
      <${Holders} queue=${lease.queue} devices=${devices} />
      ${helps.length > 0 && html`<h3>What would help</h3>
        <ul>${helps.map((line) => html`<li key=${line} dir="auto"><${Text} text=${line} /></li>`)}</ul>`}
    </section>
    <h3>Time line</h3><${TimeLine} lease=${lease} reasons=${reasons} now=${now} />
    <h3>What happened, oldest first</h3>
    <ol class="steps">${reasons.map((one) => html`<li key=${one.at + one.kind}>
      <span class="dim" title=${moment(one.at)}>${clock(one.at)}</span>
      <span dir="auto">${one.text.startsWith(one.code) ? "" : `${one.code}: `}${one.text}</span></li>`)}</ol>
    <h3>Facts</h3><${Facts} facts=${factsOf(lease, devices)} />
    <h3>Processes</h3>
    ${rows.length
    ? html`<${Table} label="Processes" columns=${PROCESSES(devices)} rows=${rows}
        rowKey=${(row) => `${row.pid} ${row.device}`} />`
    : html`<p class="dim">None holds memory of a device.</p>`}
    ${program && html`<${Output} name=${programName(program, store.status.caller)} />`}
    <${CommandLine} line=${command("sublet", "why", id)} />`;
}
