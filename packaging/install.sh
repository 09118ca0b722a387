#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs a released archive of Sublet, without packages and without compilers. Reads no network but for the archive.
set -eu
umask 022                   # a service has another user, who must be able to read what is installed
PATH=$PATH:/usr/sbin:/sbin  # `su` keeps the path of the user
export PATH

usage() {
  cat <<'HELP'
install.sh --user | --system [ARCHIVE]   install Sublet
install.sh --user | --system --remove    remove what this script installed; leases and configuration stay

  --user      into ~/.local, for you alone; needs no root
  --system    into /usr/local, with the accounts and the services of a shared machine; needs root
  --prefix D  with --user: into another folder than ~/.local
  ARCHIVE     sublet-VERSION-linux-x86_64.tar.gz, a file or a URL of https. SHA256SUMS must lie beside it. Without
              ARCHIVE the unpacked archive that has this script is installed.

SUBLET_ALLOW_DOWNGRADE=1 lets an older version replace a newer version. TMPDIR=D unpacks the archive in D.
HELP
}

units="sublet-keeper.socket sublet-actor.socket subletd.socket subletd.service"

say() { printf '== %s\n' "$*"; }
die() { printf 'install.sh: %s\n' "$1" >&2; exit "${2:-1}"; }
need() { command -v "$1" >/dev/null || die "needs the program $1, which is not on this machine"; }

# attempt WHAT COMMAND...: a failure is told, and the installation goes on to its end.
trouble=
attempt() {
  what=$1
  shift
  "$@" && return
  trouble=1
  say "failed: $what"
}

work=
clean_up() { [ -z "$work" ] || rm -rf "$work"; }
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

# fetch URL FILE
fetch() {
  if command -v curl >/dev/null; then curl -fsSL --proto =https -o "$2" "$1" || die "cannot fetch $1"
  elif command -v wget >/dev/null; then wget -q -O "$2" "$1" || die "cannot fetch $1"
  else die "needs curl or wget to fetch $1; fetch the archive and SHA256SUMS yourself, and give the file"
  fi
}

# Checks the sum of the file $1 by the list $2.
check_sum() {
  need sha256sum
  noted=$(sed -n "s/^\([0-9a-f]\{64\}\)  $(basename "$1" | sed 's/[.[\*^$]/\\&/g')\$/\1/p" "$2" | head -n 1)
  [ -n "$noted" ] || die "$2 has no checksum of $(basename "$1"); take both files from one release"
  found=$(sha256sum "$1" | cut -d ' ' -f 1)
  [ "$noted" = "$found" ] ||
    die "$(basename "$1") has the checksum $found, and not $noted: it is damaged or another file; fetch it again"
  say "the checksum of $(basename "$1") is right"
}

is_release() { [ -f "$1/VERSION" ] && [ -f "$1/bin/sublet" ]; }

# Leads to the folder of the unpacked archive, in $tree.
find_tree() {
  if [ -z "$archive" ]; then
    tree=$(cd "$(dirname "$0")" && pwd)
    is_release "$tree" ||
      die "there is no unpacked release beside this script: give the archive as an argument" 2
    return
  fi
  need tar
  need gzip
  work=$(mktemp -d)
  case $archive in
    http://*) die "$archive is not fetched: without https the checksums prove nothing; give an address of https" 2 ;;
    https://*)
      fetch "$archive" "$work/$(basename "$archive")"
      fetch "$(dirname "$archive")/SHA256SUMS" "$work/SHA256SUMS"
      archive=$work/$(basename "$archive")
      ;;
    *)
      [ -f "$archive" ] || die "there is no file $archive"
      ;;
  esac
  sums=$(dirname "$archive")/SHA256SUMS
  [ -f "$sums" ] || die "there is no SHA256SUMS beside $archive: the archive cannot be checked"
  check_sum "$archive" "$sums"
  mkdir "$work/tree"
  tar -xzf "$archive" -C "$work/tree" --strip-components=1 --no-same-owner
  tree=$work/tree
  is_release "$tree" || die "$archive is no release of Sublet"
}

# The programs must run here before anything is changed.
check_programs() {
  [ "$(uname -sm)" = "Linux x86_64" ] || die "Sublet runs on Linux on x86-64, and this is $(uname -sm)"
  status=0
  said=$("$tree/bin/sublet" --version 2>&1) || status=$?
  case $status in
    0) ;;
    126) die "no program may run in $tree ($said). If it is mounted noexec: TMPDIR=/another/folder sh install.sh ..." ;;
    *) printf '%s\n' "$said" >&2
      die "the programs do not run here: they need glibc 2.35 or later (Debian 12, Ubuntu 22.04)" ;;
  esac
}

