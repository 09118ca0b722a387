// SPDX-License-Identifier: Apache-2.0
// Supervised programs: all of them, and one with its output.
import {programActs} from "../acts.js";
import {Acts} from "../dialog.js";
import {Log} from "../log.js";
import {CommandLine, Facts, Instead, LeaseLink, Live, State, Table} from "../parts.js";
import {startActs} from "../start.js";
import {useStore, useTable} from "../store.js";
import {html, useMemo} from "../vendor/preact.js";
import {coming, command, moment, programName, since, size, sizeAtMost, time} from "../words.js";

const TYPES = ["lease", "reading"];
const about = (data) => data.type === "lease" || data.leases.length > 0;

function StateOf({program}) {
  const lease = program.lease_state === "active" ? "" : program.lease_state;
  const more = [lease, program.stopping ? "stopping" : ""].filter(Boolean).join(", ");
  return html`<${State} is=${program.state} more=${program.state === "running" ? more : ""} />`;
}

function whyOf(program, now) {
  if (program.warning) return program.warning;
  const next = program.next_start_at ? `next start ${coming(time(program.next_start_at) - now)}` : "";
  return [program.why, next].filter(Boolean).join("; ");
}

function columnsOf(caller) {
  const address = (row) => `#/program/${encodeURIComponent(programName(row, caller))}`;
  return [
    {title: "Tag", cell: (row) => html`<a class="name" dir="auto" href=${address(row)}>${row.tag}</a>`},
    {title: "User", cell: (row) => row.user, cls: "wide"},
    {title: "State", cell: (row) => html`<${StateOf} program=${row} />`},
    {title: "Since", live: (row, now) => since(row.since, now), cls: "right wide"},
    {title: "Restarts", cell: (row) => row.restarts, cls: "right wide"},
    {title: "Used", cell: (row) => size(row.used_bytes), cls: "right"},
    {title: "VRAM", cell: (row) => sizeAtMost(row.vram_bytes), cls: "right"},
    {title: "Ceiling", cell: (row) => sizeAtMost(row.memory_bytes), cls: "right wide"},
    {title: "Lease", cell: (row) => row.lease && html`<${LeaseLink} id=${row.lease} />`, cls: "wide"},
    {title: "Acts", cell: (row) => html`<${Acts} small acts=${programActs(row, caller)} />`, cls: "wide"},
  ];
}

export function Programs() {
  const {status} = useStore("names");
  const columns = useMemo(() => columnsOf(status.caller), []);
  const table = useTable("v1/programs", TYPES, about);
  return html`<h2>Programs</h2><p><${Acts} acts=${startActs()} /></p>
    ${table.data?.programs.length
    ? html`<${Table} label="Programs" columns=${columns} rows=${table.data.programs} rowKey=${(row) => row.number}
        note=${whyOf} />`
    : html`<${Instead} table=${table} empty=${html`No program is supervised.${" "}
        <code>sublet run --detach --tag NAME --vram 2GiB -- PROGRAM</code> starts one.`} />`}`;
}

export function Program({id}) {
  const {status} = useStore("names");
  const path = `v1/programs/${encodeURIComponent(id)}`;
  const table = useTable(path, TYPES, about);
  if (!table.data) return html`<h2 dir="auto">${id}</h2><${Instead} table=${table} />`;
  const program = table.data;
  return html`<h2 dir="auto"><span class="name">${program.tag}</span> <${StateOf} program=${program} /></h2>
    <p><${Acts} acts=${programActs(program, status.caller)} /></p>
    <p><${Live} of=${(now) => whyOf(program, now)} /></p>
    <${Facts} facts=${[["User", program.user], ["Lease", program.lease && html`<${LeaseLink} id=${program.lease} />`],
    ["VRAM", sizeAtMost(program.vram_bytes)], ["Used", size(program.used_bytes)],
    ["Ceiling", program.memory_bytes === null ? "none" : sizeAtMost(program.memory_bytes)],
    ["Soft limit", program.soft_bytes === null ? "none" : sizeAtMost(program.soft_bytes)],
    ["Restart", program.restart], ["Restarts", program.restarts], ["Tier", program.tier], ["Pid", program.pid],
    ["Exit status", program.exit_status], ["Since", moment(program.since)], ["Command", program.command],
    ["Log file", program.log_path]]} />
    <h3>Output</h3><${Log} label=${`Output of ${program.tag}`} path=${`${path}/log?lines=200&follow=true`} />
    <${CommandLine} line=${command("sublet", "status", id)} />`;
}
