// SPDX-License-Identifier: Apache-2.0
// The calls of the daemon's API: requests, and the stream of events with its reconnects.

const KEY = "sublet-key";  // of `sublet web`: for all tabs, since it ends with that command
const TOKEN = "sublet-token";  // an access token: for this tab, until it is closed
const BASE = new URL(".", document.baseURI);
const SILENCE = 12000;  // ms; the daemon gives a sign of life every 5 s
const LONGEST_PAUSE = 5000;  // ms between two attempts
const PATIENCE = 20000;  // ms for an answer; a browser opens six connections to one host, and a lost call keeps one

export class Refusal extends Error {
  constructor(status, problem) {
    super(problem.detail || `the daemon answered with status ${status}`);
    this.status = status;
    this.code = problem.code || "";
    this.hint = problem.hint || "";
    this.by = problem.by || "";  // "sublet web": not the daemon
  }
}

export const asTime = (text) => Date.parse(text);

export const pause = (ms, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), {once: true});
});

export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;
export const useToken = (token) => sessionStorage.setItem(TOKEN, token);
export const forgetToken = () => sessionStorage.removeItem(TOKEN);

function headers(more) {
  const secret = sessionStorage.getItem(TOKEN) ?? localStorage.getItem(KEY);
  return {...more, ...(secret ? {Authorization: `Bearer ${secret}`} : {})};
}

// The secret of the address, changed once for a cookie and a key.
export async function enter() {
  const given = new URLSearchParams(location.hash.slice(1)).get("secret");
  if (!given) return;
  history.replaceState(null, "", location.pathname + location.search);
  const answer = await fetch(new URL("web/session", BASE), {
    method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({secret: given})});
  if (answer.ok) localStorage.setItem(KEY, (await answer.json()).key);
}

function random() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(new URL(path, BASE), options);
  } catch (failure) {
    if (failure.name === "AbortError" || failure.name === "TimeoutError") throw failure;
    throw new Refusal(0, {detail: "nothing answers at the address of this page", hint: "start it again"});
  }
  if (answer.ok) return answer;
  throw new Refusal(answer.status, await answer.json().catch(() => ({})));
}

export async function get(path, signal) {
  const patience = AbortSignal.timeout(PATIENCE);
  const both = signal ? AbortSignal.any([signal, patience]) : patience;
  try {
    return await (await ask(path, {headers: headers(), signal: both})).json();
  } catch (failure) {
    if (failure.name !== "TimeoutError") throw failure;
    throw new Refusal(0, {detail: `the daemon has not answered for ${PATIENCE / 1000} s`, hint: "look at its log"});
  }
}

export async function post(path, body = {}, fields = {}) {
  const more = {"Content-Type": "application/json", "Idempotency-Key": random(), ...fields};
  return (await ask(path, {method: "POST", headers: headers(more), body: JSON.stringify(body)})).json();
}

// All pages of a table.
export async function list(path, name) {
  const rows = [];
  for (let after = "";;) {
    const page = await get(`${path}${after && `${path.includes("?") ? "&" : "?"}after=${encodeURIComponent(after)}`}`);
    rows.push(...page[name]);
    if (!page.next) return rows;
    after = page.next;
  }
}

// Text as it comes, by `take(text)`; returns at its end.
export async function followText(path, take, signal) {
  const answer = await ask(path, {headers: headers(), signal});
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    take(value);
  }
}

function parse(block) {
  const event = {id: "", type: "", data: null};
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) event.id = line.slice(4);
    else if (line.startsWith("event: ")) event.type = line.slice(7);
    else if (line.startsWith("data: ")) event.data = JSON.parse(line.slice(6));
  }
  return event;
}

// Reads one stream to its end. Calls `alive()` for each piece.
async function read(last, signal, take, alive) {
  const more = last ? {"Last-Event-ID": last} : {};
  const answer = await ask("v1/events?readings=true&heartbeat=5s", {headers: headers(more), signal});
  alive();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "";;) {
    const {done, value} = await reader.read();
    if (done) return;
    alive();
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) take(parse(block));
  }
}

// Follows the events until `signal`. `on` has: `open(again)`, `event(event)`, `gap(text)` and `lost(refusal)`. After
// open(false) and after gap() the tables must be read; after open(true) the missed events follow. Returns also when the
// daemon admits this caller no more.
export async function followEvents(on, signal) {
  let last = "";
  for (let failures = 0; !signal.aborted;) {
    const silence = new AbortController();
    const stop = () => silence.abort();
    signal.addEventListener("abort", stop, {once: true});
    let timer, opened = false, gap = false;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(stop, SILENCE);
      if (!opened) (opened = true), (failures = 0), on.open(last !== "");
    };
    const take = (event) => {
      if (event.type === "gap") {
        gap = true;
        on.gap(event.data.text);
        stop();
      } else if (!gap) {
        if (event.id) last = event.id;
        if (event.data) on.event(event);
      }
    };
    let refusal = null;
    try {
      timer = setTimeout(stop, SILENCE);
      await read(last, silence.signal, take, alive);
    } catch (failure) {
      refusal = failure instanceof Refusal ? failure : null;
    }
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
    if (signal.aborted) return;
    // From the place of a gap no stream goes on: the next one begins with what is new.
    if (gap) last = "";
    on.lost(refusal);
    if (refusal?.status === 401 || refusal?.status === 403) return;  // a new attempt needs another token
    if (!gap) await pause(Math.min(LONGEST_PAUSE, 250 * 2 ** failures++), signal);
  }
}
