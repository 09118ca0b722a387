#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows that a release can be made again: clones HEAD into two new folders of different depth, makes the release in each
# without the compiler cache, and compares the checksums of all files.
#
#   tools/reproduce.sh [FOLDER]     FOLDER is a clone of HEAD in which the release was made: it stands for the first
set -euo pipefail

say() { printf '== reproduce: %s\n' "$*" >&2; }

repo=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)

# make_in FOLDER
make_in() {
  mkdir -p "$(dirname "$1")"
  git -c advice.detachedHead=false clone -q "file://$repo" "$1" </dev/null
  say "making the release in $1"
  CCACHE_DISABLE=1 "$1/dev" release >"$1.log" 2>&1 || { tail -n 20 "$1.log" >&2; exit 1; }
}

main() {
  local top first=${1:-}
  top=$(mktemp -d "${FRESH_DIR:-${TMPDIR:-/var/tmp}}/sublet-reproduce.XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf --one-file-system '$top'" EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  if [[ -z $first ]]; then
    first=$top/first
    make_in "$first"
  fi
  make_in "$top/in/another/place"
  if ! diff "$first/packages/SHA256SUMS" "$top/in/another/place/packages/SHA256SUMS"; then
    say "the two builds differ"
    exit 1
  fi
  say "$(wc -l <"$first/packages/SHA256SUMS") files are the same, byte for byte"
}

main "$@"
