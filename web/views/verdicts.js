// SPDX-License-Identifier: Apache-2.0
// Verdicts: processes that hold GPU memory without a lease, and the rules for them.
import {verdictActs} from "../acts.js";
import {Acts} from "../dialog.js";
import {Instead, State, Table} from "../parts.js";
import {useTable} from "../store.js";
import {html} from "../vendor/preact.js";
import {moment, since, size} from "../words.js";

const TYPES = ["verdict", "free"];

const VERDICTS = [
  {title: "Pid", cell: (row) => row.pid, cls: "right"},
  {title: "Name", cell: (row) => html`<span class="name" dir="auto">${row.name}</span>`},
  {title: "User", cell: (row) => row.user},
  {title: "Used", cell: (row) => size(row.used_bytes), cls: "right"},
  {title: "Age", live: (row, now) => since(row.opened_at, now), cls: "right wide"},
  {title: "Policy", cell: (row) => row.policy, cls: "wide"},
  {title: "Stage", cell: (row) => html`<${State} is=${row.stage === "closed" ? row.outcome : row.stage} />`},
  {title: "Unit or container", cell: (row) => row.unit ?? row.container, cls: "wide"},
  {title: "Command", cls: "wide",
    cell: (row) => html`<span class="name" dir="auto" title=${row.command}>${row.command}</span>`},
  {title: "Acts", cell: (row) => html`<${Acts} small acts=${verdictActs(row)} />`},
];
const APPROVALS = [
  {title: "Id", cell: (row) => row.id, cls: "right"},
  {title: "Subject", cell: (row) => html`<span dir="auto">${row.subject}</span>`},
  {title: "Until", cell: (row) => (row.until ? moment(row.until) : "-")},
  {title: "By", cell: (row) => row.by, cls: "wide"},
  {title: "Reason", cell: (row) => row.reason, cls: "wide"},
];
const POLICIES = [
  {title: "Id", cell: (row) => row.id, cls: "right"},
  {title: "Subject", cell: (row) => html`<span dir="auto">${row.subject}</span>`},
  {title: "Policy", cell: (row) => row.policy},
  {title: "By", cell: (row) => row.by, cls: "wide"},
];

function Rules({rules}) {
  return html`<h3>Rules</h3><p>The default policy is ${rules.policy}.</p>
    ${rules.policies.length > 0 && html`
      <${Table} label="Policies" columns=${POLICIES} rows=${rules.policies} rowKey=${(row) => row.id} />`}
    ${rules.approvals.length > 0 && html`<h3>Approvals</h3>
      <${Table} label="Approvals" columns=${APPROVALS} rows=${rules.approvals} rowKey=${(row) => row.id} />`}`;
}

export function Verdicts() {
  const table = useTable("v1/verdicts", TYPES);
  const rules = useTable("v1/enforcer", TYPES);
  return html`<h2>Verdicts</h2>
    ${table.data?.verdicts.length
    ? html`<${Table} label="Verdicts" columns=${VERDICTS} rows=${table.data.verdicts} rowKey=${(row) => row.id}
        note=${(row) => row.summary} />`
    : html`<${Instead} table=${table} empty="No process holds GPU memory without a lease or an approval." />`}
    ${rules.data && html`<${Rules} rules=${rules.data} />`}`;
}
