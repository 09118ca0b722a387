// SPDX-License-Identifier: Apache-2.0
// The acts on each object. An act has `name`, `title` and `text`, `line` for the command line that does the same, and
// `run()`. With a `form`, `line` and `run` are functions of the given values, and `check(given)` tells by field what is
// wrong ("": with no single field). `ahead` looks ahead: {key, ask, Show, allows}.
import * as api from "./api.js";
import {Ended, Preview} from "./ahead.js";
import {isAdmin, mayAct, mayActFor} from "./store.js";
import {command, nameOf, programName, size, sizeAtMost} from "./words.js";

const path = (...words) => words.map(encodeURIComponent).join("/");

// --- leases ---

function pauseOf(lease) {
  const waits = lease.state === "queued";
  return {
    name: waits ? "Hold back" : "Pause",
    text: waits
      ? "The lease keeps its place in the queue, and gets no memory until it is resumed."
      : `Its program stands still, and its memory (${size(lease.used_bytes)} used) is parked in host memory for ` +
        "others. It stays paused until it is resumed.",
    line: command("sublet", "pause", lease.id),
    run: () => api.post(`v1/${path("leases", lease.id, "pause")}`),
  };
}

function resumeOf(lease) {
  return {
    name: "Resume",
    text: lease.held_back_at ? "The lease waits for memory again, at its place in the queue."
      : `The lease waits in the queue for ${sizeAtMost(lease.vram_bytes)}. Its program runs again once it has them.`,
    line: command("sublet", "resume", lease.id),
    run: () => api.post(`v1/${path("leases", lease.id, "resume")}`),
  };
}

function endOf(lease) {
  const url = `v1/${path("leases", lease.id, "release")}`;
  if (lease.owner.kind !== "process") {
    return {
      name: "Release", danger: true,
      text: "The lease ends, and its memory is free for others. A program that holds VRAM under it goes on without " +
        "a lease.",
      line: command("sublet", "release", lease.id), run: () => api.post(url),
    };
  }
  const ours = lease.owner.keeper_pid !== null;
  return {
    name: "Stop", danger: true,
    text: ours
      ? `Its program gets SIGTERM, and SIGKILL after ${lease.stop_grace_seconds} s. Work that is not saved is lost.`
      : "The lease ends. Sublet did not start its program, and does not end it.",
    line: command("sublet", "stop", lease.id), run: () => api.post(url, {stop: true}),
  };
}

function preemptOf(lease) {
  const wanted = lease.resize?.vram_bytes ?? lease.vram_bytes;
  return {
    name: "Preempt",
    text: `Other leases are paused until ${lease.id} has its ${sizeAtMost(wanted)}.`,
    line: command("sublet", "preempt", lease.id),
    ahead: {key: () => lease.id, ask: () => api.post("v1/preempt", {lease: lease.id, preview: true}), Show: Preview,
      allows: (preview) => preview.found},
    run: () => api.post("v1/preempt", {lease: lease.id}),
  };
}

// The acts on a lease that its state and the rights of the caller allow.
export function leaseActs(lease) {
  if (!mayActFor(lease.uid) || lease.state === "ended" || lease.state === undefined) return [];
  const acts = [];
  const returns = lease.state === "paused" && Boolean(lease.pause?.resume_requested);
  const waits = lease.state === "queued" || lease.resize || returns;
  if (lease.state === "active" && lease.pausable !== "no" && !lease.stopping) acts.push(pauseOf(lease));
  if (lease.state === "queued" && !lease.held_back_at) acts.push(pauseOf(lease));
  if (lease.held_back_at || (lease.state === "paused" && !returns) || lease.state === "pausing")
    acts.push(resumeOf(lease));
  if (waits && !lease.held_back_at) acts.push(preemptOf(lease));
  if (!lease.stopping) acts.push(endOf(lease));
  return acts.map((act) => ({...act, title: `${act.name} ${lease.id} (${nameOf(lease)})`}));
}

// --- supervised programs ---

