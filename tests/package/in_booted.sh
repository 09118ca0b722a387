#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# In a booted system with systemd as pid 1, started by a unit of its own (tools/test_boot.sh). The older packages are
# there, and the first boot upgrades them. Every line of output is one check; the first failure ends the script and the
# system.
set -euo pipefail

# shellcheck source=tests/package/checks.sh
source "$(dirname "$(readlink -f "$0")")/checks.sh"

after_failure() {
  printf '%s\n' "--- the system's state" >&2
  { systemctl --failed --no-legend
    systemctl --no-pager status 'sublet*'
    journalctl -b --no-pager -n 40 -o cat -u "sublet*"; } >&2 || true
}
active() { systemctl is-active --quiet "$@"; }
property() { systemctl show --value -p "$2" "$1"; }
main_pid() { property subletd.service MainPID; }
row_is() { sublet ps -o tag,state --no-header | grep -qx "$1 *$2"; }
program_is() { sublet programs -o user,tag,state --no-header 2>/dev/null | grep -qx "$1 *$2 *$3"; }
cards=(--env SIMGPU_DIR --env LD_LIBRARY_PATH)
export SIMGPU_DIR=/srv/gpu/simgpu LD_LIBRARY_PATH=/usr/lib/simgpu

# Another process has the daemon's place, and it answers.
newer_daemon() { local now; now=$(main_pid); [[ $now != 0 && $now != "$1" ]] && sublet status; }
# unit_of PID: the unit that has the process in its control group.
unit_of() { grep -oE 'sublet-keeper@[^/]*\.service' "/proc/$1/cgroup" | head -n 1; }

