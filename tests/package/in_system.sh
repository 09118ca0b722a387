#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# In a new system: installs the packages of /packages/old, uses them, upgrades to those of /packages/new, removes,
# purges. Every line of output is one check; the first failure ends the script.
set -euo pipefail

# shellcheck source=tests/package/checks.sh
source "$(dirname "$(readlink -f "$0")")/checks.sh"

after_failure() {
  tail -n 15 /tmp/daemon.log /tmp/actor.log /tmp/keepers.log >&2 || true
  sublet ps --all >&2 || true
  sublet programs >&2 || true
}

# Starts a daemon by hand, as on a machine without systemd. Returns when it serves.
as_service=()
start_daemon() {
  rm -f /tmp/ready
  mkfifo /tmp/ready
  "${as_service[@]}" subletd --ready-fd 9 "$@" 9>/tmp/ready >/tmp/daemon.log 2>&1 &
  daemon=$!
  [[ $(head -n 1 /tmp/ready) == ready ]] || { cat /tmp/daemon.log; failed "subletd $* serves"; }
}
stop_daemon() { kill "$daemon"; wait "$daemon" || true; }
# The part of a service manager for the actor: the socket, and the capabilities of its unit.
start_actor() {
  perl -MSocket -MPOSIX=dup2 -e '
    my $path = "/run/sublet-actor.sock";
    unlink $path;
    $^F = 9;
    socket(my $socket, AF_UNIX, SOCK_SEQPACKET, 0) or die $!;
    bind($socket, sockaddr_un($path)) && listen($socket, 8) or die $!;
    chown((getpwnam "sublet")[2], 0, $path) && chmod(0600, $path) == 1 or die $!;
    dup2(fileno($socket), 3) if fileno($socket) != 3;
    $ENV{LISTEN_FDS} = 1;
    $ENV{LISTEN_PID} = $$;
    exec @ARGV' setpriv --bounding-set=-all,+kill,+setuid,+setgid,+sys_ptrace,+net_admin --no-new-privs \
    sublet-actor listen --records /run/sublet-actor --keeper-service /run/sublet-keeper.sock \
    --driver /usr/lib/simgpu/libcuda.so.1 --env SIMGPU_DIR=/srv/gpu/simgpu >/tmp/actor.log 2>&1 &
  actor=$!
}
# The part of a service manager for keepers: each connection starts the command of the unit.
start_keeper_service() {
  local command
  command=$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/sublet-keeper@.service)
  perl -MSocket -MPOSIX=dup2 -e '
    my $path = "/run/sublet-keeper.sock";
    unlink $path;
    $SIG{CHLD} = "IGNORE";
    socket(my $socket, AF_UNIX, SOCK_SEQPACKET, 0) or die $!;
    bind($socket, sockaddr_un($path)) && listen($socket, 8) && chmod(0600, $path) == 1 or die $!;
    while (accept(my $order, $socket)) {
      next if fork;
      $SIG{CHLD} = "DEFAULT";
      dup2(fileno($order), 0);
      exec @ARGV;
    }' $command >/tmp/keepers.log 2>&1 &
  keeper_service=$!
}
stop_actor() { kill "$actor"; wait "$actor" || true; }
# Lists the files of the system, without the files that every package leaves.
listing() {
  find / -xdev \( -path /tmp -o -path /var/lib/dpkg -o -path /var/log -o -path /var/cache -o -path /packages \) -prune \
    -o -print | sort
}

export DEBIAN_FRONTEND=noninteractive
# apt brings the package that ours depends on. Not every minimal system has it.
command -v adduser >/dev/null || { apt-get -q update && apt-get -y -q install adduser; } >/tmp/said 2>&1 ||
  failed "apt installs adduser"
listing >/tmp/before

