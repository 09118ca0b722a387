// SPDX-License-Identifier: Apache-2.0
// Queue: what waits, in order, with the expected start of each and its basis.
import {leaseActs} from "../acts.js";
import {Acts} from "../dialog.js";
import {Instead, LeaseLink, Names, Table} from "../parts.js";
import {useTable} from "../store.js";
import {html, useMemo} from "../vendor/preact.js";
import {compact, holders, size, sizeAtMost, start, time} from "../words.js";

const wanted = ({vram_bytes: bytes, resize}) =>
  sizeAtMost(bytes) + (resize ? `→${sizeAtMost(resize.vram_bytes)}` : "");
const waited = (lease, now) => compact(now - time((lease.resize ?? lease.pause)?.since ?? lease.created_at));

// `asOf`: when the daemon told the estimates.
function columnsOf(asOf) {
  return [
    {title: "Place", cell: (lease) => lease.queue?.place ?? "-", cls: "right"},
    {title: "Lease", cell: (lease) => html`<${LeaseLink} id=${lease.id} /> <${Names} lease=${lease} />`},
    {title: "User", cell: (lease) => lease.user, cls: "wide"},
    {title: "Tenant", cell: (lease) => lease.tenant, cls: "wide"},
    {title: "Tier", cell: (lease) => lease.tier, cls: "wide"},
    {title: "VRAM", cell: wanted, cls: "right"},
    {title: "Short", cell: (lease) => size(lease.queue?.short_bytes), cls: "right"},
    {title: "Waited", live: waited, cls: "right wide"},
    {title: "Start", live: (lease, now) => start(lease, now, asOf), cls: "right"},
    {title: "Basis", cell: (lease) => lease.queue?.basis, cls: "wide"},
    {title: "Held by", cell: (lease) => holders(lease.queue), cls: "wide"},
    {title: "Acts", cell: (lease) => html`<${Acts} small acts=${leaseActs(lease)} />`, cls: "wide"},
  ];
}

export function Queue() {
  const table = useTable("v1/queue", ["lease", "device", "free"]);
  const columns = useMemo(() => columnsOf(table.asOf), [table.asOf]);
  if (!table.data?.queue.length) return html`<h2>Queue</h2><${Instead} table=${table} empty="No lease waits." />`;
  return html`<h2>Queue</h2>
    ${table.data.next && html`<p class="dim">The first ${table.data.queue.length} leases are shown.</p>`}
    <${Table} label="Queue" columns=${columns} rows=${table.data.queue} rowKey=${(lease) => lease.id} />
    <p class="dim">The estimate counts on the run times that Sublet remembers.
      <code>sublet why LEASE</code> tells more.</p>`;
}