# An older daemon may not know the store of a newer daemon.
check_version() {
  [ -f "$prefix/share/sublet/version" ] && [ -z "${SUBLET_ALLOW_DOWNGRADE:-}" ] || return 0
  there=$(cat "$prefix/share/sublet/version")
  here=$(cat "$tree/VERSION")
  newest=$(printf '%s\n' "$there" "$here" | sort -V | tail -n 1)
  [ "$newest" = "$here" ] || die "refused to replace version $there in $prefix by the older version $here. The older \
daemon may not be able to read the leases of the newer daemon. Nothing was changed. To go back all the same, keep a \
copy of the state (docs/upgrading.md), and set SUBLET_ALLOW_DOWNGRADE=1 for this command"
}

# The package and the archive have the same units, accounts and data: one of both may be here.
check_package() {
  command -v dpkg-query >/dev/null || return 0
  case $(dpkg-query -W -f='${db:Status-Status}' sublet 2>/dev/null) in
    '' | not-installed) ;;
    config-files) die "the package sublet was removed here, but not purged. Purging it later would delete \
/etc/sublet/sublet.toml of this installation. Purge it first (apt purge sublet). That deletes its leases too: \
docs/upgrading.md tells how to keep them" ;;
    *) die "the package sublet is installed here: install the newer package, or remove and purge it first. \
docs/upgrading.md tells how to keep its leases" ;;
  esac
}

# A removed package leaves such links.
check_masks() {
  [ -z "$installed" ] || return 0
  for unit in $units; do
    [ "$(readlink "/etc/systemd/system/$unit" || true)" != /dev/null ] ||
      die "the unit $unit is masked, so that Sublet cannot start: systemctl unmask $units"
  done
}

check_system() {
  [ "$(id -u)" = 0 ] || die "--system needs root; without root: install.sh --user"
  check_package
  check_masks
  command -v systemd-sysusers >/dev/null || { need groupadd && need useradd && need usermod; }
}

# put FILE PLACE MODE: copies a file to its place and notes it. A running program keeps its old file.
put() {
  mkdir -p "$(dirname "$2")"
  rm -f "$2.new"
  cp -P "$1" "$2.new"
  if [ ! -h "$1" ]; then chmod "$3" "$2.new"; fi
  mv -f "$2.new" "$2"
  printf '%s\n' "$2" >>"$manifest.new"
}