const ENDED = ["stopped", "exited", "failed"];
const SIZES = {"": 1, B: 1, K: 2 ** 10, M: 2 ** 20, G: 2 ** 30, T: 2 ** 40, KIB: 2 ** 10, MIB: 2 ** 20, GIB: 2 ** 30,
  TIB: 2 ** 40, KB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12};

// Bytes of "8GiB" or "8G", as the command line reads it; null for "none", undefined for what it is not.
export function parseSize(text) {
  if (text.trim() === "none") return null;
  const [, number, unit] = /^\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*$/.exec(text) ?? [];
  const factor = SIZES[(unit ?? "-").toUpperCase()];
  return number === undefined || factor === undefined ? undefined : Math.round(Number(number) * factor);
}

export const TIERS = ["critical", "interactive", "standard", "batch", "spot"];
export const RESTARTS = ["never", "on-failure", "always"];

export const notASize = (text) => `${text} is not a size: write 8GiB, for example`;

// The fields of an update that are given: {body, words, problems}.
function updateOf(given) {
  const body = {}, words = [], problems = {};
  for (const [field, flag] of [["vram_bytes", "--vram"], ["memory_bytes", "--memory"], ["soft_bytes", "--soft"]]) {
    if (!given[field]) continue;
    const bytes = parseSize(given[field]);
    if (bytes === undefined || (bytes === null && field === "vram_bytes")) problems[field] = notASize(given[field]);
    body[field] = bytes ?? 0;
    words.push(flag, given[field].replaceAll(" ", ""));
  }
  for (const [field, flag] of [["restart", "--restart"], ["tier", "--tier"]]) {
    if (!given[field]) continue;
    body[field] = given[field];
    words.push(flag, given[field]);
  }
  if (words.length === 0) problems[""] = "give at least one new value";
  return {body, words, problems};
}

function updateForm(program) {
  const limit = (bytes) => (bytes === null ? "none" : sizeAtMost(bytes));
  return [
    {field: "vram_bytes", label: "Size of the lease", hint: sizeAtMost(program.vram_bytes)},
    {field: "memory_bytes", label: "Ceiling, or none", hint: limit(program.memory_bytes)},
    {field: "soft_bytes", label: "Soft limit, or none", hint: limit(program.soft_bytes)},
    {field: "restart", label: "Restart", words: RESTARTS, hint: program.restart},
    {field: "tier", label: "Tier", words: TIERS, hint: program.tier},
  ];
}

export function programActs(program, caller) {
  if (!mayActFor(program.uid)) return [];
  const name = programName(program, caller);
  const call = (verb, body) => () => api.post(`v1/${path("programs", name, verb)}`, body);
  const simple = (verb, title, text, danger = false) => ({name: title, title: `${title} ${program.tag}`, text, danger,
    line: command("sublet", verb, name), run: call(verb, {})});
  const acts = [];
  if (ENDED.includes(program.state)) {
    acts.push(simple("start", "Start", "The program starts once its lease has its memory."));
  } else {
    acts.push(simple("restart", "Restart",
      "The program is ended (SIGTERM, then SIGKILL) and starts again. Its memory stays reserved.", true));
    acts.push(simple("stop", "Stop",
      "The program gets SIGTERM, then SIGKILL. It stays known, and is not started again before Start.", true));
  }
  acts.push({name: "Update", title: `Update ${program.tag}`, text: "The changes hold at once and for each later start.",
    form: updateForm(program), line: (given) => command("sublet", "update", name, ...updateOf(given).words),
    check: (given) => updateOf(given).problems, run: (given) => call("update", updateOf(given).body)()});
  acts.push(simple("remove", "Remove", "The program is ended and forgotten. Its tag is free afterwards.", true));
  return acts;
}

// --- stacks ---

// Waits on behalf of the reader, as `sublet stack acquire --wait` does: the offer of its memory must be claimed.
async function claimStack(name, body, first) {
  const url = `v1/${path("stacks", name, "acquire")}`;
  for (let stack = first; stack.state === "queued";) {
    try {
      stack = await api.post(url, {...body, wait_seconds: 30, since: stack.state}, {"Sublet-Lease-Token": first.token});
    } catch (refusal) {
      if (refusal.status !== 0 && refusal.status !== 503) return;  // it was released, for example
      await api.pause(1000);
    }
  }
}

