// SPDX-License-Identifier: Apache-2.0
// The end of a log, and new lines as they come.
import {followText} from "./api.js";
import {Refused} from "./parts.js";
import {html, useEffect, useRef, useState} from "./vendor/preact.js";

const MOST = 200000;  // characters that are kept

export function Log({path, label}) {
  const [text, set] = useState("");
  const [refusal, fail] = useState(null);
  const box = useRef(null);
  useEffect(() => {
    const stop = new AbortController();
    set("");
    fail(null);
    followText(path, (more) => set((before) => (before + more).slice(-MOST)), stop.signal)
      .catch((failure) => stop.signal.aborted || fail(failure));
    return () => stop.abort();
  }, [path]);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const below = element.scrollHeight - element.scrollTop - element.clientHeight;
    if (below < 200) element.scrollTop = element.scrollHeight;
  }, [text]);
  if (refusal) return html`<${Refused} refusal=${refusal} />`;
  return html`<pre ref=${box} tabindex="0" role="log" aria-label=${label} dir="auto">${text || "No output yet."}</pre>`;
}
