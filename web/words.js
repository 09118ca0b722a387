// SPDX-License-Identifier: Apache-2.0
// Numbers and sentences, in the words of the command line. Pure functions. `now` is the time of the daemon, in ms.

const UNITS = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];

// "6.0 GiB", "595 MiB"; "-" for a missing number.
export function size(bytes, round = Math.round) {
  if (bytes === null || bytes === undefined) return "-";
  const sign = bytes < 0 ? "-" : "";
  const count = Math.abs(bytes);
  for (const [name, unit] of UNITS) {
    if (count < unit) continue;
    const tenths = round((10 * count) / unit);
    return `${sign}${tenths < 1000 ? (tenths / 10).toFixed(1) : round(count / unit)} ${name}`;
  }
  return `${bytes} B`;
}

export const sizeAtMost = (bytes) => size(bytes, Math.floor);

const pair = (a, unitA, b, unitB) => (b === 0 ? `${a} ${unitA}` : `${a} ${unitA} ${b} ${unitB}`);

// "2 min 5 s".
export function duration(ms) {
  if (ms < 0) return `-${duration(-ms)}`;
  if (ms < 1000) return `${Math.floor(ms)} ms`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return pair(Math.floor(seconds / 60), "min", seconds % 60, "s");
  if (seconds < 86400) return pair(Math.floor(seconds / 3600), "h", Math.floor((seconds % 3600) / 60), "min");
  return pair(Math.floor(seconds / 86400), "d", Math.floor((seconds % 86400) / 3600), "h");
}