# ------------------------------------------------------------------------------------------ install
check "the package installs without systemd" dpkg -i /packages/old/sublet_*.deb
check "its files are as dpkg was told" dpkg --verify sublet
check "the group sublet is there" getent group sublet
check "the group sublet-admin is there" getent group sublet-admin
check "the daemon alone is in sublet-logs" bash -c "getent group sublet-logs | grep -q ':sublet$'"
check "the user sublet is there, with no shell" grep -q '^sublet:.*:/var/lib/sublet:/usr/sbin/nologin$' /etc/passwd
check "the unit is where systemd looks" test -f /usr/lib/systemd/system/subletd.service
check "... and the actor's" test -f /usr/lib/systemd/system/sublet-actor.service \
  -a -f /usr/lib/systemd/system/sublet-actor.socket -a -x /usr/bin/sublet-actor
check "... and those of the sockets and keepers" test -f /usr/lib/systemd/system/subletd.socket \
  -a -f /usr/lib/systemd/system/sublet-keeper.socket -a -f /usr/lib/systemd/system/sublet-keeper@.service
check "... and those of stacks" test -f /usr/lib/systemd/system/sublet-stacks.service \
  -a -f /usr/lib/systemd/system/sublet-stacks.socket -a -x /usr/bin/sublet-stacks
check "the user sublet-stacks is there" grep -q '^sublet-stacks:.*:/var/lib/sublet-stacks:/usr/sbin/nologin$' \
  /etc/passwd
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

# ------------------------------------------------------------------------------------------ the agent of Kubernetes
check "the agent of Kubernetes installs" dpkg -i /packages/old/sublet-kube_*.deb
check "... with its manual" zcat /usr/share/man/man8/sublet-kube.8.gz /usr/share/man/man1/sublet-probe.1.gz
check "... and the licences of what is in it" test -s /usr/share/doc/sublet-kube/third-party/libgrpc++-dev.txt.gz
check "the agent runs" sublet-kube --version
refuses 2 "without a cluster it does not start" sublet-kube --node-name here
says "give --api-server" "... and says what is missing"
check "the chart and the plugin of kubectl are there" test -f /usr/share/doc/sublet/kubernetes/chart/Chart.yaml \
  -a -f /usr/share/doc/sublet/kubernetes/Dockerfile -a -x /usr/share/sublet/kubernetes/kubectl-sublet \
  -a -x /usr/share/sublet/kubernetes/kube_image.py
mkdir /tmp/image
cp /usr/bin/sublet-probe /tmp/image/
check "the probe runs in an image that has no library" chroot /tmp/image /sublet-probe /sublet-probe --version
rm -r /tmp/image

# ------------------------------------------------------------------------------------------ simulated cards
check "the libraries in the programs are listed" grep -q '"spdxVersion": "SPDX-2.3"' \
  /usr/share/doc/sublet/sublet.spdx.json
check "... each with its licence" bash -c 'ls /usr/share/doc/sublet/third-party | grep -q libssl-dev.txt.gz'
check "the simulated cards install" dpkg -i /packages/old/sublet-simgpu_*.deb
# The system's daemon on cards that it takes for real: two users share a card.
check "cards are made" simgpu-ctl --dir /srv/gpu create 1x4GiB
chmod 755 /srv/gpu
chmod 1777 /srv/gpu/simgpu
sed -i -e 's|^#nvml = .*|nvml = "/usr/lib/simgpu/libnvidia-ml.so.1"|' \
  -e 's|^#driver = .*|driver = "/usr/lib/simgpu/libcuda.so.1"|' \
  -e 's|^#socket = .*|socket = "/run/sublet-actor.sock"|' /etc/sublet/sublet.toml
export SIMGPU_DIR=/srv/gpu/simgpu LD_LIBRARY_PATH=/usr/lib/simgpu
# As the units run them: a daemon of a plain user, and an actor with five capabilities.
sed -i 's|^#reserve = .*|reserve = "1MiB"|' /etc/sublet/sublet.toml  # simulated memory is sparse
chown -R sublet:sublet /var/lib/sublet /run/sublet
start_actor
as_service=(env STATE_DIRECTORY=/var/lib/sublet setpriv --reuid sublet --regid sublet --init-groups --no-new-privs
  --bounding-set=-all)
