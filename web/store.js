// SPDX-License-Identifier: Apache-2.0
// The state of the page: the status, the live leases, the newest events, and the connection. The stream of events keeps
// it up to date; nothing is asked for while nothing happens.
import * as api from "./api.js";
import {useEffect, useLayoutEffect, useReducer, useRef, useState} from "./vendor/preact.js";

const MOST_EVENTS = 100;
const MOST_ALONE = 40;  // with more changed leases than this, all of them are asked for at once
const DRAW_EVERY = 80;  // ms; the least time between two drawings
// A change waits so long, in ms, for others that are drawn with it: a decision, and a measured figure.
const SOON = 25, FIGURES = 250;
const TICK = 1000;  // ms
const POINT_EVERY = 5000;  // ms between two points of a device's history
// Least time between two calls, in ms.
const LEASES_EVERY = 250, STATUS_EVERY = 2000, PROGRESS_EVERY = 1000, URGENT_EVERY = 250, TABLE_EVERY = 1000;

const state = {
  phase: "starting",  // "starting", "live", "lost", or "locked": the daemon asks for a token
  refusal: null,      // why there is no connection
  lostAt: null,       // ms, by the browser's clock
  gap: null,          // {text, at}: events are missing, and the tables were read again
  status: null,
  devices: [],        // of the status, with the newest readings
  names: [],          // {uuid, id} of each device; the same list while no name changes
  leases: new Map(),  // live leases by id, each with `asOf`, when it was told, and `readAt`, the same for the browser
  events: [],         // newest first
  offset: 0,          // ms that the daemon's clock is ahead of the browser's
  history: new Map(), // by UUID: [ms, used bytes, busy percent] of the readings since the page was opened
};

// Listeners by the part of the state that they show: "link" (phase, refusal, lostAt, gap, first status), "status",
// "devices" (with the history), "names", "leases", "events", and "now" for the time that passes.
const listeners = new Map();
const stale = new Set();  // parts that changed since the last drawing
let timer = null, dueAt = Infinity, drawnAt = 0;

function draw() {
  drawnAt = performance.now();
  const due = new Set([...stale].flatMap((part) => [...listeners.get(part) ?? []]));
  stale.clear();
  for (const listener of due) listener();
}

// All that is stale is drawn with the first change whose time is over.
function changed(part, patience = SOON) {
  stale.add(part);
  const at = Math.max(performance.now() + patience, drawnAt + DRAW_EVERY);
  if (at >= dueAt || !listeners.get(part)?.size) return;
  clearTimeout(timer);
  dueAt = at;
  timer = setTimeout(() => {
    dueAt = Infinity;
    requestAnimationFrame(draw);
  }, at - performance.now());
}

function listen(parts, listener) {
  for (const part of parts) {
    if (!listeners.has(part)) listeners.set(part, new Set());
    listeners.get(part).add(listener);
  }
  return () => parts.forEach((part) => listeners.get(part).delete(listener));
}

// The time of the daemon in ms: the browser's clock may be wrong.
export const now = () => Date.now() + state.offset;

// Runs `work` at once, and again after `every` ms if it was called meanwhile. One run at a time.
function throttled(work, every) {
  let timer = null, running = false, again = false, last = -Infinity;
  const run = async () => {
    timer = null;
    running = true;
    last = performance.now();
    again = false;
    try {
      await work();
    } catch {
      // The stream of events tells when the daemon is back, and the tables are read then.
    }
    running = false;
    if (again) call();
  };
  const call = () => {
    if (running) again = true;
    else if (timer === null) timer = setTimeout(run, Math.max(0, last + every - performance.now()));
  };
  return call;
}

function takeDevices(devices) {
  state.devices = devices;
  const names = devices.map(({uuid, id}) => ({uuid, id}));
  if (JSON.stringify(names) !== JSON.stringify(state.names)) state.names = names, changed("names");
  changed("devices", FIGURES);
}

function takeStatus(status) {
  state.offset = api.asTime(status.now) - Date.now();
  if (!state.status) changed("link");
  state.status = status;
  takeDevices(status.devices);
  changed("status", FIGURES);
}

const gone = new Set();  // leases that have ended, whose answers may still be on their way
const dirty = new Set();

