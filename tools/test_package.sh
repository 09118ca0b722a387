#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the packages as an administrator uses them: in a minimal new system they are installed, used, upgraded, removed,
# purged (tests/package/in_system.sh). Needs root, debootstrap and a mirror. If it cannot run it says so and ends with
# status 77.
#
#   tools/test_package.sh OLD NEW [SYSTEM...]     OLD and NEW have packages; all systems if none is named
set -euo pipefail

say() { printf '== test-package: %s\n' "$*" >&2; }
die() { printf 'dev test-package: %s\n' "$1" >&2; exit "${2:-1}"; }
unable() { die "skipped: $1" 77; }

repo=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
# shellcheck source=tools/new_system.sh
source "$repo/tools/new_system.sh"

# test_in OLD NEW SYSTEM
test_in() {
  local old=$1 new=$2 system=$3 top
  top=$(mktemp -d "${FRESH_DIR:-${TMPDIR:-/var/tmp}}/sublet-package.XXXXXX")
  # Nothing is mounted below $top in this mount namespace, ever; --one-file-system guards that belief.
  # shellcheck disable=SC2064
  trap "rm -rf --one-file-system '$top'" EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  make_system "$top/root" "$(suite_of "$system")"
  mkdir "$top/root/packages"
  cp -r "$old" "$top/root/packages/old"
  cp -r "$new" "$top/root/packages/new"
  cp "$repo"/tests/package/*.sh "$top/root/packages/"
  say "in a new $system"
  unshare --mount --pid --fork --kill-child --propagation private bash "$repo/tools/test_package.sh" \
    --inside "$top/root" bash /packages/in_system.sh </dev/null
}

main() {
  local old=$1 new=$2
  shift 2
  [[ $# -gt 0 ]] || set -- $systems
  check_systems "$@"
  need_debootstrap
  in_each_system test_in "$old" "$new" -- "$@"
}

if [[ ${1:-} == --inside ]]; then
  shift
  enter "$1" /root "${@:2}"
else
  main "$@"
fi