start_daemon
until_true bash -c "sublet gpus -o gpu,state --no-header | grep -qx 'gpu0 *ok'" || failed "the card is read"
until_true bash -c "sublet status --json | grep -q '\"parks_others\":true'" || failed "the actor is there"
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

# ------------------------------------------------------------------------------------------ two users, one card
for key in checkpoint_us checkpoint_bandwidth restore_us restore_bandwidth; do
  simgpu-ctl --dir /srv/gpu set "$key" 0
done
check "doctor says whose programs can be parked" bash -c "sublet doctor | grep 'programs of every user can be parked'"
check "... and that the driver can" bash -c "sublet doctor --json | grep -q 'the driver can park programs'"
as ben sublet stop behind >/tmp/said 2>&1 || true
wait "$second" || true
as ana sublet stop long >/tmp/said 2>&1 || failed "ana ends her program"
wait "$long" || true
as ana sublet run --wait 60s --vram 3GiB --tag train -- simgpu-load --alloc 1GiB --seconds 8 --verify >/tmp/ana 2>&1 &
train=$!
until_true bash -c "sublet ps -o tag,state,used --no-header | grep -qE '^train +active +1'" ||
  failed "ana's program has its memory"
# The helper that parks her program exists while it works, which is now until the faults are cleared.
simgpu-ctl --dir /srv/gpu fault checkpoint-hang
as ben sublet run --wait 60s --vram 2GiB --tier interactive --tag chat -- \
  simgpu-load --alloc 1GiB --seconds 2 --verify >/tmp/ben 2>&1 &
