#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How a minimal new Debian 12 is made in a folder; sourced by what tries things in one. Expects say() and die().
# Mounts are made in a mount namespace of their own, so that they end with the program in it however it ends, and
# removing the folder can never reach the host's /proc, /dev or /sys.

suite=bookworm

# Root and debootstrap are what making a system takes.
need_debootstrap() {
  [[ $(id -u) == 0 ]] || die "needs root: it makes a system of its own by debootstrap and chroot"
  command -v debootstrap >/dev/null && return 0
  command -v apt-get >/dev/null || die "needs debootstrap"
  say "installing debootstrap"
  DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout=600 install --no-install-recommends \
    debootstrap </dev/null >&2 || die "apt could not install debootstrap"
}

# enter ROOT DIR COMMAND...: in the new system, which must be pid 1 of a new pid namespace with a mount table of its
# own: unshare --mount --pid --fork --kill-child --propagation private.
enter() {
  local root=$1 dir=$2
  shift 2
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  mount -t tmpfs -o mode=755 tmpfs "$root/run"
  # The new system takes only the variables that reaching the network needs from the caller's environment.
  local keep=() name
  while IFS= read -r name; do keep+=("$name=${!name}"); done < <(network_variables)
  [[ -z ${SUBLET_JOBS:-} ]] || keep+=("SUBLET_JOBS=$SUBLET_JOBS")
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "${keep[@]}" \
    chroot "$root" /bin/bash -c 'cd "$0" && "$@"' "$dir" "$@"
}

# Names of the variables by which apt, pip and TLS libraries are told how to reach the network.
network_variables() {
  compgen -e |
    grep -iE '^((https?|all|no)_proxy|PIP_.*|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE)$' || true
}

# Prints "URI SUITE COMPONENTS..." for each apt source of Debian 12 itself that the host has, in either
# format. Sources of other makers stay out: they are not part of a minimal system, and need keys that it does
# not have.
host_sources() {
  local files=()
  [[ -f /etc/apt/sources.list ]] && files+=(/etc/apt/sources.list)
  files+=(/etc/apt/sources.list.d/*.list)
  cat "${files[@]}" 2>/dev/null | sed -nE 's/^deb +(\[[^]]*\] +)?//p'
  local file
  for file in /etc/apt/sources.list.d/*.sources; do
    [[ -f $file ]] || continue
    awk 'function out(   i, n, m, u, s) {
           if (types ~ /(^| )deb( |$)/ && enabled != "no") {
             n = split(uris, u, " "); m = split(suites, s, " ")
             for (i = 1; i <= n; i++) for (j = 1; j <= m; j++) print u[i], s[j], components
           }
           types = uris = suites = components = enabled = ""
         }
         /^[[:space:]]*$/ { out(); next }
         { key = tolower($1); $1 = ""; sub(/^ /, "") }
         key == "types:" { types = $0 } key == "uris:" { uris = $0 } key == "suites:" { suites = $0 }
         key == "components:" { components = $0 } key == "enabled:" { enabled = tolower($0) }
         END { out() }' "$file"
  done
}

debian_sources() {
  host_sources | grep -E "^[^ ]+/debian(-security)?/? $suite(-updates|-security)? " | sort -u || true
}

# Gives the new system the host's way to the network: apt's settings, certificates, pip's configuration.
copy_network_settings() {
  local root=$1 file name
  cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
  cp /etc/hosts "$root/etc/hosts" 2>/dev/null || true
  for file in /etc/apt/apt.conf /etc/apt/apt.conf.d/* /etc/apt/auth.conf.d/*; do
    [[ -f $file ]] || continue
    # Hooks and paths of the host's own programs have no meaning there: keep what is about fetching.
    grep -qiE 'Acquire|Proxy' "$file" && ! grep -qE 'Pre-Invoke|Post-Invoke|Methods' "$file" || continue
    install -D -m 644 "$file" "$root$file"
  done
  for file in /etc/pip.conf /usr/local/share/ca-certificates/*.crt /etc/ssl/certs/ca-certificates.crt; do
    [[ -f $file ]] && install -D -m 644 "$(readlink -f "$file")" "$root$file"
  done
  while IFS= read -r name; do
    [[ ${!name} == /* && -f ${!name} ]] && install -D -m 644 "$(readlink -f "${!name}")" "$root${!name}"
  done < <(network_variables)
  return 0
}

make_system() {
  local root=$1 sources mirror proxy
  sources=$(debian_sources)
  # Without one, debootstrap takes the mirror it knows itself and writes the sources.list.
  mirror=$(awk -v suite="$suite" '$2 == suite { print $1; exit }' <<<"$sources")
  # apt may know a proxy that the environment does not name; debootstrap knows only the environment.
  proxy=$(apt-config dump --format '%v' Acquire::http::Proxy 2>/dev/null || true)
  say "debootstrap $suite into $root"
  if ! env ${proxy:+http_proxy=$proxy} debootstrap --variant=minbase "$suite" "$root" ${mirror:+"$mirror"} \
      >"$root.log" 2>&1 </dev/null; then
    tail -n 20 "$root.log" >&2
    die "debootstrap failed"
  fi
  [[ -z $mirror ]] || sed 's/^/deb /' <<<"$sources" >"$root/etc/apt/sources.list"
  copy_network_settings "$root"
}
