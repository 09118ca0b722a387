// SPDX-License-Identifier: Apache-2.0
// The buttons of acts. Each opens a dialog, which tells what will happen and shows the command line that does the same.
import {CommandLine, Refused} from "./parts.js";
import {readTables, useStore} from "./store.js";
import {html, useEffect, useRef, useState} from "./vendor/preact.js";

const TYPING = 300;  // ms after the last key until the daemon is asked

function Field({one, given, give, problem}) {
  const id = `problem-${one.field}`;
  const set = (event) => give({...given, [one.field]: event.target.value});
  const told = {"aria-invalid": problem ? "true" : null, "aria-describedby": problem ? id : null};
  return html`<label>${one.label}${one.hint && html` <span class="dim">(now ${one.hint})</span>`}
    ${one.words
      ? html`<select value=${given[one.field]} onChange=${set} ...${told}>
          ${!one.value && html`<option value="">as it is</option>`}
          ${one.words.map((word) => html`<option value=${word}>${word}</option>`)}</select>`
      : html`<input value=${given[one.field]} onInput=${set} autocomplete="off" spellcheck="false"
          placeholder=${one.example} ...${told} />`}
    ${problem && html`<span class="problem" id=${id} role="alert">${problem}</span>`}</label>`;
}

// The answer to a look ahead: null while it is asked, else {data} or {refusal}.
function useAhead(ahead, given) {
  const [answer, set] = useState(null);
  const asked = useRef(false);
  const key = ahead ? ahead.key(given) : null;
  useEffect(() => {
    let stopped = false;
    const keep = (one) => stopped || set(one);
    set(null);
    const ask = () => ahead.ask(given).then((data) => keep({data}), (refusal) => keep({refusal}));
    const timer = key === null ? null : setTimeout(ask, asked.current ? TYPING : 0);
    asked.current = key !== null;
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, [key]);
  return {...answer, asking: key !== null && answer === null};
}

function Ahead({ahead, answer}) {
  const {names} = useStore("names");
  if (answer.asking) return html`<p role="status">Looking ahead …</p>`;
  return answer.data && html`<${ahead.Show} data=${answer.data} devices=${names} />`;
}

function ActDialog({act, close, told}) {
  const dialog = useRef(null);
  const [given, setGiven] = useState(Object.fromEntries((act.form ?? []).map((one) => [one.field, one.value ?? ""])));
  const [run, setRun] = useState({});
  const ahead = useAhead(act.ahead, given);
  useEffect(() => {
    dialog.current.showModal();
  }, []);
  const give = (values) => {
    setGiven(values);
    setRun({});
  };
  const refusal = run.refusal ?? ahead.refusal;
  const refused = refusal && act.fieldOf?.(refusal);
  const problems = act.check?.(given) ?? {};
  const allows = act.ahead?.allows ?? (() => true);
  const allowed = ahead.data ? allows(ahead.data) : !act.ahead?.allows && !ahead.refusal;
  const ready = !run.busy && allowed && Object.keys(problems).length === 0;
  const go = async (event) => {
    event.preventDefault();
    if (!ready) return;
    setRun({busy: true});
    try {
      await act.run(given);
      told(`Done: ${act.title}`);
      readTables();
      dialog.current.close();
    } catch (failure) {
      setRun({refusal: failure});
    }
  };
  const line = typeof act.line === "function" ? act.line(given, ahead.data) : act.line;
  const problemOf = (field) => problems[field] ?? (refused === field ? `${refusal.message}; ${refusal.hint}` : "");
  return html`<dialog ref=${dialog} onClose=${close} aria-labelledby="act-title"><form onSubmit=${go}>
    <h2 id="act-title" dir="auto">${act.title}</h2>
    <p>${act.text}</p>
    <div class="fields">${act.form?.map((one) => html`<${Field} key=${one.field} one=${one} given=${given} give=${give}
      problem=${problemOf(one.field)} />`)}</div>
    ${act.ahead && html`<${Ahead} ahead=${act.ahead} answer=${ahead} />`}
    ${line && html`<${CommandLine} line=${line} />`}
    ${refusal && !refused && html`<${Refused} refusal=${refusal} />`}
    ${problems[""] && html`<p class="dim" role="status">${problems[""]}</p>`}
    <p class="buttons"><button type="button" onClick=${() => dialog.current.close()}>Cancel</button>
      <button type="submit" class=${act.danger ? "danger" : "main"} disabled=${!ready}>${act.name}</button></p>
  </form></dialog>`;
}

// The buttons of some acts. Nothing is shown for what the caller may not do.
export function Acts({acts, small = false}) {
  const [open, set] = useState(null);
  const [done, tell] = useState("");
  return html`${acts.map((act) => html`<button key=${act.name} type="button" class=${small ? "small" : ""}
      aria-label=${act.title} onClick=${() => set(act)}>${act.name}</button> `)}
    <span class="hidden" role="status">${done}</span>
    ${open && html`<${ActDialog} key=${open.title} act=${open} close=${() => set(null)} told=${tell} />`}`;
}