first_boot() {
  check "the system has booted" test "$(cat /proc/1/comm)" = systemd
  until_true active subletd.service || failed "the daemon is started at boot"
  passed "the daemon is started at boot"
  check "... and so are its sockets" active subletd.socket sublet-actor.socket sublet-keeper.socket
  check "... while stacks are off" bash -c '! systemctl is-active --quiet sublet-stacks.socket'
  until_true bash -c "sublet gpus -o gpu,state --no-header | grep -qx 'gpu0 *ok'" || failed "the card is read"
  until_true bash -c "sublet status --json | grep -q '\"parks_others\":true'" || failed "the actor is there"
  passed "the daemon reads the card, and the socket has started the actor"
  check "the daemon is a user of its own" test "$(stat -c %U "/proc/$(main_pid)")" = sublet
  check "... without capabilities" grep -qx 'CapEff:.0000000000000000' "/proc/$(main_pid)/status"

  echo "# security"
  for pair in subletd:15 sublet-actor:40 sublet-stacks:15; do
    check "systemd-analyze security of ${pair%:*} is at most ${pair#*:} tenths" \
      systemd-analyze security --no-pager --threshold="${pair#*:}" "${pair%:*}.service"
    grep -h 'Overall exposure' /tmp/said || true
  done

  echo "# socket activation"
  check "the daemon stops" systemctl stop subletd.service
  check "... and its socket stays" active subletd.socket
  check "a caller starts it" as ana sublet ps
  check "... indeed" active subletd.service

  echo "# restarts"
  as ana sublet run --wait 60s --vram 1GiB --tag long -- simgpu-load --alloc 256MiB --seconds 900 --verify \
    >/tmp/ana 2>&1 &
  until_true row_is long active || failed "ana's program runs"
  before=$(main_pid)
  check "the daemon restarts" systemctl restart subletd.service
  until_true newer_daemon "$before" || failed "another daemon is there"
  check "... and the lease lives on" row_is long active
  before=$(main_pid)
  kill -KILL "$before"
  until_true newer_daemon "$before" || failed "systemd starts the killed daemon again"
  passed "systemd starts a killed daemon again"
  check "... and the lease lives on" row_is long active

  echo "# supervised programs of two users"
  check "ana hands a program to the daemon" as ana sublet run --detach --tag serve --memory 896MiB \
    --restart on-failure "${cards[@]}" -- simgpu-load --alloc 256MiB --seconds 900 --verify
  check "ben hands a program to the daemon" as ben sublet run --detach --tag other --memory 896MiB --restart always \
    "${cards[@]}" -- simgpu-load --alloc 256MiB --seconds 900 --verify
  until_true program_is ana serve running || failed "ana's program runs"
  until_true program_is ben other running || failed "ben's program runs"
  until_true find_process ben simgpu-load || failed "ben's program is ben's"
  bens=$process
  check "ben's program has a unit of its own" test -n "$(unit_of "$bens")"
  check "... with the limits of a login, not those of the actor" grep -qx 'NoNewPrivs:.0' "/proc/$bens/status"
  check "the actor restarts" systemctl restart sublet-actor.service
  check "... and ends no program" kill -0 "$bens"
  until_true bash -c "sublet status --json | grep -q '\"parks_others\":true'" || failed "the newer actor is there"
  kill -KILL "$bens"
  comes_back() { find_process ben simgpu-load && [[ $process != "$bens" ]]; }
  until_true comes_back || failed "ben's program starts again"
  passed "ben's program starts again after a kill"
  check "ana reads her log" bash -c "runuser -u ana -- sublet logs serve"
  check "... in a folder" test -d "/var/lib/sublet/logs/$(id -u ana)"
  refuses 2 "... and ben cannot" as ben ls "/var/lib/sublet/logs/$(id -u ana)"

  echo "# a pause across users, by the confined actor"
  for key in checkpoint_us checkpoint_bandwidth restore_us restore_bandwidth; do
    simgpu-ctl --dir /srv/gpu set "$key" 0
  done
  # The urgent program does not fit unless this one is paused, whatever else is.
  as ana sublet run --wait 60s --vram 2560MiB --tag train -- simgpu-load --alloc 1GiB --seconds 8 --verify \
    >/tmp/train 2>&1 &
  train=$!
  until_true bash -c "sublet ps -o tag,state,used --no-header | grep -qE '^train +active +1'" || failed "train runs"
  check "ben's urgent program gets its memory" as ben sublet run --wait 60s --vram 3456MiB --tier interactive -- \
    simgpu-load --alloc 1GiB --seconds 2 --verify
  check "... and ana's program comes back, right to its last byte" wait "$train"
  check "... after a pause" bash -c "sublet why train | grep -qi paused"

  echo "# an upgrade"
  find_process ana sublet-keep || failed "the keeper of ana's program is there"
  keeper=$process before=$(main_pid)
  as ben sublet run --wait 60s --vram 1GiB --tag parked -- simgpu-load --alloc 256MiB --seconds 5 --verify \
    >/tmp/parked 2>&1 &
  parked=$!
  until_true bash -c "sublet ps -o tag,state,used --no-header | grep -qE '^parked +active +[1-9]'" ||
    failed "ben's program has its memory"
  check "ben parks a program before the upgrade" as ben sublet pause parked
  until_true row_is parked paused || failed "ben's program is parked"
  check "the newer packages install over the older" dpkg --force-confdef --force-confold -i \
    /packages/new/sublet_*.deb /packages/new/sublet-simgpu_*.deb
  until_true newer_daemon "$before" || failed "the newer daemon runs"
  passed "the newer daemon runs"
  check "... with its sockets" active subletd.socket sublet-actor.socket sublet-keeper.socket
  check "the lease lives on" row_is long active
  check "ana's supervised program lives on" kill -0 "$keeper"
  until_true program_is ana serve running || failed "the newer daemon supervises it"
  passed "... and the newer daemon supervises it"
  check "ben's program is still parked" row_is parked paused
  until_true bash -c "sublet status --json | grep -q '\"parks_others\":true'" || failed "the newer actor is there"
  check "ben resumes it" as ben sublet resume parked
  check "... and it comes back, right to its last byte" wait "$parked"
  refuses 1 "a downgrade is refused" dpkg -i /packages/old/sublet_*.deb
  says "refused to replace version" "... by name and number"
  check "... and the daemon runs on" active subletd.service

  echo "# the journal"
  journalctl --sync || true
  check "entries about a lease have its field" bash -c \
    "journalctl -b -u subletd -o json --no-pager | grep -q '\"SUBLET_LEASE\":\"lease-'"
  check "... and entries about a program" bash -c \
    "journalctl -b -u subletd -o json --no-pager | grep -q '\"SUBLET_PROGRAM\":\"'"
  check "... each with its priority and its name" bash -c \
    "journalctl -b -u subletd -o json --no-pager SYSLOG_IDENTIFIER=subletd | grep SUBLET_LEASE |
     grep -q '\"PRIORITY\":\"[3-7]\"'"

  echo "# stacks"
  groupadd -f docker
  sed -i -e '/^\[stacks\]/,/^\[/s|^#enabled = .*|enabled = true|' \
    -e '/^\[stacks\]/,/^\[/s|^#dir = .*|dir = "/srv/stacks"|' /etc/sublet/sublet.toml
  mkdir -p /srv/stacks/chat
  printf 'services:\n  chat:\n    image: chat\n' >/srv/stacks/chat/compose.yaml
  check "an administrator turns stacks on" systemctl enable --now sublet-stacks.socket
  check "... and restarts the daemon" systemctl restart subletd.service
  until_true active sublet-stacks.service || failed "the socket starts the worker of stacks"
  passed "the socket starts the worker of stacks"
  pid=$(property sublet-stacks.service MainPID)
  check "... as a user of its own, in the engine's group" bash -c "[[ \$(stat -c %U /proc/$pid) == sublet-stacks ]] &&
    grep -q \"^Groups:.*\$(getent group docker | cut -d: -f3)\" /proc/$pid/status"
  until_true bash -c "sublet stack ls 2>&1 | grep -q chat" || failed "the stack is found"
  passed "the stack is found"
  check "doctor says what stacks lack" bash -c "sublet doctor --json; sublet doctor | grep -iE 'engine|compose|docker'"

  echo "# the watchdog"
  before=$(main_pid)
  kill -STOP "$before"
  until_true newer_daemon "$before" || failed "systemd ends a daemon that hangs, and starts another one"
  passed "systemd ends a daemon that hangs, and starts another one"
  check "... for the watchdog" bash -c "journalctl -b -u subletd -o cat --no-pager | grep -qi 'watchdog timeout'"
  check "... and the lease lives on" row_is long active
  check "... and so do supervised programs" program_is ana serve running

  echo "# before the reboot"
  check "ben's program is stopped before the reboot" as ben sublet stop other
  until_true program_is ben other stopped || failed "ben's program is stopped"
  check "no unit of ours has failed" bash -c "! systemctl --failed --no-legend | grep sublet"
  [[ $(systemctl is-enabled subletd.service) == enabled ]] || failed "the daemon is enabled"
}

