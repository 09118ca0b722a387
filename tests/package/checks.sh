#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Functions of the scripts in new systems. Each check is one line of output, and the first failure ends the script.

count=0
cd /  # a folder that every user may enter: programs start in the folder of their caller
# after_failure: the output that a script adds to a failure.
after_failure() { :; }
failed() {
  printf 'FAILED: %s\n' "$1" >&2
  [[ ! -s /tmp/said ]] || sed 's/^/  | /' /tmp/said >&2
  after_failure
  exit 1
}
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
# says TEXT WHAT: the last command's output contains the text.
says() { grep -qF -- "$1" /tmp/said || failed "$2: it does not say '$1'"; passed "$2"; }
# says_nothing_of TEXT WHAT: the last command's output does not contain the text.
says_nothing_of() { ! grep -qF -- "$1" /tmp/said || failed "$2: it says '$1'"; passed "$2"; }
as() { runuser -u "$1" -- "${@:2}"; }
gone() { [[ ! -e $1 && ! -L $1 ]]; }

rm -f /tmp/never
mkfifo /tmp/never
until_true() {
  local i
  for ((i = 0; i < 600; ++i)); do
    "$@" >/tmp/said 2>&1 && return
    read -rt 0.1 <>/tmp/never || true
  done
  return 1
}
# find_process USER NAME: the pid of one, in $process.
find_process() {
  local entry
  for entry in /proc/[0-9]*; do
    process=${entry#/proc/}
    [[ $(stat -c %U "$entry" 2>/dev/null) == "$1" && $(cat "$entry/comm" 2>/dev/null) == "$2" ]] && return
  done
  return 1
}