copy_files() {
  manifest=$prefix/share/sublet/installed-files
  mkdir -p "$prefix/share/sublet"
  : >"$manifest.new"
  (cd "$tree" && find bin lib share include \( -type f -o -type l \) 2>/dev/null | sort) >"$manifest.list"
  while IFS= read -r name; do
    mode_of=644
    case $name in
      bin/sublet-gpu) mode_of=711 ;; # no process of a user may take over a helper
      bin/* | lib/*.so*) mode_of=755 ;;
      lib/systemd/* | lib/sysusers.d/* | lib/tmpfiles.d/*) [ "$mode" = system ] || continue ;;
    esac
    case $name in
      lib/systemd/*) # the units name their programs and documents
        sed -e "s|/usr/bin/|$prefix/bin/|" -e "s|file:/usr/share/|file:$prefix/share/|" "$tree/$name" \
          >"$manifest.unit"
        put "$manifest.unit" "$prefix/$name" "$mode_of"
        ;;
      *) put "$tree/$name" "$prefix/$name" "$mode_of" ;;
    esac
  done <"$manifest.list"
  rm -f "$manifest.list" "$manifest.unit"
  put "$tree/install.sh" "$prefix/share/sublet/install.sh" 755  # removes this installation
  put "$tree/VERSION" "$prefix/share/sublet/version" 644
  # A file of an earlier version that this version does not have goes.
  if [ -f "$manifest" ]; then
    sort "$manifest" >"$manifest.old"
    sort "$manifest.new" | comm -23 "$manifest.old" - | while IFS= read -r path; do rm -f "$path"; done
    rm -f "$manifest.old"
  fi
  mv -f "$manifest.new" "$manifest"
}

make_accounts() {
  if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers "$prefix/lib/sysusers.d/sublet.conf"
    return
  fi
  for group in sublet sublet-admin sublet-logs sublet-stacks; do
    getent group "$group" >/dev/null || groupadd --system "$group" || return
  done
  for user in sublet sublet-stacks; do
    getent passwd "$user" >/dev/null || useradd --system --gid "$user" --home-dir "/var/lib/$user" \
      --no-create-home --shell /usr/sbin/nologin "$user" || return
  done
  usermod -aG sublet-logs sublet
}

# A restart ends no program. A service that an administrator disabled or stopped stays so over an upgrade.
# shellcheck disable=SC2086 # one word per unit
start_services() {
  attempt "systemctl daemon-reload" systemctl daemon-reload
  if [ -z "$installed" ]; then
    attempt "a start of the services; see journalctl -u subletd" systemctl --quiet enable --now $units
    return
  fi
  attempt "a restart of the helpers of the daemon" systemctl try-restart sublet-actor.service sublet-stacks.service
  if systemctl --quiet is-enabled subletd.service; then
    [ -z "$new_units" ] || attempt "a start of $new_units" systemctl --quiet enable --now $new_units
    attempt "a restart of the daemon; see journalctl -u subletd" systemctl restart subletd.service
  else
    attempt "a restart of the daemon; see journalctl -u subletd" systemctl try-restart subletd.service
  fi
}

install_system() {
  attempt "the making of the accounts" make_accounts
  mkdir -p /etc/sublet
  [ -e /etc/sublet/sublet.toml ] || cp "$prefix/share/doc/sublet/sublet.toml" /etc/sublet/sublet.toml
  if command -v ldconfig >/dev/null; then attempt ldconfig ldconfig; fi
  if [ -d /run/systemd/system ]; then
    start_services
  else
    say "systemd does not run here: start subletd by your own service manager"
  fi
}

remove() {
  manifest=$prefix/share/sublet/installed-files
  [ -f "$manifest" ] || die "nothing of Sublet is noted in $manifest: this script did not install it there"
  if [ "$mode" = system ]; then
    [ "$(id -u)" = 0 ] || die "--system needs root"
    if [ -d /run/systemd/system ]; then
      # shellcheck disable=SC2086
      systemctl --quiet disable --now $units sublet-actor.service sublet-stacks.socket sublet-stacks.service || true
      # Supervised programs end: nothing could stop them later.
      systemctl stop 'sublet-keeper@*.service' || true
      # shellcheck disable=SC2086
      ! systemctl --quiet is-active $units || die "not all services have stopped: see systemctl status 'sublet*'"
    fi
  fi
  while IFS= read -r path; do
    rm -f "$path"
  done <"$manifest"
  rm -f "$manifest"
  if [ "$mode" = system ] && command -v ldconfig >/dev/null; then ldconfig || true; fi
  # Only folders that are ours alone go.
  find "$prefix/lib/simgpu" "$prefix/lib/sublet" "$prefix/share/sublet" "$prefix/share/doc/sublet" \
    "$prefix/share/doc/sublet-simgpu" "$prefix/include/sublet" -depth -type d -exec rmdir {} + 2>/dev/null || true
  if [ "$mode" = system ]; then
    [ ! -d /run/systemd/system ] || systemctl daemon-reload
    say "Sublet is removed. /etc/sublet, /var/lib/sublet and the accounts stay"
  else
    say "Sublet is removed"
  fi
}

finish() {
  say "Sublet $(cat "$tree/VERSION") is installed in $prefix"
  case :$PATH: in
    *":$prefix/bin:"*) ;;
    *) say "first: export PATH=$prefix/bin:\$PATH     (in ~/.profile too)" ;;
  esac
  if [ "$mode" = system ]; then
    say "next: usermod -aG sublet USER     (each user who may lease; takes effect at the next login)"
  else
    say "next: subletd --dir ~/gpu &     then in each shell: . ~/gpu/env     (without a GPU: --sim 1x4GiB)"
  fi
  say "sublet doctor: what works on this machine, and what would help"
  "$prefix/bin/sublet" doctor || true
  [ -z "$trouble" ] || die "Sublet is installed, but not all steps succeeded: see the lines with 'failed:' above"
}

# choose_prefix: the folder for all files. systemd and the loader look into /usr/local; /usr belongs to packages.
choose_prefix() {
  if [ "$mode" = system ]; then
    [ -n "$prefix" ] || prefix=/usr/local
  else
    [ -n "$prefix" ] || prefix=${HOME:?}/.local
  fi
  case $prefix in
    /*) ;;
    *) prefix=$PWD/$prefix ;;
  esac
  prefix=$(printf '%s' "$prefix" | sed 's|/*$||')
  case $mode$prefix in
    system/usr/local) ;;
    system*) die "--system installs into /usr/local only, where systemd finds the units, and not into $prefix" 2 ;;
    user | user/usr | user/usr/local) die "--user does not install into ${prefix:-/}: there is --system" 2 ;;
  esac
}

main() {
  mode='' archive='' prefix='' removing=''
  while [ $# -gt 0 ]; do
    case $1 in
      --user | --system) mode=${1#--} ;;
      --prefix) [ $# -gt 1 ] || die "--prefix needs a folder" 2; prefix=$2; shift ;;
      --remove) removing=1 ;;
      -h | --help) usage; exit 0 ;;
      -*) usage >&2; die "unknown argument '$1'" 2 ;;
      *) [ -z "$archive" ] || die "one archive only, and not '$1' too" 2; archive=$1 ;;
    esac
    shift
  done
  [ -n "$mode" ] || { usage >&2; die "for whom? --user or --system" 2; }
  choose_prefix
  if [ -n "$removing" ]; then
    remove
    return
  fi
  installed='' new_units=''
  [ ! -f "$prefix/share/sublet/installed-files" ] || installed=1
  for unit in $units; do [ -f "$prefix/lib/systemd/system/$unit" ] || new_units="$new_units $unit"; done
  [ "$mode" = user ] || check_system
  find_tree
  check_programs
  check_version
  copy_files
  [ "$mode" = user ] || install_system
  finish
}

main "$@"