second_boot() {
  until_true active subletd.service || failed "the daemon is started at the second boot"
  passed "the daemon is started at the second boot"
  # The simulated card is in a file, and outlives the reboot as a table without processes.
  until_true bash -c "sublet gpus -o gpu,state --no-header | grep -qx 'gpu0 *ok'" || failed "the card is read"
  until_true find_process ana simgpu-load || failed "ana's program is started again after the reboot"
  until_true program_is ana serve running || failed "ana's program is there again after the reboot"
  passed "ana's program is there again after the reboot"
  check "... without a failure before" bash -c "sublet status serve --json | grep -vq '\"end_reason\":\"failed\"'"
  check "ben's program, which he stopped, stays stopped" program_is ben other stopped
  until_true bash -c "! sublet ps -o tag --no-header | grep -qx 'long *'" || failed "the lease of before has ended"
  passed "the lease of before has ended"
  check "no unit of ours has failed" bash -c "! systemctl --failed --no-legend | grep sublet"

  echo "# removal"
  until_true find_process ana simgpu-load || failed "ana's program is ana's"
  check "the package is removed" dpkg -r sublet-simgpu sublet
  until_true bash -c "! kill -0 $process" || failed "the removal ends supervised programs"
  passed "the removal ends supervised programs"
  check "... and the services" bash -c "! systemctl is-active --quiet subletd.service subletd.socket"
  install=(/packages/new/install.sh --system)
  archive=$(echo /packages/new/sublet-*-linux-x86_64.tar.gz)
  refuses 1 "the archive is refused beside a package that is not purged" "${install[@]}" "$archive"
  says "Purge it first (apt purge sublet)" "... with what to do"
  check "... before anything is copied" gone /usr/local/bin/sublet
  check "the package is purged" dpkg -P sublet
  check "nothing of it is left in systemd" bash -c "! systemctl list-units --all --no-legend 'sublet*' | grep loaded"

  echo "# the archive, by its install script"
  rm -f /etc/systemd/system/sublet*.d/test.conf
  unset SIMGPU_DIR LD_LIBRARY_PATH
  check "the install script installs for the system" "${install[@]}" "$archive"
  says "checksum of sublet-" "... after the checksum"
  says "sublet doctor:" "... with doctor as its last step"
  check "... starts the daemon" active subletd.service
  check "... of its own folder" bash -c "readlink /proc/\$(systemctl show --value -p MainPID subletd)/exe |
    grep -qx /usr/local/bin/subletd"
  check "a member of the group may look" as ana sublet status
  check "the loader finds the library" bash -c "ldconfig -p | grep -q '/usr/local/lib/.*libsublet.so.0'"
  refuses 1 "the package is refused beside the archive" dpkg -i /packages/new/sublet_*.deb
  says "install.sh has installed Sublet in /usr/local" "... with the reason"
  check "... and the daemon runs on" active subletd.service
  check "it installs over itself" "${install[@]}" "$archive"
  check "an administrator's disable ..." systemctl disable subletd.service
  check "... outlives an upgrade" "${install[@]}" "$archive"
  refuses 1 "... indeed" systemctl is-enabled --quiet subletd.service
  check "it removes, by the script that it left" sh /usr/local/share/sublet/install.sh --system --remove
  check "... after its services have stopped" bash -c "! systemctl is-active subletd.service subletd.socket \
    sublet-actor.service sublet-actor.socket sublet-keeper.socket"
  check "... programs and units" gone /usr/local/bin/sublet
  check "... indeed" gone /usr/local/lib/systemd/system/subletd.service
  check "... and not the leases" test -s /var/lib/sublet/store.db
}

if [[ ! -e /packages/booted ]]; then
  touch /packages/booted
  first_boot
  printf '%d checks passed\n' "$count"
  systemctl reboot
else
  second_boot
  printf '%d checks passed\n' "$count"
  touch /packages/passed
  systemctl poweroff
fi