chat=$!
find_helper() {
  local process
  for process in /proc/[0-9]*; do
    tr '\0' ' ' <"$process/cmdline" 2>/dev/null | grep -q 'sublet-gpu checkpoint ' || continue
    helper=${process#/proc/}
    return
  done
  return 1
}
until_true find_helper || failed "a helper is there"
check "ana's program is parked by a helper that is ana's" test "$(stat -c %U "/proc/$helper")" = ana
check "... with no capability" grep -qx 'CapEff:.0000000000000000' "/proc/$helper/status"
check "... which is written down for the next actor" test -s "/run/sublet-actor/$helper"
simgpu-ctl --dir /srv/gpu clear
until_true bash -c "sublet ps -o tag,state --no-header | grep -qx 'train *paused'" || failed "ana's program steps aside"
passed "ana's program steps aside for ben's, which is more urgent"
until_true gone "/proc/$helper" || failed "who is parked needs no helper"
check "ben's program was right to its last byte" wait "$chat"
check "ana's program comes back, right to its last byte" wait "$train"

# ------------------------------------------------------------------------------------------ a supervised program
start_keeper_service
cards=(--env SIMGPU_DIR --env LD_LIBRARY_PATH)
check "ana hands a program to the daemon" as ana sublet run --detach --tag serve --memory 1GiB --restart on-failure \
  "${cards[@]}" -- sh -c 'echo started; exec simgpu-load --alloc 256MiB --seconds 600 --verify'
until_true bash -c "sublet proclist -o user,used --no-header | grep -q '^ana'" || failed "it has its memory"
check "... which has its log" bash -c "runuser -u ana -- sublet logs serve | grep -q started"
check "... in a folder" test -d "/var/lib/sublet/logs/$(id -u ana)"
refuses 2 "... that ben cannot read" as ben ls "/var/lib/sublet/logs/$(id -u ana)"
find_program() { find_process ana simgpu-load && program=$process; }
find_program || failed "ana's program is there"
kill -KILL "$program"
first=$program
comes_back() { find_program && [[ $program != "$first" ]]; }
until_true comes_back || failed "it starts again"
passed "it starts again after a failure"
check "ana stops it" as ana sublet stop serve
until_true bash -c "sublet programs -o tag,state --no-header | grep -qx 'serve *stopped'" || failed "it is stopped"
check "... and has it forgotten" as ana sublet remove serve

# ------------------------------------------------------------------------------------------ an admin
no_process() { ! find_process "$@"; }
useradd --create-home carol
usermod -aG sublet,sublet-admin carol
as ana sublet run --wait 60s --vram 1GiB --tag hers -- simgpu-load --alloc 256MiB --seconds 600 >/tmp/ana 2>&1 &
hers=$!
until_true bash -c "sublet ps -o tag,state --no-header | grep -qx 'hers *active'" || failed "ana's program runs"
lease=$(sublet ps -o id,tag --no-header | sed -n 's/ *hers$//p')
refuses 77 "ben is no admin" as ben sublet stop "$lease"
refuses 77 "... and makes no token of one" as ben sublet token create --scope admin
check "a member of sublet-admin makes an admin's token" as carol sublet token create --scope admin
find_process ana sublet || failed "ana's keeper is there"
kill -KILL "$process"
wait "$hers" || true
check "... and ends ana's program, whose keeper is gone" as carol sublet stop "$lease"
until_true no_process ana simgpu-load || failed "ana's program is gone"
passed "ana's program is gone"

# ------------------------------------------------------------------------------------------ upgrade
# A live lease, a supervised program, a parked program and a waiting program: all live on.
state_is() { sublet ps -o tag,state --no-header | grep -qx "$1 *$2"; }
check "ana hands a program to the daemon before the upgrade" as ana sublet run --detach --tag steady --memory 640MiB \
  --restart on-failure "${cards[@]}" -- simgpu-load --alloc 256MiB --seconds 600 --verify
until_true bash -c "sublet proclist -o user,used --no-header | grep -q '^ana'" || failed "it has its memory"
find_program || failed "ana's supervised program is there"
supervised=$program
as ben sublet run --wait 60s --vram 1GiB --tag parked -- simgpu-load --alloc 256MiB --seconds 5 --verify \
  >/tmp/parked 2>&1 &
parked=$!
until_true bash -c "sublet ps -o tag,state,used --no-header | grep -qE '^parked +active +[1-9]'" ||
  failed "ben's program has its memory"
check "ben parks a program before the upgrade" as ben sublet pause parked
until_true state_is parked paused || failed "ben's program is parked"
as ana sublet run --wait 60s --vram 3GiB --tag long -- simgpu-load --alloc 256MiB --seconds 600 --verify \
  >/tmp/ana 2>&1 &
long=$!
until_true state_is long active || failed "ana's program runs"
as ben sublet run --vram 2GiB --tag behind -- simgpu-load --alloc 256MiB --seconds 0 >/tmp/ben 2>&1 &
second=$!
until_true grep -q 'waits: place 1' /tmp/ben || failed "ben waits"
sed -i 's/^#claim_window = .*/claim_window = "11s"/' /etc/sublet/sublet.toml
check "the newer package installs over it" dpkg --force-confdef --force-confold -i /packages/new/sublet_*.deb \
  /packages/new/sublet-simgpu_*.deb /packages/new/sublet-kube_*.deb
check "... and that of the agent" dpkg --verify sublet-kube
check "the administrator's change is kept" grep -qx 'claim_window = "11s"' /etc/sublet/sublet.toml
check "... and read" bash -c "sublet config show --system --origin | grep -q '11s.*sublet.toml:'"
check "the store is kept" test -s /var/lib/sublet/store.db
kill -KILL "$daemon"; wait "$daemon" || true
stop_actor
start_actor
start_daemon
check "leases outlive the upgrade and the daemon" state_is long active
check "ana's supervised program lives on" kill -0 "$supervised"
until_true bash -c "sublet programs -o tag,state --no-header | grep -qx 'steady *running'" ||
  failed "the daemon knows the supervised program"
passed "... and the newer daemon supervises it"
check "ben's program is still parked" state_is parked paused

refuses 1 "a downgrade is refused" dpkg -i /packages/old/sublet_*.deb
says "refused to replace version" "... by name and number"
says "SUBLET_ALLOW_DOWNGRADE=1" "... with what to do"
check "... before anything is changed" bash -c "dpkg-query -W -f='\${Version} \${db:Status-Status}' sublet |
  grep -qx \"$(dpkg-deb -f /packages/new/sublet_*.deb Version) installed\""
check "... and leases live on" state_is long active

check "ana makes room" as ana sublet resize long 1GiB
check "ben's turn came" wait "$second"
check "ana's program ran all the time" as ana sublet stop long
until_true state_is steady active || failed "the supervised program is there"
as ben sublet resume parked >/tmp/said 2>&1 || failed "ben resumes the parked program"
check "the parked program comes back, right to its last byte" wait "$parked"
check "ana stops the supervised program" as ana sublet remove steady
until_true bash -c "! kill -0 $supervised" || failed "the supervised program is gone"
check "the report names both" bash -c "sublet report -o name --no-header | grep -qx ana"
wait "$long" || true
stop_daemon
stop_actor
kill "$keeper_service"; wait "$keeper_service" || true

# ------------------------------------------------------------------------------------------ remove, purge
check "the packages are removed" dpkg -r sublet-simgpu sublet-kube sublet
check "the programs are gone" gone /usr/bin/sublet
check "the configuration stays" test -f /etc/sublet/sublet.toml
check "the leases stay" test -s /var/lib/sublet/store.db
check "the packages are purged" dpkg -P sublet-simgpu sublet-kube sublet
check "the configuration is gone" gone /etc/sublet
check "the leases are gone" gone /var/lib/sublet
ours='^/(srv|home|var/mail|var/spool/mail|run)(/|$)|^/etc/((passwd|group|shadow|gshadow|subuid|subgid)-?|.pwd.lock)$'
listing | grep -vE "$ours" >/tmp/after
check "nothing else is left behind" bash -c '! comm -13 /tmp/before /tmp/after | grep .'

# ------------------------------------------------------------------------------------------ with systemd's tools
if apt-get -q update >/tmp/said 2>&1 && apt-get -y -q install --no-install-recommends systemd >/tmp/said 2>&1; then
  userdel sublet-stacks
  userdel sublet; groupdel sublet-admin; groupdel sublet-logs; groupdel sublet 2>/dev/null || true
  check "the package installs where systemd is" dpkg -i /packages/new/sublet_*.deb
  check "the groups are the same" getent group sublet sublet-admin sublet-logs
  check "the user is the same" grep -q '^sublet:.*:/var/lib/sublet:/usr/sbin/nologin$' /etc/passwd
  check "the daemon starts at the next boot" test -L /etc/systemd/system/multi-user.target.wants/subletd.service
  check "... and its sockets" test -L /etc/systemd/system/sockets.target.wants/sublet-actor.socket \
    -a -L /etc/systemd/system/sockets.target.wants/sublet-keeper.socket \
    -a -L /etc/systemd/system/sockets.target.wants/subletd.socket
  check "stacks are off" gone /etc/systemd/system/sockets.target.wants/sublet-stacks.socket
  check "systemd understands the units" systemd-analyze verify subletd.service subletd.socket \
    sublet-actor.service sublet-actor.socket sublet-keeper.socket sublet-keeper@1.service \
    sublet-stacks.service sublet-stacks.socket
  check "an administrator's disable ..." systemctl disable subletd.service
  check "... outlives an upgrade" dpkg -i /packages/new/sublet_*.deb
  check "... indeed" gone /etc/systemd/system/multi-user.target.wants/subletd.service
  check "it is purged" dpkg -P sublet
  check "no link to the unit is left" bash -c '! find /etc/systemd -name "sublet*" | grep .'
else
  printf 'skipped: systemd does not install here (no network?)\n'
fi
printf '%d checks passed\n' "$count"
