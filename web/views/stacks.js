// SPDX-License-Identifier: Apache-2.0
// Stacks: Docker Compose projects that are started for leases.
import {stackActs} from "../acts.js";
import {Acts} from "../dialog.js";
import {Instead, LeaseLink, State, Table} from "../parts.js";
import {useStore, useTable} from "../store.js";
import {html, useMemo} from "../vendor/preact.js";
import {place, sizeAtMost, until} from "../words.js";

const firstLine = (text) => (text ?? "").split("\n")[0];

function sizeOf(stack) {
  const granted = stack.granted_bytes !== null && stack.lease_state !== "ended";
  const each = sizeAtMost(granted ? stack.granted_bytes : stack.vram_bytes);
  return (stack.devices ?? 1) > 1 ? `${stack.devices} x ${each}` : each;
}

function whyOf(stack, {leases, names}, now) {
  const lease = stack.state === "queued" && leases.get(stack.lease);
  const why = lease ? place(lease, names, now, lease.asOf) : firstLine(stack.why);
  return firstLine(stack.error?.detail) || firstLine(stack.warning) || why;
}

const isUsual = (stack) => !stack.lease_state || ["active", "ended", stack.state].includes(stack.lease_state);

const columnsOf = (caller) => [
  {title: "Name", cell: (row) => html`<span class="name" dir="auto">${row.name}</span>`},
  {title: "State", cell: (row) => html`<${State} is=${row.state} more=${isUsual(row) ? "" : row.lease_state} />`},
  {title: "User", cell: (row) => row.user, cls: "wide"},
  {title: "VRAM", cell: sizeOf, cls: "right"},
  {title: "On", cell: (row) => row.on.join(", "), cls: "wide"},
  {title: "Lease", cell: (row) => row.lease && html`<${LeaseLink} id=${row.lease} />`, cls: "wide"},
  {title: "Left", live: (row, now) => until(row.expires_at, now), cls: "right"},
  {title: "Acts", cell: (row) => html`<${Acts} small acts=${stackActs(row, caller)} />`},
];

export function Stacks() {
  const store = useStore("leases", "names");
  const table = useTable("v1/stacks", ["stack", "lease"]);
  const columns = useMemo(() => columnsOf(store.status.caller), []);
  const problem = table.data?.engine?.problem;
  if (!table.data?.stacks.length)
    return html`<h2>Stacks</h2><${Instead} table=${table}
      empty=${problem || "No stack was found: see stacks.dir and sublet stack adopt."} />`;
  return html`<h2>Stacks</h2>${problem && html`<p class="warning">${problem}</p>`}
    <${Table} label="Stacks" columns=${columns} rows=${table.data.stacks} rowKey=${(row) => row.name}
      note=${(row, now) => whyOf(row, store, now)} />`;
}
