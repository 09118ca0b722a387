#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# In a new system: installs the packages of /packages/old, uses them, upgrades to those of /packages/new, removes,
# purges. Every line of output is one thing that was tried; the first that fails ends the script.
set -euo pipefail

count=0
failed() { printf 'FAILED: %s\n' "$1" >&2; [[ ! -s /tmp/said ]] || sed 's/^/  | /' /tmp/said >&2; exit 1; }
passed() { count=$((count + 1)); printf 'ok: %s\n' "$1"; }
# check WHAT COMMAND...: the command succeeds.
check() {
  local what=$1
  shift
  "$@" >/tmp/said 2>&1 || failed "$what"
  passed "$what"
}
# refuses STATUS WHAT COMMAND...: the command ends with that status.
refuses() {
  local status=$1 what=$2 got=0
  shift 2
  "$@" >/tmp/said 2>&1 || got=$?
  [[ $got == "$status" ]] || failed "$what: status $got, not $status"
  passed "$what"
}
# says TEXT WHAT: what the last command said.
says() { grep -qF -- "$1" /tmp/said || failed "$2: it does not say '$1'"; passed "$2"; }
# says_nothing_of TEXT WHAT: what the last command did not say.
says_nothing_of() { ! grep -qF -- "$1" /tmp/said || failed "$2: it says '$1'"; passed "$2"; }
as() { runuser -u "$1" -- "${@:2}"; }
gone() { [[ ! -e $1 && ! -L $1 ]]; }

# A daemon by hand, as where systemd is not. Returns when it serves.
start_daemon() {
  rm -f /tmp/ready
  mkfifo /tmp/ready
  subletd --ready-fd 9 "$@" 9>/tmp/ready >/tmp/daemon.log 2>&1 &
  daemon=$!
  [[ $(head -n 1 /tmp/ready) == ready ]] || { cat /tmp/daemon.log; failed "subletd $* serves"; }
}
stop_daemon() { kill "$daemon"; wait "$daemon" || true; }
until_true() {
  local i
  for ((i = 0; i < 600; ++i)); do
    "$@" >/tmp/said 2>&1 && return
    read -rt 0.1 <>/tmp/never || true
  done
  return 1
}
# What is on the system, without what every package leaves.
listing() {
  find / -xdev \( -path /tmp -o -path /var/lib/dpkg -o -path /var/log -o -path /var/cache -o -path /packages \) -prune \
    -o -print | sort
}

rm -f /tmp/never; mkfifo /tmp/never
export DEBIAN_FRONTEND=noninteractive
listing >/tmp/before

# ------------------------------------------------------------------------------------------ install
check "the package installs without systemd" dpkg -i /packages/old/sublet_*.deb
check "its files are as dpkg was told" dpkg --verify sublet
check "the group sublet is there" getent group sublet
check "the group sublet-admin is there" getent group sublet-admin
check "the user sublet is there, with no shell" grep -q '^sublet:.*:/var/lib/sublet:/usr/sbin/nologin$' /etc/passwd
check "the unit is where systemd looks" test -f /usr/lib/systemd/system/subletd.service
check "... and the actor's" test -f /usr/lib/systemd/system/sublet-actor.service \
  -a -f /usr/lib/systemd/system/sublet-actor.socket -a -x /usr/bin/sublet-actor
check "the configuration is the administrator's" grep -q sublet.toml /var/lib/dpkg/info/sublet.conffiles
check "the configuration is right" sublet config check --system
check "there is a manual" zcat /usr/share/man/man1/sublet.1.gz /usr/share/man/man1/sublet-run.1.gz \
  /usr/share/man/man8/subletd.8.gz /usr/share/man/man8/sublet-actor.8.gz /usr/share/man/man5/sublet.toml.5.gz
check "the shells can complete" test -s /usr/share/bash-completion/completions/sublet \
  -a -s /usr/share/zsh/vendor-completions/_sublet -a -s /usr/share/fish/vendor_completions.d/sublet.fish
check "bash completes verbs" bash -c 'source /usr/share/bash-completion/completions/sublet
  COMP_WORDS=(sublet stat) COMP_CWORD=1; _sublet; [[ ${COMPREPLY[0]} == status ]]'
refuses 69 "without a daemon the exit status says so" sublet status
says "hint:" "... and what to do"
refuses 1 "doctor finds no daemon" sublet doctor
says "no daemon answers" "... and says so"

# ------------------------------------------------------------------------------------------ the system's daemon
for user in ana ben eve; do useradd --create-home "$user"; done
for user in ana ben; do usermod -aG sublet "$user"; done
start_daemon
check "a member of the group sublet may look" as ana sublet status
says "of the system" "... and sees the system's daemon"
refuses 77 "a stranger may not" as eve sublet ps
says "add the account to the group" "... and is told how to become a member"
refuses 1 "doctor says what a machine without a GPU lacks" as ana sublet doctor
stop_daemon
check "leases of the system are kept in /var/lib/sublet" test -s /var/lib/sublet/store.db

