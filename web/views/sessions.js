// SPDX-License-Identifier: Apache-2.0
// Sessions: leases that live as long as they are used.
import {Instead, LeaseLink, State, Table} from "../parts.js";
import {useStore, useTable} from "../store.js";
import {html, useMemo} from "../vendor/preact.js";
import {compact, deviceNames, sizeAtMost, time, until} from "../words.js";

function activity(session, now) {
  const {state, since} = session.activity ?? {};
  return state === "idle" && since ? `idle ${compact(now - time(since))}` : state;
}

const columnsOf = (devices) => [
  {title: "Session", cell: (row) => html`${row.id}${" "}
    <span class="tag" dir="auto">${row.tag === row.id ? "" : row.tag}</span>`},
  {title: "User", cell: (row) => row.user, cls: "wide"},
  {title: "State", cell: (row) => html`<${State} is=${row.state} />`},
  {title: "Activity", live: activity, cls: "wide"},
  {title: "VRAM", cell: (row) => sizeAtMost(row.vram_bytes), cls: "right"},
  {title: "GPU", cell: (row) => deviceNames(row.devices, devices), cls: "wide"},
  {title: "Tier", cell: (row) => row.tier, cls: "wide"},
  {title: "Lease", cell: (row) => row.lease && html`<${LeaseLink} id=${row.lease} />`},
  {title: "Left", live: (row, now) => until(row.kept_until ?? row.expires_at, now), cls: "right"},
  {title: "Command", cell: (row) => row.command, cls: "wide"},
];

export function Sessions() {
  const {names} = useStore("names");
  const table = useTable("v1/sessions", ["session", "lease"]);
  const columns = useMemo(() => columnsOf(names), [names]);
  if (!table.data?.sessions.length)
    return html`<h2>Sessions</h2><${Instead} table=${table}
      empty=${html`No session is open. <code>sublet session open</code> opens one.`} />`;
  return html`<h2>Sessions</h2>
    <${Table} label="Sessions" columns=${columns} rows=${table.data.sessions} rowKey=${(row) => row.id}
      note=${(row) => row.why} />`;
}