async function acquireStack(name, minutes) {
  const body = {ttl_seconds: 60 * Number(minutes), queue: true};
  const stack = await api.post(`v1/${path("stacks", name, "acquire")}`, body);
  claimStack(name, body, stack);
}

const NUMBER = /^[1-9][0-9]{0,4}$/;

export function stackActs(stack, caller) {
  if (!mayAct()) return [];
  const call = (verb, body) => api.post(`v1/${path("stacks", stack.name, verb)}`, body);
  const acts = [];
  const mine = stack.user === caller.user || caller.admin;
  if (["down", "up", "released", "failed"].includes(stack.state) && !stack.error) {
    acts.push({name: "Acquire", title: `Acquire stack ${stack.name}`,
      text: "The stack starts once its memory is free, and stays up until it is released or its time is over. While " +
        "it waits for memory, leave this page open: the page takes the memory for it.",
      form: [{field: "minutes", label: "Time to live, in minutes", value: "60"}],
      check: ({minutes}) => (NUMBER.test(minutes) ? {} : {minutes: "give a number of minutes, 1 to 99999"}),
      line: (given) => command("sublet", "stack", "acquire", stack.name, "--wait", "--ttl", `${given.minutes}m`),
      run: (given) => acquireStack(stack.name, given.minutes)});
  }
  if (mine && ["queued", "creating", "starting", "ready"].includes(stack.state)) {
    acts.push({name: "Release", title: `Release stack ${stack.name}`,
      text: "The stack stays up under a spot lease until its memory is needed.",
      line: command("sublet", "stack", "release", stack.name), run: () => call("release", {})});
  }
  if (mine && ["queued", "creating", "starting", "ready", "released"].includes(stack.state)) {
    acts.push({name: "Bring down", title: `Bring down stack ${stack.name}`, danger: true,
      text: "The containers of the stack are removed, and its memory is free for others.",
      line: command("sublet", "stack", "release", stack.name, "--down"), run: () => call("release", {down: true})});
  }
  return acts;
}

// --- verdicts ---

function subjects(verdict) {
  return [verdict.unit && `unit:${verdict.unit}`, verdict.container && `container:${verdict.container}`,
    verdict.cgroup && verdict.cgroup !== "/" && `cgroup:${verdict.cgroup}`, `user:${verdict.user}`].filter(Boolean);
}

export function verdictActs(verdict) {
  if (!isAdmin() || verdict.stage === "closed") return [];
  const all = subjects(verdict);
  const ended = all.filter((one) => /^(user|cgroup):/.test(one));
  return [
    {name: "Approve", title: `Approve pid ${verdict.pid} (${verdict.name})`,
      text: "All processes of the subject may hold GPU memory without a lease.",
      form: [{field: "subject", label: "Subject", words: all, value: all[0]},
        {field: "hours", label: "For hours, or empty for ever", value: ""}],
      check: ({hours}) => (hours === "" || NUMBER.test(hours) ? {} : {hours: "give a number of hours, 1 to 99999"}),
      line: ({subject, hours}) => command("sublet", "approve", subject, ...(hours ? ["--until", `${hours}h`] : [])),
      run: (given) => api.post("v1/approvals", {subject: given.subject,
        ...(given.hours ? {ttl_seconds: 3600 * Number(given.hours)} : {})})},
    {name: "End", title: `End pid ${verdict.pid} (${verdict.name})`, danger: true,
      text: "The policy enforce is set for the subject. Each of its processes without a lease gets SIGTERM after " +
        "three sightings, and SIGKILL later.",
      form: [{field: "subject", label: "Subject", words: ended, value: ended[0]}],
      ahead: {key: ({subject}) => subject, Show: Ended,
        ask: ({subject}) => api.get(`v1/enforcer/preview?since=1h&subject=${encodeURIComponent(subject)}`)},
      line: (given) => command("sublet", "enforce", "set", given.subject, "enforce"),
      run: (given) => api.post("v1/policies", {subject: given.subject, policy: "enforce"})},
  ];
}
