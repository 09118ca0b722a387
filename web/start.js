// SPDX-License-Identifier: Apache-2.0
// The act that starts a supervised program, as `sublet run --detach --command` does.
import {notASize, parseSize, RESTARTS, TIERS} from "./acts.js";
import {Outlook} from "./ahead.js";
import * as api from "./api.js";
import {mayStart} from "./store.js";
import {command} from "./words.js";

const FORM = [
  {field: "line", label: "Command line, run by a shell", example: "python3 train.py --epochs 3"},
  {field: "vram_bytes", label: "Size of the lease (GPU memory)", example: "8GiB"},
  {field: "tag", label: "Name, or empty: that of the program", example: "train"},
  {field: "tier", label: "Tier", words: TIERS, value: "standard"},
  {field: "restart", label: "Restart after its end", words: RESTARTS, value: "never"},
  {field: "memory_bytes", label: "Ceiling, or empty: it is ended above", example: "none"},
  {field: "directory", label: "Folder, or empty: that of sublet web", example: "/srv/train"},
];

const SIZES = ["vram_bytes", "memory_bytes"];

function leaseOf(given) {
  const sizes = SIZES.filter((field) => given[field].trim()).map((field) => [field, parseSize(given[field])]);
  return {...Object.fromEntries(sizes), tier: given.tier};
}

function check(given) {
  const problems = {};
  for (const field of SIZES)
    if (given[field].trim() && !parseSize(given[field])) problems[field] = notASize(given[field]);
  if (given.directory && !given.directory.startsWith("/")) problems.directory = "give a path that begins with /";
  if (!given.line.trim() || !given.vram_bytes.trim()) problems[""] = "give a command line and a size";
  return problems;
}

// Asks `sublet web` for the name of the program and its folder, and the daemon for its place.
async function look(given) {
  const {directory, tag, ...fields} = await api.post("web/line", {line: given.line});
  const outlook = await api.post("v1/leases", {...fields, ...leaseOf(given), dry_run: true});
  return {...outlook, directory};
}

async function start(given) {
  const {line, restart} = given;
  const fields = ["tag", "directory"].filter((field) => given[field]);
  const named = Object.fromEntries(fields.map((field) => [field, given[field]]));
  const program = await api.post("web/program", {line, restart, ...leaseOf(given), ...named});
  location.hash = `#/program/${encodeURIComponent(program.tag)}`;
}

function lineOf(given, told) {
  const sized = (flag, field) => (given[field].trim() ? [flag, given[field].replaceAll(" ", "")] : []);
  const other = (flag, field, usual) => (given[field] === usual ? [] : [flag, given[field]]);
  const folder = given.directory || told?.directory;
  const run = command("sublet", "run", "--detach", ...other("--tag", "tag", ""), ...sized("--vram", "vram_bytes"),
    ...sized("--memory", "memory_bytes"), ...other("--tier", "tier", "standard"),
    ...other("--restart", "restart", "never"), "--command", given.line);
  return folder ? `${command("cd", folder)} && ${run}` : run;
}

// The field that a refusal is about: the daemon names it in its sentence.
const ABOUT = [["memory_bytes", /memory_bytes|ceiling/], ["tier", /tier/], ["directory", /directory/],
  ["line", /arguments|the line|UTF-8/], ["tag", /\btag\b/], ["vram_bytes", /vram_bytes|the lease/]];
const fieldOf = ({message}) => ABOUT.find(([, words]) => words.test(message))?.[0];

export function startActs() {
  if (!mayStart()) return [];
  return [{name: "Start a program", title: "Start a program", form: FORM, check, line: lineOf, run: start, fieldOf,
    text: "The daemon starts the program once its lease has its memory, keeps its output, and restarts it as you say.",
    ahead: {key: (given) => (Object.keys(check(given)).length ? null : JSON.stringify([given.line, leaseOf(given)])),
      ask: look, Show: Outlook}}];
}