# ------------------------------------------------------------------------------------------ simulated cards
check "the simulated cards install" dpkg -i /packages/old/sublet-simgpu_*.deb
# The system's daemon on cards that it takes for real ones: two users share one.
check "cards are made" simgpu-ctl --dir /srv/gpu create 1x4GiB
chmod 755 /srv/gpu
chmod 1777 /srv/gpu/simgpu
sed -i 's|^#nvml = .*|nvml = "/usr/lib/simgpu/libnvidia-ml.so.1"|' /etc/sublet/sublet.toml
export SIMGPU_DIR=/srv/gpu/simgpu LD_LIBRARY_PATH=/usr/lib/simgpu
start_daemon
until_true bash -c "sublet gpus -o gpu,state --no-header | grep -qx 'gpu0 *ok'" || failed "the card is read"
check "a program runs under a lease and checks every byte" \
  as ana sublet run --wait 60s --vram 1GiB -- simgpu-load --alloc 512MiB --seconds 1 --verify
says_nothing_of "exit record" "... whose keeper may leave its exit record, and leaves it in silence"
says_nothing_of "was not told" "... and tells the daemon how it ended"
as ana sublet run --wait 60s --vram 3GiB --tag long -- simgpu-load --alloc 256MiB --seconds 600 >/tmp/ana 2>&1 &
long=$!
until_true sublet ps -o tag,state --no-header || failed "leases are listed"
until_true bash -c "sublet ps -o tag,state --no-header | grep -qx 'long *active'" || failed "ana's program runs"
as ben sublet run --vram 2GiB --tag behind -- simgpu-load --alloc 256MiB --seconds 0 >/tmp/ben 2>&1 &
second=$!
until_true grep -q 'waits: place 1' /tmp/ben || failed "ben waits"
check "who waits is told for whom" grep -q 'held by .*ana' /tmp/ben
check "why says it in words" as ben sublet why behind
refuses 77 "ben cannot end ana's lease" as ben sublet stop "$(sublet ps -o id,tag --no-header | sed -n 's/ *long$//p')"

# ------------------------------------------------------------------------------------------ upgrade
sed -i 's/^#claim_window = .*/claim_window = "11s"/' /etc/sublet/sublet.toml
check "the newer package installs over it" dpkg --force-confdef --force-confold -i /packages/new/sublet_*.deb \
  /packages/new/sublet-simgpu_*.deb
check "the administrator's change is kept" grep -qx 'claim_window = "11s"' /etc/sublet/sublet.toml
check "... and read" bash -c "sublet config show --system --origin | grep -q '11s.*sublet.toml:'"
check "the store is kept" test -s /var/lib/sublet/store.db
kill -KILL "$daemon"; wait "$daemon" || true
start_daemon
check "leases outlive the upgrade and the daemon" bash -c "sublet ps -o tag,state --no-header | grep -qx 'long *active'"
check "ana makes room" as ana sublet resize long 1GiB
check "ben's turn came" wait "$second"
check "ana's program ran all the time" as ana sublet stop long
check "the report names both" bash -c "sublet report -o name --no-header | grep -qx ana"
wait "$long" || true
stop_daemon

# ------------------------------------------------------------------------------------------ remove, purge
check "the packages are removed" dpkg -r sublet-simgpu sublet
check "the programs are gone" gone /usr/bin/sublet
check "the configuration stays" test -f /etc/sublet/sublet.toml
check "the leases stay" test -s /var/lib/sublet/store.db
check "the packages are purged" dpkg -P sublet-simgpu sublet
check "the configuration is gone" gone /etc/sublet
check "the leases are gone" gone /var/lib/sublet
ours='^/(srv|home|var/mail|var/spool/mail|run)(/|$)|^/etc/((passwd|group|shadow|gshadow|subuid|subgid)-?|.pwd.lock)$'
listing | grep -vE "$ours" >/tmp/after
check "nothing else is left behind" bash -c '! comm -13 /tmp/before /tmp/after | grep .'

# ------------------------------------------------------------------------------------------ with systemd's tools
if apt-get -q update >/tmp/said 2>&1 && apt-get -y -q install --no-install-recommends systemd >/tmp/said 2>&1; then
  userdel sublet; groupdel sublet-admin; groupdel sublet 2>/dev/null || true
  check "the package installs where systemd is" dpkg -i /packages/new/sublet_*.deb
  check "the groups are the same" getent group sublet sublet-admin
  check "the user is the same" grep -q '^sublet:.*:/var/lib/sublet:/usr/sbin/nologin$' /etc/passwd
  check "the daemon starts at the next boot" test -L /etc/systemd/system/multi-user.target.wants/subletd.service
  check "... and its actor" test -L /etc/systemd/system/sockets.target.wants/sublet-actor.socket
  check "systemd understands the units" systemd-analyze verify subletd.service sublet-actor.service sublet-actor.socket
  check "an administrator's disable ..." systemctl disable subletd.service
  check "... outlives an upgrade" dpkg -i /packages/new/sublet_*.deb
  check "... indeed" gone /etc/systemd/system/multi-user.target.wants/subletd.service
  check "it is purged" dpkg -P sublet
  check "no link to the unit is left" bash -c '! find /etc/systemd -name "sublet*" | grep .'
else
  printf 'skipped: systemd does not install here (no network?)\n'
fi
printf '%d checks passed\n' "$count"
