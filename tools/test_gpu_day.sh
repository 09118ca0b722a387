#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries the day of a card: runs the archive of tools/gpu-day in a minimal new system (Debian 12), without a network
# and without any package, on a simulated card. Needs root, debootstrap and a mirror; else it ends with status 77.
#
#   tools/test_gpu_day.sh ARCHIVE OUT [SYSTEM]      OUT is a new folder for all that the run leaves
set -euo pipefail

say() { printf '== test-gpu-day: %s\n' "$*" >&2; }
die() { printf 'test-gpu-day: %s\n' "$1" >&2; exit "${2:-1}"; }
unable() { die "skipped: $1" 77; }

repo=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
# shellcheck source=tools/new_system.sh
source "$repo/tools/new_system.sh"

main() {
  local archive=$1 out=$2 system=${3:-debian12} top status=0
  need_debootstrap
  top=$(mktemp -d "${FRESH_DIR:-${TMPDIR:-/var/tmp}}/sublet-day.XXXXXX")
  # Nothing is mounted below $top in this mount namespace, ever; --one-file-system guards that belief.
  # shellcheck disable=SC2064
  trap "rm -rf --one-file-system '$top'" EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  make_system "$top/root" "$(suite_of "$system")"
  tar -xzf "$archive" -C "$top/root/root"
  say "in a new $system without a package"
  unshare --mount --pid --net --fork --kill-child --propagation private bash "$repo/tools/test_gpu_day.sh" \
    --inside "$top/root" sublet-gpu-day/run --sim 1x8GiB /root/out </dev/null || status=$?
  [[ ! -d $top/root/root/out ]] || cp -r "$top/root/root/out" "$out"
  return "$status"
}

if [[ ${1:-} == --inside ]]; then
  shift
  enter "$1" /root "${@:2}"
else
  main "$@"
fi