function takeLease(lease) {
  if (lease.state === "ended") gone.add(lease.id);
  if (gone.has(lease.id)) state.leases.delete(lease.id);
  else state.leases.set(lease.id, {...lease, asOf: now(), readAt: performance.now()});
  // The progress of a pause or a resume makes no events.
  if (lease.pause?.progress) setTimeout(() => stop !== null && readSoon(lease.id), PROGRESS_EVERY);
  changed("leases");
}

async function readLeases() {
  dirty.clear();
  const began = performance.now();
  const rows = await api.list("v1/leases", "leases");
  // A lease that was read meanwhile is newer than its row, or too new for a row.
  const newer = [...state.leases.values()].filter((lease) => lease.readAt >= began);
  state.leases = new Map();
  for (const lease of rows) takeLease(lease);
  for (const lease of newer) if (!gone.has(lease.id)) state.leases.set(lease.id, lease);
  changed("leases");
}

const readStatus = throttled(async () => takeStatus(await api.get("v1/status")), STATUS_EVERY);
const readStatusSoon = throttled(async () => takeStatus(await api.get("v1/status")), URGENT_EVERY);
const readDirty = throttled(async () => {
  if (dirty.size > MOST_ALONE) return readLeases();
  const ids = [...dirty];
  dirty.clear();
  await Promise.all(ids.map(async (id) => {
    try {
      takeLease(await api.get(`v1/leases/${id}`));
    } catch (refusal) {
      if (refusal.status === 404) gone.add(id), state.leases.delete(id), changed("leases");
      else dirty.add(id);
    }
  }));
}, LEASES_EVERY);

function readSoon(id) {
  if (gone.has(id)) return;
  dirty.add(id);
  readDirty();
}

function takeLeaseEvent(data) {
  if (data.state === "ended") {
    gone.add(data.lease);
    state.leases.delete(data.lease);
    dirty.delete(data.lease);
  } else {
    const known = state.leases.get(data.lease);
    if (known) {
      const {state: is, devices, vram_bytes, generation} = data;
      const pause = ["pausing", "paused", "resuming", "poisoned"].includes(is) ? known.pause : null;
      const queue = is === "queued" || is === "paused" ? known.queue : null;
      state.leases.set(data.lease, {...known, state: is, devices, vram_bytes, generation, pause, queue});
    }
    readSoon(data.lease);
  }
  changed("leases");
  readStatus();
}

// Returns whether the free memory of a device has changed.
function takeReading(data) {
  let moved = false;
  const before = new Map(state.devices.map((device) => [device.uuid, device]));
  for (const device of data.devices) {
    const old = before.get(device.uuid);
    if (!old || old.other_bytes !== device.other_bytes) readStatusSoon();
    moved ||= !old || old.effective_free_bytes !== device.effective_free_bytes;
    before.set(device.uuid, device);
    const points = state.history.get(device.uuid) ?? [], at = api.asTime(data.at);
    if (at - (points.at(-1)?.[0] ?? 0) >= POINT_EVERY)
      state.history.set(device.uuid, [...points.slice(-720), [at, device.used_bytes, device.busy_percent]]);
  }
  takeDevices([...before.values()].sort((a, b) => a.index - b.index));
  for (const {lease, used_bytes, activity} of data.leases) {
    const known = state.leases.get(lease);
    if (known) state.leases.set(lease, {...known, used_bytes,
      activity: known.activity && {...known.activity, state: activity}});
  }
  if (data.leases.length) changed("leases", FIGURES);
  return moved;
}

const tables = new Set();  // {types, about, read}: tables of the present view

// After an act of the reader: not every change makes an event.
export function readTables() {
  for (const table of tables) table.read();
}

function takeEvent({id, type, data}) {
  state.offset = Math.max(state.offset, api.asTime(data.at) - Date.now());
  const types = [type];
  if (type === "reading") takeReading(data) && types.push("free");
  else if (!state.events.some((event) => event.id === id))
    state.events = [{id, type, data}, ...state.events].slice(0, MOST_EVENTS), changed("events");
  if (type === "lease") takeLeaseEvent(data);
  else if (type === "device" || type === "warning" || type === "daemon") readStatusSoon();
  for (const table of tables)
    if (types.some((one) => table.types.includes(one)) && (!table.about || table.about(data))) table.read();
}

