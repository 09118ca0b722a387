#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the vendored files of this folder anew, from the packages of their authors. The same versions make the same
# bytes: README.md has their checksums. Needs npm, and nothing else of this repository does.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm init -y >/dev/null
npm install --ignore-scripts --silent preact@10.29.8 htm@3.1.1 uplot@1.6.32 esbuild@0.28.2
cat >entry.js <<'END'
import {h} from "preact";
import htm from "htm";
export {render} from "preact";
export {useCallback, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState} from "preact/hooks";
export const html = htm.bind(h);
END
bundle="npx esbuild --bundle --minify --format=esm --legal-comments=none --log-level=warning"
$bundle entry.js --outfile=preact.min.js
$bundle node_modules/uplot/dist/uPlot.esm.js --outfile=uplot.min.js
{
  echo '/*! Preact 10.29.8 with its hooks:'
  cat node_modules/preact/LICENSE
  echo '*/'
  echo '/*! htm 3.1.1, Copyright 2018 Google Inc., Apache License 2.0: the LICENSE of Sublet has its text. */'
  cat preact.min.js
} >"$here/preact.js"
{
  echo '/*! uPlot 1.6.32:'
  cat node_modules/uplot/LICENSE
  echo '*/'
  cat uplot.min.js
} >"$here/uplot.js"
{
  echo '/*! uPlot 1.6.32, MIT: uplot.js has the licence. */'
  cat node_modules/uplot/dist/uPlot.min.css
} >"$here/uplot.css"
