#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the packages as an administrator uses them: in a minimal new Debian 12 they are installed, used, upgraded,
# removed, purged (tests/package/in_system.sh). Needs root, debootstrap and a mirror. If it cannot run it says so and
# ends with status 77.
set -euo pipefail

say() { printf '== test-package: %s\n' "$*" >&2; }
die() { printf 'dev test-package: skipped: %s\n' "$1" >&2; exit 77; }

repo=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
# shellcheck source=tools/new_system.sh
source "$repo/tools/new_system.sh"

main() {
  local old=$1 new=$2 top
  need_debootstrap
  top=$(mktemp -d "${FRESH_DIR:-${TMPDIR:-/var/tmp}}/sublet-package.XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf --one-file-system '$top'" EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  make_system "$top/root"
  mkdir "$top/root/packages"
  cp -r "$old" "$top/root/packages/old"
  cp -r "$new" "$top/root/packages/new"
  cp "$repo/tests/package/in_system.sh" "$top/root/packages/"
  say "in a new $suite"
  unshare --mount --pid --fork --kill-child --propagation private bash "$repo/tools/test_package.sh" \
    --inside "$top/root" bash /packages/in_system.sh </dev/null
}

if [[ ${1:-} == --inside ]]; then
  shift
  enter "$1" /root "${@:2}"
else
  main "$@"
fi
