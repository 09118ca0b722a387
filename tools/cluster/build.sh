#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the programs of a real Kubernetes cluster for `./dev test cluster`, once, into a cache outside of the build
# folder. Kubernetes itself is compiled from its Go modules. etcd, containerd and kubectl are unpacked from Debian's
# newest suite. Nothing is installed. A run that was cut off goes on where it was.
set -euo pipefail

version=${SUBLET_CLUSTER_VERSION:-1.36.3}
cache=${SUBLET_CLUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sublet-cluster}/$version
compiled=(kubelet kube-apiserver kube-scheduler kube-controller-manager)
debian=(etcd-server containerd kubectl)
helm=4.2.4
jobs=${SUBLET_JOBS:-$(nproc)}

say() { printf '== %s\n' "$*" >&2; }
die() { printf 'cluster-build: %s\n' "$*" >&2; exit 1; }

# needs PROGRAM PACKAGE: stops with the package's name where the program is missing.
needs() { command -v "$1" >/dev/null || die "no $1 here: install $2"; }

# A Go module whose tools are the programs of Kubernetes. The published module has no staging folder: each of its
# replace lines becomes the published module of the same number.
write_module() {
  local source
  source=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
  [[ -d $source ]] || die "the Go module k8s.io/kubernetes v$version cannot be fetched"
  {
    echo "module sublet.example/cluster"
    echo "go $(sed -n 's/^go //p' "$source/go.mod")"
    echo "require k8s.io/kubernetes v$version"
    echo "replace ("
    sed -n 's#^\t\(k8s.io/[a-z-]*\) => ./staging/.*#\t\1 => \1 v0.'"${version#1.}"'#p' "$source/go.mod"
    echo ")"
    echo "tool ("
    printf '\tk8s.io/kubernetes/cmd/%s\n' "${compiled[@]}"
    echo ")"
  } >go.mod
  cp "$source/go.sum" go.sum
  chmod u+w go.sum
}

# compile PROGRAM: into bin/, by a rename, so that a half of a program is never taken for a whole one.
compile() {
  local name=$1 stamp=k8s.io/component-base/version minor
  [[ -x $cache/bin/$name ]] && return 0
  minor=${version#*.}
  say "compiling $name $version"
  go build -p "$jobs" -trimpath -o "$cache/work/$name" \
    -ldflags "-s -w -X $stamp.gitVersion=v$version -X $stamp.gitMajor=${version%%.*} -X $stamp.gitMinor=${minor%%.*}" \
    "k8s.io/kubernetes/cmd/$name"
  mv "$cache/work/$name" "$cache/bin/$name"
}

# Helm renders and installs the chart. Its module takes the libraries of Kubernetes in the version that was compiled.
compile_helm() {
  [[ -x $cache/bin/helm ]] && return 0
  local module
  mkdir -p "$cache/work/helm"
  cd "$cache/work/helm"
  {
    printf 'module sublet.example/helm\ngo 1.26\nrequire helm.sh/helm/v4 v%s\n' "$helm"
    for module in api apiextensions-apiserver apimachinery apiserver cli-runtime client-go component-base kubectl; do
      echo "require k8s.io/$module v0.${version#*.}"
    done
    echo "tool helm.sh/helm/v4/cmd/helm"
  } >go.mod
  say "compiling helm $helm"
  go build -p "$jobs" -trimpath -o "$cache/work/helm-program" -ldflags "-s -w" helm.sh/helm/v4/cmd/helm
  mv "$cache/work/helm-program" "$cache/bin/helm"
}

compile_all() {
  local name missing=
  for name in "${compiled[@]}" helm; do [[ -x $cache/bin/$name ]] || missing=1; done
  [[ -n $missing ]] || return 0
  needs go "Go 1.26 or later"
  export GOFLAGS="-buildvcs=false -modcacherw -mod=mod" CGO_ENABLED=0 GOMAXPROCS=$jobs
  mkdir -p "$cache/work/module"
  cd "$cache/work/module"
  write_module
  for name in "${compiled[@]}"; do compile "$name"; done
  compile_helm
}

# The mirror that this machine's own apt uses for Debian.
mirror() {
  local found
  found=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null | grep -m1 'debian/*$') ||
    found=$(cat /etc/apt/sources.list.d/*.sources 2>/dev/null | sed -n 's/^URIs: *//p' | grep -m1 'debian/*$') ||
    die "the apt sources name no Debian mirror"
  echo "$found"
}

unpack_debian() {
  local apt=$cache/work/apt package
  [[ -x $cache/root/usr/bin/containerd ]] && return 0
  needs apt-get "apt"
  needs dpkg "dpkg"
  say "fetching ${debian[*]}"
  mkdir -p "$apt/lists/partial" "$apt/debs" "$cache/work/root"
  printf 'Types: deb\nURIs: %s\nSuites: sid\nComponents: main\nSigned-By: %s\n' "$(mirror)" \
    /usr/share/keyrings/debian-archive-keyring.gpg >"$apt/sid.sources"
  local options=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$apt" -o "Dir::State::lists=$apt/lists"
    -o Dir::State::status=/dev/null -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update -qq
  (cd "$apt/debs" && apt-get "${options[@]}" download -qq "${debian[@]}")
  for package in "$apt"/debs/*.deb; do
    dpkg -x "$package" "$cache/work/root"
    dpkg-deb -W --showformat='${Package} ${Version}\n' "$package"
  done >"$cache/work/debian-versions"
  mv "$cache/work/root" "$cache/root"
  mv "$cache/work/debian-versions" "$cache/debian-versions"
}

mkdir -p "$cache/bin" "$cache/work"
exec 9>"$cache/lock"
flock 9
[[ -f $cache/complete ]] && { say "complete: $cache"; exit 0; }
needs runc "the package runc"
unpack_debian
(compile_all)
rm -rf "$cache/work"
{ echo "kubernetes $version"; echo "helm $helm"; cat "$cache/debian-versions"; } >"$cache/complete.new"
mv "$cache/complete.new" "$cache/complete"
say "complete: $cache"
