// SPDX-License-Identifier: Apache-2.0
// The page: its frame, and the view that the address names.
import * as api from "./api.js";
import {Live, Refused} from "./parts.js";
import {begin, dismissGap, restart, useStore} from "./store.js";
import {html, render, useEffect, useRef, useState} from "./vendor/preact.js";
import {Cards} from "./views/cards.js";
import {Lease} from "./views/lease.js";
import {Ledger} from "./views/ledger.js";
import {Program, Programs} from "./views/programs.js";
import {Queue} from "./views/queue.js";
import {Reports} from "./views/reports.js";
import {Sessions} from "./views/sessions.js";
import {Stacks} from "./views/stacks.js";
import {Verdicts} from "./views/verdicts.js";
import {clock, compact} from "./words.js";

// The views of the navigation, and those of one object.
const VIEWS = [["cards", "Cards", Cards], ["queue", "Queue", Queue], ["ledger", "Park ledger", Ledger],
  ["programs", "Programs", Programs], ["stacks", "Stacks", Stacks], ["sessions", "Sessions", Sessions],
  ["verdicts", "Verdicts", Verdicts], ["reports", "Reports", Reports]];
const OBJECTS = new Map([["lease", [Lease, "cards"]], ["program", [Program, "programs"]]]);

// A word of an address that somebody wrote by hand may be no encoding.
function decoded(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

// "#/lease/lease-7" is ["lease", "lease-7"].
function useRoute() {
  const read = () => location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  const [route, set] = useState(read());
  useEffect(() => {
    const look = () => set(read());
    addEventListener("hashchange", look);
    return () => removeEventListener("hashchange", look);
  }, []);
  return route[0] ? route : ["cards"];
}

function Connection() {
  const store = useStore("link");
  if (store.phase === "live")
    return html`<p class="link dim" role="status"><span aria-hidden="true">●</span> live</p>`;
  const away = () => (store.lostAt ? `, for ${compact(Date.now() - store.lostAt)}` : "");
  const text = store.phase === "lost" ? html`no connection<${Live} of=${away} />` : "connecting";
  return html`<p class="link" role="status"><strong>${text}</strong></p>`;
}

function Banners() {
  const store = useStore("link");
  return html`
    ${store.phase === "lost" && html`<p class="banner bad" role="alert">
      The connection to the daemon is lost since ${new Date(store.lostAt).toLocaleTimeString()}: what you see is from
      then. The page tries again by itself. ${store.refusal?.message}</p>`}
    ${store.gap && html`<p class="banner" role="alert">
      Events are missing before ${clock(store.gap.at)} (${store.gap.text}). All tables were read again.
      <button class="small" type="button" onClick=${dismissGap}>Dismiss</button></p>`}`;
}

// The daemon does not know this browser.
function Locked({refusal}) {
  const [token, set] = useState("");
  const enter = (event) => {
    event.preventDefault();
    api.useToken(token.trim());
    restart();
  };
  return html`<main id="main"><h2>This page needs your rights</h2>
    <${Refused} refusal=${refusal} />
    ${!refusal.by && html`<form onSubmit=${enter}>
      <label>Access token<input type="password" autocomplete="off" value=${token}
        onInput=${(event) => set(event.target.value)} /></label>
      <button class="main" type="submit" disabled=${!token.trim()}>Enter</button>
      <p class="dim"><code>sublet token create --scope read</code> makes a token that sees, and cannot act; the scope
        submit also acts on your leases. The token is kept until this tab is closed.
        <code>sublet web</code> opens this page without a token.</p></form>`}</main>`;
}

function View({route}) {
  const [name, ...rest] = route;
  const [Shown] = OBJECTS.get(name) ?? [VIEWS.find(([one]) => one === name)?.[2]];
  if (!Shown) return html`<p>There is no view ${name}: choose one above.</p>`;
  return html`<${Shown} key=${route.join("/")} id=${rest.join("/")} />`;
}

function Page() {
  const store = useStore("link");
  const route = useRoute();
  const main = useRef(null);
  const first = useRef(true);
  const here = OBJECTS.get(route[0])?.[1] ?? route[0];
  const title = VIEWS.find(([name]) => name === here)?.[1] ?? "Sublet";
  useEffect(() => {
    document.title = `${route[1] ?? title} · Sublet`;
    if (!first.current) main.current?.focus();
    first.current = false;
  }, [route.join("/")]);
  if (store.phase === "locked") return html`<header><h1>Sublet</h1></header><${Locked} refusal=${store.refusal} />`;
  return html`
    <a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), main.current.focus())}>To the content</a>
    <header><h1>Sublet</h1>
      <nav aria-label="Views"><ul>${VIEWS.map(([name, label]) => html`<li key=${name}>
        <a href=${`#/${name}`} aria-current=${name === here ? "page" : null}>${label}</a></li>`)}</ul></nav>
      <${Connection} /></header>
    <${Banners} />
    <main id="main" ref=${main} tabindex="-1">
      ${store.status ? html`<${View} route=${route} />`
    : html`<p class="dim" role="status">${store.phase === "lost" ? "No daemon answers yet." : "Reading …"}</p>`}
    </main>`;
}

await api.enter().catch(() => {});
begin();
const root = document.getElementById("page");
root.replaceChildren();
render(html`<${Page} />`, root);
