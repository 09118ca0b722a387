#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a minimal new Debian or Ubuntu in a folder; scripts that test in such a system source this file. Expects say(),
# die(), and unable() for what this machine lacks. Mounts are made in a mount namespace of their own. They end with the
# program in it, and removing the folder never reaches the host's /proc, /dev or /sys.

# The systems for which packages are made.
systems="debian12 debian13 ubuntu22.04 ubuntu24.04"

suite_of() {
  case $1 in
    debian12) echo bookworm ;;
    debian13) echo trixie ;;
    ubuntu22.04) echo jammy ;;
    ubuntu24.04) echo noble ;;
    *) die "there is no system '$1'; there are: $systems" 2 ;;
  esac
}

# Making a system needs root and debootstrap.
need_debootstrap() {
  [[ $(id -u) == 0 ]] || unable "needs root: it makes a system of its own by debootstrap and chroot"
  command -v debootstrap >/dev/null && return 0
  command -v apt-get >/dev/null || unable "needs debootstrap"
  say "installing debootstrap"
  DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout=600 install --no-install-recommends \
    debootstrap </dev/null >&2 || unable "apt could not install debootstrap"
}

# enter ROOT DIR COMMAND...: runs the command in the new system. The caller must be pid 1 of a new pid namespace with a
# mount table of its own: unshare --mount --pid --fork --kill-child --propagation private.
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

# Names of the variables that tell apt, pip and TLS libraries how to reach the network.
network_variables() {
  compgen -e |
    grep -iE '^((https?|all|no)_proxy|PIP_.*|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE)$' || true
}

# Prints "URI SUITE COMPONENTS..." for each apt source of Debian 12 itself on the host, in either format. Third-party
# sources are left out: they are not part of a minimal system, and need keys that it does not have.
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

# sources SUITE: "URI SUITE COMPONENTS..." for each apt source of the new system, by the host's mirror. Nothing if the
# host has none of that kind: debootstrap then uses its own default.
sources() {
  local suite=$1 kind=debian mirror own
  case $suite in jammy | noble) kind=ubuntu ;; esac
  own=$(host_sources | grep -E "^[^ ]+/$kind(-security)?/? $suite(-updates|-security)? " | sort -u || true)
  if [[ -n $own ]]; then
    echo "$own"
    return
  fi
  mirror=$(host_sources | awk -v kind="/$kind/?$" '$1 ~ kind { print $1; exit }')
  [[ -z $mirror ]] || echo "$mirror $suite main"
}

# ubuntu_keys FOLDER: prints the file with the keys of Ubuntu's archive. Debian 13 and later have a package with them.
ubuntu_keys() {
  local folder=$1 file=/usr/share/keyrings/ubuntu-archive-keyring.gpg apt
  if [[ -f $file ]]; then echo "$file"; return; fi
  mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial" "$folder/keys"
  sources trixie | sed 's|^|deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] |' >"$folder/sources.list"
  apt=(apt-get -q -o Dir::Etc::SourceList="$folder/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o Dir::State::Lists="$folder/lists" -o Dir::Cache="$folder/cache")
  { "${apt[@]}" update && cd "$folder/keys" && "${apt[@]}" -o APT::Sandbox::User=root download ubuntu-keyring &&
    dpkg-deb -x ubuntu-keyring_*.deb .; } >"$folder/log" 2>&1 </dev/null ||
    { tail -n 5 "$folder/log" >&2; return 1; }
  echo "$folder/keys$file"
}

# Gives the new system the host's network settings: apt's settings, certificates, pip's configuration.
copy_network_settings() {
  local root=$1 file name
  cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
  cp /etc/hosts "$root/etc/hosts" 2>/dev/null || true
  for file in /etc/apt/apt.conf /etc/apt/apt.conf.d/* /etc/apt/auth.conf.d/*; do
    [[ -f $file ]] || continue
    # Hooks and paths of the host's own programs have no meaning there: only settings for fetching are kept.
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

# make_system ROOT [SUITE]: Debian 12, unless another suite is named. FRESH_CACHE=DIR keeps new systems there for the
# next call.
make_system() {
  local root=$1 suite=${2:-bookworm} list mirror proxy keys=() script=() from=()
  if [[ -n ${FRESH_CACHE:-} && -d $FRESH_CACHE/$suite ]]; then
    say "$suite as it was made before"
    cp -a "$FRESH_CACHE/$suite" "$root"
    return
  fi
  list=$(sources "$suite")
  mirror=$(awk -v suite="$suite" '$2 == suite { print $1; exit }' <<<"$list")
  case $suite in
    jammy | noble)
      keys=(--keyring "$(ubuntu_keys "$root.keys")") || unable "without the keys of Ubuntu's archive"
      # All releases of Ubuntu are made by one script. An older debootstrap does not know the names of later releases.
      script=(gutsy)
      ;;
  esac
  [[ -z $mirror ]] || from=("$mirror" "${script[@]}")
  # apt may know a proxy that the environment does not name; debootstrap knows only the environment.
  proxy=$(apt-config dump --format '%v' Acquire::http::Proxy 2>/dev/null || true)
  say "debootstrap $suite into $root"
  if ! env ${proxy:+http_proxy=$proxy} debootstrap --variant=minbase "${keys[@]}" "$suite" "$root" \
      "${from[@]}" >"$root.log" 2>&1 </dev/null; then
    tail -n 20 "$root.log" >&2
    unable "debootstrap failed"
  fi
  [[ -z $mirror ]] || sed 's/^/deb /' <<<"$list" >"$root/etc/apt/sources.list"
  copy_network_settings "$root"
  if [[ -n ${FRESH_CACHE:-} ]]; then
    mkdir -p "$FRESH_CACHE"
    # An interrupted copy must not look like a system.
    rm -rf --one-file-system "$FRESH_CACHE/.$suite"
    cp -a "$root" "$FRESH_CACHE/.$suite"
    mv -T "$FRESH_CACHE/.$suite" "$FRESH_CACHE/$suite"
  fi
}

# check_systems SYSTEM...: a name that there is not ends the script with 2.
check_systems() {
  local system
  for system in "$@"; do suite_of "$system" >/dev/null; done
}

# in_each_system COMMAND... -- SYSTEM...: calls the command with each system. One system that cannot be made does not
# keep the others from being tested. Ends with 1 after a failure, and with 77 if a system was skipped.
in_each_system() {
  local command=() system status failed=0 skipped=
  while [[ $1 != -- ]]; do command+=("$1"); shift; done
  shift
  for system in "$@"; do
    # A condition would turn `set -e` off in the subshell.
    set +e
    (set -e; "${command[@]}" "$system")
    status=$?
    set -e
    case $status in
      0) say "$system: passed" ;;
      77) skipped="$skipped $system"; say "$system: skipped" ;;
      130 | 143) exit $status ;;
      *) failed=1; say "$system: failed" ;;
    esac
  done
  [[ $failed == 0 ]] || exit 1
  [[ -z $skipped ]] || unable "these systems:$skipped"
}
