// SPDX-License-Identifier: Apache-2.0
// Park ledger: host memory that parked programs take, and its limits.
import {Facts, Instead, LeaseLink, Table} from "../parts.js";
import {useTable} from "../store.js";
import {html} from "../vendor/preact.js";
import {size, sizeAtMost} from "../words.js";

const COLUMNS = [
  {title: "Lease", cell: (row) => html`<${LeaseLink} id=${row.lease} />${" "}
    <span class="name" dir="auto">${row.consumer}</span>`},
  {title: "User", cell: (row) => row.user},
  {title: "Bytes", cell: (row) => size(row.bytes), cls: "right"},
  {title: "", cell: (row) => (row.settled ? "parked" : "promised, not measured yet")},
  {title: "Swapped out", cell: (row) => (row.swapped_bytes > 0 ? size(row.swapped_bytes) : "-"), cls: "right"},
];

export function Ledger() {
  const table = useTable("v1/ledger", ["lease"]);
  if (!table.data) return html`<h2>Park ledger</h2><${Instead} table=${table} />`;
  const ledger = table.data;
  const pressed = ledger.pressure_ratio !== null && ledger.pressure_ratio > ledger.max_pressure_ratio;
  return html`<h2>Park ledger</h2>
    <${Facts} facts=${[
    ["Parked in host memory", `${size(ledger.parked_bytes)} of ${size(ledger.limit_bytes)}`],
    ["More would fit", sizeAtMost(ledger.free_bytes)],
    ["For one user", size(ledger.share_bytes)],
    ["Until ledger.limit", sizeAtMost(Math.max(0, ledger.limit_bytes - ledger.parked_bytes))],
    ["Available on the machine", sizeAtMost(ledger.host_bytes)],
    ["In the control groups", ledger.cgroup_bytes === null ? "no limit" : sizeAtMost(ledger.cgroup_bytes)],
  ]} />
    ${pressed && html`<p class="warning">Host memory is short: all processes waited for it for
      ${Math.round(ledger.pressure_ratio * 100)} % of the last 10 s. No lease is paused until that passes.</p>`}
    ${ledger.entries.length === 0 ? html`<p class="dim">Nothing is parked.</p>`
    : html`<${Table} label="Parked leases" columns=${COLUMNS} rows=${ledger.entries} rowKey=${(row) => row.lease} />`}`;
}
