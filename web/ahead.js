// SPDX-License-Identifier: Apache-2.0
// Looks ahead: the consequences of an act, before it is confirmed.
import {Table, Text} from "./parts.js";
import {html} from "./vendor/preact.js";
import {about, dryRunSentences, previewSentences, size} from "./words.js";

const VICTIMS = [
  {title: "Lease", cell: (row) => row.lease},
  {title: "Name", cell: (row) => row.consumer},
  {title: "User", cell: (row) => row.user, cls: "wide"},
  {title: "Tier", cell: (row) => row.tier, cls: "wide"},
  {title: "How", cell: (row) => (row.method === "end" ? "ended" : row.method)},
  {title: "Frees", cell: (row) => size(row.freed_bytes), cls: "right"},
  {title: "Pause", cell: (row) => (row.method === "end" ? "-" : about(row.pause_ms)), cls: "right"},
  {title: "Back", cell: (row) => (row.method === "end" ? "-" : about(row.resume_ms)), cls: "right"},
];

// The consequences of a preemption.
export function Preview({data: preview, devices}) {
  return html`<div class="preview">
    ${preview.victims.length > 0 && html`
      <${Table} label="Victims" columns=${VICTIMS} rows=${preview.victims} rowKey=${(row) => row.lease} />`}
    ${previewSentences(preview, devices).map((line) => html`<p key=${line}><${Text} text=${line} /></p>`)}
  </div>`;
}

// The processes that a policy would end.
export function Ended({data: list}) {
  const now = list.would_end.filter((one) => one.would_end_now);
  if (now.length === 0) return html`<p>No process of the subject would be ended now.</p>`;
  const names = now.map((one) => `pid ${one.pid} (${one.name}, ${size(one.used_bytes)})`);
  return html`<p>It would end: ${names.join(", ")}.</p>`;
}

// The place of a new lease, and its start.
export function Outlook({data, devices}) {
  const victims = data.would === "start" || !data.preemption.found ? [] : data.preemption.victims;
  return html`<div class="preview">
    ${dryRunSentences(data, devices).map((line) => html`<p key=${line}><${Text} text=${line} /></p>`)}
    ${victims.length > 0 && html`<${Preview} data=${data.preemption} devices=${devices} />`}
  </div>`;
}
