#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Proves that a newcomer's two commands work: makes a minimal Debian 12 in a temporary folder, clones HEAD into it, and
# runs ./dev demo and ./dev test there. Needs root.
set -euo pipefail

usage() {
  cat <<'HELP'
./dev fresh [--keep] [--demo-only|--test-only|-- COMMAND...]
  --keep        leave the new system's folder, and say where it is
  --demo-only   only ./dev demo        --test-only   only ./dev test
  -- COMMAND    run this in the clone instead, with your terminal (-- bash looks around)
FRESH_DIR=DIR   where to make it (default: TMPDIR or /var/tmp; some 4 GB; not on a file system mounted nodev)
HELP
}

say() { printf '== fresh: %s\n' "$*" >&2; }
die() { printf 'dev fresh: %s\n' "$1" >&2; exit "${2:-1}"; }
unable() { die "$1"; }

repo=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
# shellcheck source=tools/new_system.sh
source "$repo/tools/new_system.sh"

clone_repository() {
  local root=$1
  if [[ -n $(git -C "$repo" status --porcelain --untracked-files=no) ]]; then
    say "note: uncommitted changes are not part of the clone"
  fi
  git -c advice.detachedHead=false clone -q --no-local --depth 1 "file://$repo" "$root/root/sublet" </dev/null
  say "cloned $(git -C "$repo" rev-parse --short HEAD)"
}

# ------------------------------------------------------------------------------- the outer call

main() {
  local keep= demo=1 test=1 command=()
  while [[ $# -gt 0 ]]; do
    case $1 in
      --keep) keep=1 ;;
      --demo-only) test= ;;
      --test-only) demo= ;;
      --) shift; command=("$@"); demo= test=; break ;;
      -h | --help) usage; exit 0 ;;
      *) usage >&2; die "unknown argument '$1'" 2 ;;
    esac
    shift
  done
  need_debootstrap

  local top root status=0
  top=$(mktemp -d "${FRESH_DIR:-${TMPDIR:-/var/tmp}}/sublet-fresh.XXXXXX")
  root=$top/root
  # Nothing is mounted below $top in this mount namespace, ever; --one-file-system guards that belief.
  # shellcheck disable=SC2064
  [[ -n $keep ]] || trap "rm -rf --one-file-system '$top'" EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  make_system "$root"
  clone_repository "$root"

  in_it() {
    say "$*"
    local start=$SECONDS
    unshare --mount --pid --fork --kill-child --propagation private bash "$repo/tools/fresh.sh" \
      --inside "$root" "$@" <&"$input" || status=$?
    say "$* ended with status $status after $((SECONDS - start)) s"
    return "$status"
  }
  # The two commands must work without a terminal and without input.
  local input
  exec {input}</dev/null
  if [[ ${#command[@]} -gt 0 ]]; then
    exec {input}<&0
    in_it "${command[@]}" || true
  else
    if [[ -n $demo ]]; then in_it ./dev demo || true; fi
    if [[ -n $test && $status == 0 ]]; then in_it ./dev test || true; fi
  fi
  [[ -z $keep ]] || say "kept: $root (./dev fresh made it; rm -rf it when done)"
  exit "$status"
}

if [[ ${1:-} == --inside ]]; then
  shift
  enter "$1" /root/sublet "${@:2}"
else
  main "$@"
fi
