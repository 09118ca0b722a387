#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the packaged units under a real systemd: boots a minimal new system with the packages of OLD in systemd-nspawn,
# runs tests/package/in_booted.sh there, which upgrades to those of NEW, reboots the system, and goes on. Needs root,
# debootstrap, a mirror and control groups of version 2. If it cannot run it says so and ends with status 77.
#
#   tools/test_boot.sh OLD NEW [SYSTEM...]       Debian 12 and Debian 13 if no system is named
set -euo pipefail

say() { printf '== test-boot: %s\n' "$*" >&2; }
die() { printf 'dev test-boot: %s\n' "$1" >&2; exit "${2:-1}"; }
unable() { die "skipped: $1" 77; }

repo=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
# shellcheck source=tools/new_system.sh
source "$repo/tools/new_system.sh"

need_nspawn() {
  need_debootstrap
  if ! command -v systemd-nspawn >/dev/null; then
    say "installing systemd-container"
    DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout=600 install --no-install-recommends \
      systemd-container </dev/null >&2 || unable "apt could not install systemd-container"
  fi
  groups=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
  [[ -n $groups ]] || unable "there is no control group file system of version 2 here"
  mkdir "$groups/sublet-boot.$$" 2>/dev/null || unable "may not make a control group in $groups"
  rmdir "$groups/sublet-boot.$$"
}

# boot ROOT GROUP: once, until the system powers itself off or reboots. nspawn makes all namespaces of the system.
boot() {
  SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 timeout --kill-after=20 300 \
    bash -c 'echo 0 >"$0/cgroup.procs"; exec "$@"' "$2" unshare --mount --propagation private \
    systemd-nspawn --quiet --directory="$1" --register=no --keep-unit --boot --machine=sublet-test \
    --capability=all --console=pipe --resolv-conf=off --timezone=off </dev/null >>"$1.console" 2>&1
}

# test_in OLD NEW SYSTEM
test_in() {
  local old=$1 new=$2 system=$3 top status=0 group=$groups/sublet-boot.$$
  top=$(mktemp -d "${FRESH_DIR:-${TMPDIR:-/var/tmp}}/sublet-boot.XXXXXX")
  # shellcheck disable=SC2064
  trap "clean_up '$top' '$group'" EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  make_system "$top/root" "$(suite_of "$system")"
  mkdir "$top/root/packages"
  cp -r "$old" "$top/root/packages/old"
  cp -r "$new" "$top/root/packages/new"
  cp "$repo"/tests/package/*.sh "$top/root/packages/"
  unshare --mount --pid --fork --kill-child --propagation private bash "$repo/tools/test_boot.sh" \
    --inside "$top/root" bash /packages/prepare_boot.sh >"$top/prepare.log" 2>&1 </dev/null ||
    status=$?
  case $status in
    0) ;;
    77) tail -n 5 "$top/prepare.log" >&2; unable "systemd does not install in the new $system" ;;
    *) tail -n 20 "$top/prepare.log" >&2; say "the packages do not install in the new $system"; return 1 ;;
  esac
  status=0
  say "booting a new $system"
  mkdir -p "$group"
  # It ends with 0 when the system powers itself off, and with 133 when the system reboots.
  status=133
  while [[ $status == 133 ]]; do
    status=0
    boot "$top/root" "$group" || status=$?
  done
  cat "$top/root/packages/transcript"
  [[ ! -e $top/root/packages/passed ]] || return 0
  tail -n 30 "$top/root.console"
  say "the system ended with $status"
  return 1
}

# Removes the system. A mount that is still there would lead out of it, so then nothing is removed.
clean_up() {
  local top=$1 group=$2
  find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
  if grep -q " $top" /proc/self/mountinfo; then
    say "not removed: something is mounted below $top"
    return
  fi
  rm -rf --one-file-system "$top"
}

main() {
  local old=$1 new=$2
  shift 2
  [[ $# -gt 0 ]] || set -- debian12 debian13
  check_systems "$@"
  need_nspawn
  in_each_system test_in "$old" "$new" -- "$@"
}

case ${1:-} in
  --inside) enter "$2" /root "${@:3}" ;;
  *) main "$@" ;;
esac