// "45s", "12m", "3h", "9d": one unit, rounded down.
export function compact(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

// "850ms", "2.5s", "3m".
export function about(ms) {
  if (ms < 1000) return `${Math.floor(ms)}ms`;
  return ms >= 60000 ? compact(ms) : `${(ms / 1000).toFixed(1)}s`;
}

export const coming = (ms) => (ms < 1000 ? "at once" : `in about ${duration(ms)}`);

export const time = (text) => (text ? Date.parse(text) : null);
export const since = (text, now) => (text ? compact(now - time(text)) : "-");
export const until = (text, now) => (text ? compact(time(text) - now) : "-");
export const ago = (text, now) => (text ? `${duration(Math.max(0, now - time(text)))} ago` : "at an unknown time");

// A moment in the zone of the reader. Moments are the daemon's, so a wrong clock of the browser does not matter.
const TIME = {hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23"};
const CLOCK = new Intl.DateTimeFormat([], TIME);
const MOMENT = new Intl.DateTimeFormat([], {year: "numeric", month: "numeric", day: "numeric", ...TIME});
export const clock = (text) => CLOCK.format(new Date(text));
export const moment = (text) => MOMENT.format(new Date(text));

// "gpu0", or the begin of the UUID of a device that is not known.
export function deviceName(uuid, devices) {
  const device = devices.find((one) => one.uuid === uuid);
  return device ? device.id : uuid.slice(0, 12);
}

export const deviceNames = (uuids, devices) => uuids.map((uuid) => deviceName(uuid, devices)).join(",");

// As an admin names the program of another user.
export const programName = ({tag, user, uid}, caller) => (uid === caller.uid ? tag : `${user}/${tag}`);

const TOKEN = /^[A-Za-z0-9_@%+=:,./-]+$/;

// A word as a shell takes it.
export const quoted = (word) => (TOKEN.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
export const command = (...words) => words.filter((word) => word !== "").map(quoted).join(" ");

// --- leases ---

export const nameOf = (lease) => lease.tag || lease.consumer;

export function holders(queue) {
  const list = queue?.holders ?? [];
  const names = list.slice(0, 3).map((one) =>
    `${one.what || one.lease} ${one.lease ? sizeAtMost(one.bytes) : size(one.bytes)}`);
  return names.join(", ") + (list.length > 3 ? ` and ${list.length - 3} more` : "");
}

function blocked(lease, devices) {
  const list = lease.blocked?.unleased_processes ?? [];
  if (!lease.blocked) return "";
  if (list.length === 0) return `${lease.blocked.code}: its device is gone`;
  const one = (process) => `${process.pid ? `pid ${process.pid}${process.program ? ` (${process.program})` : ""}`
    : "an unlisted process"} holds ${size(process.bytes)} on ${deviceName(process.device, devices)}`;
  return `${lease.blocked.code}: ${list.map(one).join(", ")}`;
}

// "place 1, 1.3 GiB short on gpu0; starts in about 3 s". `asOf`: when the daemon said so.
export function place(lease, devices, now, asOf = now) {
  const queue = lease.queue;
  if (!queue) return "";
  if (queue.held_back) return `held back, and keeps place ${queue.place}`;
  let text = `place ${queue.place}`;
  if (!queue.device && queue.basis) return `${text}; ${queue.basis}`;
  if (queue.short_bytes > 0)
    text += `, ${size(queue.short_bytes)} short${queue.device ? ` on ${deviceName(queue.device, devices)}` : ""}`;
  const returns = Boolean(lease.pause);
  if (queue.eta_seconds === null) return text + (returns ? "; resume time unknown" : "; start unknown");
  const left = Math.max(0, queue.eta_seconds * 1000 - (now - asOf));
  return `${text}${returns ? "; resumes " : "; starts "}${coming(left)}`;
}

export function progress(lease) {
  const pause = lease.pause;
  const far = pause?.progress;
  if (!far) return pause?.stuck ? "stuck: the driver does not answer" : "";
  if (far.move === "settle")
    return `${size(far.total_bytes)} reported as freed, ${size(lease.used_bytes)} still measured`;
  const done = far.move === "resume" ? "restored" : pause.method === "cooperative" ? "freed" : "parked";
  const text = `${size(far.moved_bytes)} of ${size(far.total_bytes)} ${done}`;
  if (!far.under_way && !far.late)
    return text + (pause.begun ? ", waiting until its program is at rest" : ", its program is not touched yet");
  if (far.late) return text + (pause.stuck ? ", stuck: the driver does not answer" : ", later than predicted");
  const left = far.left_ms > 0 ? about(far.left_ms) : "";
  if (!far.measured) return text + (left ? `, about ${left} expected` : ", expected any moment");
  return `${text}, ${size(far.bytes_per_second)}/s, ${left ? `about ${left} left` : "almost done"}`;
}

function problem(lease) {
  const text = lease.pause?.problem;
  if (!text) return "";
  if (lease.state === "pausing") return `cannot be verified: ${text}`;
  return lease.state === "resuming" ? `is not running again yet: ${text}; the daemon retries` : "";
}

function ofPause(lease, devices, now, asOf) {
  const {pause, state} = lease;
  const stuck = blocked(lease, devices);
  const where = stuck ? `${stuck}; ${place(lease, devices, now, asOf)}` : place(lease, devices, now, asOf);
  const cause = state !== "poisoned" && pause.preemptor ? `for ${pause.preemptor}` : pause.reason;
  if (state === "paused" || state === "poisoned") {
    const parked = `${size(lease.parked_bytes)} parked${cause.startsWith("for ") ? " " : ": "}${cause}`;
    if (state === "poisoned") return lease.parked_bytes > 0 ? parked : cause;
    if (pause.resume_requested) return `${parked}; ${where}`;
    return stuck ? `${parked}; ${stuck}` : parked;
  }
  if (stuck || problem(lease)) return stuck || problem(lease);
  const far = progress(lease);
  if (!far) return cause;
  return state === "resuming" ? far : `${far}: ${cause}`;
}

// Why a lease is as it is, in a few words, as in the column REASON of `sublet ps`.
export function reason(lease, devices, now, asOf = now) {
  const {state} = lease;
  if (state === "ended")
    return lease.end_reason + (lease.exit_status === null ? "" : `, exit status ${lease.exit_status}`);
  const alone = lease.owner?.keeper_killed;
  if (lease.stopping) return alone ? "stopping: its keeper was killed" : "stopping";
  if (lease.held_back_at)
    return `held back at place ${lease.queue?.place ?? 0} for ${since(lease.held_back_at, now)}`;
  if (state === "queued") {
    const stuck = blocked(lease, devices);
    const where = (stuck ? `${stuck}; ` : "") + place(lease, devices, now, asOf);
    return lease.lapsed_offers > 0 ? `its offer was not claimed; ${where}` : where;
  }
  if (state === "offered") return `to be claimed within ${until(lease.offer_ends_at, now)}`;
  if (lease.pause) return ofPause(lease, devices, now, asOf);
  if (lease.resize) return `waits for ${sizeAtMost(lease.resize.vram_bytes)}, ${place(lease, devices, now, asOf)}`;
  if (lease.stopped_since)
    return `stopped for ${duration(Math.max(0, now - time(lease.stopped_since)))} by a ${lease.stopped_by}`;
  if (lease.over_bytes > 0) return `uses ${size(lease.over_bytes)} more than it leased`;
  const strays = (lease.stray ?? []).map((one) => `${size(one.bytes)} on ${deviceName(one.device, devices)}`);
  if (strays.length > 0) return `uses ${strays.join(" and ")}, which it has not leased`;
  if (alone) return "its keeper was killed; it runs on";
  if (lease.idle && lease.activity?.state === "idle")
    return `has done nothing for ${duration(Math.max(0, now - time(lease.activity.since)))}`;
  if (lease.next_slice_seconds !== null && lease.next_slice_seconds !== undefined)
    return `next time slice ${coming(Math.max(0, lease.next_slice_seconds * 1000 - (now - asOf)))}`;
  if (lease.session && lease.expires_at) return `${lease.session} renews it by activity`;
  if (lease.expires_at) return `expires in ${until(lease.expires_at, now)}`;
  return "";
}

// The expected start of a waiting lease, as in the column START of `sublet queue`.
export function start(lease, now, asOf) {
  const queue = lease.queue;
  if (!queue) return "-";
  if (queue.held_back) return "held back";
  if (queue.eta_seconds === null) return "unknown";
  return `~${compact(Math.max(0, queue.eta_seconds * 1000 - (now - asOf)))}`;
}

function heldTime(lease, now) {
  if (!lease.granted_at) return "an unknown time";
  const paused = lease.paused_seconds * 1000;
  const held = duration(Math.max(0, now - time(lease.granted_at) - paused));
  return paused > 0 ? `${held}, plus ${duration(paused)} paused` : held;
}

function whereOf(lease, devices) {
  const names = lease.devices.map((uuid) => deviceName(uuid, devices));
  return (names.length > 1 ? "each of " : "") + names.join(" and ");
}

function waits(lease, queue, devices, now, asOf) {
  const grows = lease.resize;
  const what = grows ? `to grow to ${sizeAtMost(grows.vram_bytes)}` : `for ${sizeAtMost(lease.vram_bytes)}`;
  let text = `It waits ${what} at place ${queue.place}`;
  if (queue.short_bytes > 0)
    text += `; ${size(queue.short_bytes)} are missing` +
      (queue.device ? ` on ${deviceName(queue.device, devices)}` : "");
  text += ". ";
  if (grows || lease.state === "queued")
    text += `It was requested ${ago(grows ? grows.since : lease.created_at, now)}. `;
  const by = holders(queue);
  if (by) text += `The memory is held by ${by}. `;
  const verb = grows ? "have them" : lease.state === "queued" ? "start" : "resume";
  const basis = queue.basis ? ` (${queue.basis})` : "";
  if (queue.eta_seconds === null) return `${text}When it will ${verb} is unknown${basis}.`;
  return `${text}It should ${verb} ${coming(Math.max(0, queue.eta_seconds * 1000 - (now - asOf)))}${basis}.`;
}

// The paragraph of `sublet why`.
export function whySentences(lease, devices, now, asOf) {
  const {state, queue} = lease;
  const lines = [];
  if (state === "ended") {
    lines.push(`It ended ${ago(lease.ended_at, now)} (${lease.end_reason}).`);
    if (lease.exit_status !== null) lines.push(`Its program's exit status was ${lease.exit_status}.`);
    if (lease.settling) lines.push("Its memory is still charged.");
    return lines;
  }
  if (state === "offered") {
    return [`${sizeAtMost(lease.vram_bytes)} on ${whereOf(lease, devices)} are reserved for it; its owner must ` +
      `claim them within ${until(lease.offer_ends_at, now)}.`];
  }
  if (lease.pause) {
    if (state === "paused")
      lines.push(`${size(lease.parked_bytes)} of its memory are parked in host memory by the method ` +
        `${lease.pause.method}.`);
    const wrong = problem(lease);
    const far = progress(lease);
    if (wrong) lines.push(`It ${wrong}.`);
    else if (far) lines.push(`${far}.`);
    lines.push(`Its pause began ${ago(lease.pause.since, now)}: ${lease.pause.reason}.`);
  } else if (state === "active") {
    lines.push(`It has held ${sizeAtMost(lease.vram_bytes)} on ${whereOf(lease, devices)} for ` +
      `${heldTime(lease, now)}, and uses ${size(lease.used_bytes)}.`);
    const more = reason({...lease, resize: null}, devices, now, asOf);
    if (more) lines.push(`Now: ${more}.`);
  }
  if (lease.held_back_at)
    lines.push(`It was held back ${ago(lease.held_back_at, now)}, and keeps place ${queue?.place ?? 0}.`);
  else if (queue) lines.push(waits(lease, queue, devices, now, asOf));
  if (lease.blocked?.text) lines.push(`${lease.blocked.text}.`);
  return lines;
}

function victimLines({ineligible, hint}) {
  const lines = ineligible.map((one) => `${one.lease} is no victim: ${one.why}`);
  return hint ? [...lines, hint] : lines;
}

// The sentences below the table of a preview.
export function previewSentences(preview, devices) {
  const where = preview.devices.length ? ` on ${deviceNames(preview.devices, devices)}` : "";
  const lines = [];
  if (!preview.found) {
    lines.push(`Memory cannot be freed${where}: ${preview.why_not}` +
      `${preview.short_bytes > 0 ? `; ${size(preview.short_bytes)} would be missing` : ""}.`);
    return [...lines, ...victimLines(preview)];
  }
  const ends = preview.victims.filter((one) => one.method === "end");
  if (preview.victims.length === 0)
    return [preview.in_progress ? "Victims are being paused already: no other lease has to be."
      : "No lease has to be paused: memory is free, or becomes free without a pause."];
  if (preview.wait_for) lines.push(`Not yet: ${preview.wait_for}.`);
  const there = preview.pause_ms + (preview.wait_ms ?? 0);
  const total = preview.victims.reduce((sum, one) => sum + (one.method === "end" ? 0 : one.resume_ms), there);
  if (ends.length === preview.victims.length) {
    lines.push(`The memory is free${where} once ${ends.length === 1 ? "the victim has" : "the victims have"} ended.`);
  } else {
    lines.push(`The memory is free${where} after about ${about(there)}; pauses and resumes take ${about(total)} ` +
      "in total.");
    if (ends.length) lines.push("Victims that cannot be paused are ended.");
  }
  if (preview.paused_for_basis)
    lines.push(preview.paused_for_ms === null
      ? `It is unknown how long victims stay paused: ${preview.paused_for_basis}.`
      : `Victims stay paused for about ${about(preview.paused_for_ms)}: ${preview.paused_for_basis}.`);
  return lines;
}

// The outlook for a new lease, as `sublet run --dry-run` says it.
export function dryRunSentences(answer, devices) {
  const {would, queue, preemption} = answer;
  const with_ = `with ${sizeAtMost(answer.vram_bytes)} on ${deviceNames(answer.devices, devices)}`;
  if (would === "start") return [`The lease would start at once, ${with_}.`];
  if (would === "preempt") return [`The lease would start ${with_}, once these victims are paused:`];
  const lines = [`The lease would wait: ${place({queue}, devices, 0)}.`];
  if (queue?.basis) lines.push(`The estimate: ${queue.basis}.`);
  const by = holders(queue);
  if (by) lines.push(`The memory is held by ${by}.`);
  if (!preemption.found) return [...lines, `No lease is paused: ${preemption.why_not}.`, ...victimLines(preemption)];
  if (preemption.victims.length)
    lines.push(preemption.wait_for ? "These leases will be paused, or could be:"
      : "These leases could be paused, but only on request (sublet preempt):");
  return lines;
}