async function readAll() {
  readTables();
  takeStatus(await api.get("v1/status"));
  await readLeases();
}

// Follows the daemon until `signal`, and keeps the state true.
function follow(signal) {
  const read = () => readAll().then(() => {
    state.phase = "live";
    state.lostAt = state.refusal = null;
    changed("link");
  }, (refusal) => lost(refusal));
  const lost = (refusal) => {
    state.phase = refusal?.status === 401 || refusal?.status === 403 ? "locked" : "lost";
    state.refusal = refusal ?? state.refusal;
    state.lostAt ??= Date.now();
    changed("link");
  };
  return api.followEvents({
    open: (again) => {
      if (!again) {
        gone.clear();
        state.events = [];  // others may have come between
        changed("events");
      }
      read();
    },
    event: takeEvent,
    gap: (text) => {
      state.gap = {text, at: now()};
      changed("link");
    },
    lost,
  }, signal);
}

let stop = null;

// Follows while the page is seen: a browser allows six connections to one host, and each stream takes one of them.
function look() {
  if (!document.hidden && stop === null) {
    stop = new AbortController();
    follow(stop.signal);
  } else if (document.hidden && stop !== null) {
    stop.abort();
    stop = null;
  }
}

export function begin() {
  document.addEventListener("visibilitychange", look);
  setInterval(() => document.hidden || changed("now", FIGURES), TICK);
  window.addEventListener("storage", () => state.phase === "locked" && restart());  // another tab has a new key
  look();
}

// With another token.
export function restart() {
  stop?.abort();
  stop = null;
  state.phase = "starting";
  look();
  changed("link");
}

export function dismissGap() {
  state.gap = null;
  changed("link");
}

// --- hooks ---

const count = (number) => number + 1;

// The state; the component is drawn again when one of these parts has changed.
export function useStore(...parts) {
  const [, draw] = useReducer(count, 0);
  useLayoutEffect(() => listen(parts, draw), []);
  return state;
}

// The time of the daemon, each second.
export function useNow() {
  useStore("now");
  return now();
}

// The value of `of(now)` as time passes; the component is drawn again when it has become another.
export function useLive(of) {
  const [, draw] = useReducer(count, 0);
  const shown = useRef({});
  shown.current = {of, value: of(now())};
  useLayoutEffect(() => listen(["now"], () => shown.current.of(now()) !== shown.current.value && draw()), []);
  return shown.current.value;
}

// A table of the API: {data, refusal, asOf, reload}. It is read now, after a reconnect, and after events of these types
// for which `about(data)` is true. The type "free" is a reading that changed the free memory of a device.
export function useTable(path, types, about = null) {
  const [table, set] = useState({data: null, refusal: null, asOf: 0, path});
  const reload = useRef(() => {});
  useEffect(() => {
    const stop = new AbortController();
    const read = throttled(async () => {
      try {
        const data = await api.get(path, stop.signal);
        if (!stop.signal.aborted) set({data, refusal: null, asOf: now(), path});
      } catch (refusal) {
        // While there is no connection, the banner says so.
        if (!stop.signal.aborted && refusal instanceof api.Refusal && refusal.status !== 0)
          set((before) => ({...before, refusal, path}));
      }
    }, TABLE_EVERY);
    const entry = {types, about, read};
    reload.current = read;
    tables.add(entry);
    read();
    return () => {
      stop.abort();
      tables.delete(entry);
    };
  }, [path]);
  return {...(table.path === path ? table : {data: null, refusal: null, asOf: 0}), reload: () => reload.current()};
}

// --- rights ---

export const mayAct = () => Boolean(state.status) && state.status.caller.scope !== "read";
// Over TCP the daemon starts no programs, and each caller has a scope.
export const mayStart = () => mayAct() && state.status.caller.scope === null;
export const isAdmin = () => mayAct() && state.status.caller.admin;
// Whether the caller may act on a lease or a program of this user.
export const mayActFor = (uid) => mayAct() && (state.status.caller.admin || state.status.caller.uid === uid);
