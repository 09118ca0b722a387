#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a release and tests it: the verbs release, package, test-package and test-boot of ./dev, which sources this.

# list_libraries VERSION: build-release/sbom/PACKAGE.spdx.json, what is linked into the programs of each package.
list_libraries() {
  local programs=build-release/bin time
  time=$("$python" tools/package.py --time)
  rm -rf build-release/sbom
  "$python" tools/sbom.py build-release --name sublet --version "$1" --time "$time" \
    --out build-release/sbom/sublet.spdx.json \
    --programs $(cd $programs && ls | grep -vE '^(simgpu|sublet-(kube|probe)$)') \
    sublet_client_shared sublet_client_static
  "$python" tools/sbom.py build-release --name sublet-simgpu --version "$1" --time "$time" \
    --out build-release/sbom/sublet-simgpu.spdx.json --programs $(cd $programs && ls | grep '^simgpu') simgpu_cuda \
    nvidia-ml
  "$python" tools/sbom.py build-release --name sublet-kube --version "$1" --time "$time" \
    --out build-release/sbom/sublet-kube.spdx.json --programs sublet-kube sublet-probe
}

# stage_packages DIR VERSION: what the release build installs, as .deb files in DIR.
stage_packages() {
  local stage=$PWD/build-release/stage
  rm -rf "$stage"
  DESTDIR=$stage/sublet cmake --install build-release --strip >/dev/null
  DESTDIR=$stage/sublet-simgpu cmake --install build-release --strip --component simgpu >/dev/null
  DESTDIR=$stage/sublet-kube cmake --install build-release --strip --component kube >/dev/null
  [[ ! -f build-release/lib/slurm/spank_sublet.so ]] ||
    DESTDIR=$stage/sublet-slurm cmake --install build-release --strip --component slurm >/dev/null
  "$python" tools/package.py "$stage" "$1" --version "$2" --sbom build-release/sbom
}

# The installed tree in dist/, and all that is given to others in packages/. The same commit makes the same bytes.
make_release() {
  local version=
  case "${1:-}" in
    '') ;;
    --version) [[ -n ${2:-} ]] || die "--version needs a version" 2; version=$2 ;;
    *) die "release: unknown argument '$1'; there is --version" 2 ;;
  esac
  command -v dpkg-deb >/dev/null || die "no dpkg-deb here: a release is made on Debian or Ubuntu"
  umask 022  # another umask would change the bytes
  verb_setup
  configure build-release --preset release
  ninja -C build-release -j "$jobs" </dev/null
  rm -rf dist packages
  DESTDIR="$PWD/dist" cmake --install build-release --strip >/dev/null
  DESTDIR="$PWD/dist" cmake --install build-release --strip --component simgpu >/dev/null
  DESTDIR="$PWD/dist" cmake --install build-release --strip --component kube >/dev/null
  [[ -n $version ]] || version=$("$python" tools/package.py --print-version)
  list_libraries "$version"
  stage_packages packages "$version"
  "$python" tools/python_package.py packages --version "$version"
  rm -rf build-release/archive-tree
  cp -a dist build-release/archive-tree
  "$python" tools/archive.py build-release/archive-tree packages --version "$version" \
    --sbom build-release/sbom/sublet.spdx.json --sbom build-release/sbom/sublet-simgpu.spdx.json \
    --sbom build-release/sbom/sublet-kube.spdx.json
  "$python" tools/check_release.py dist --packages packages
}

make_packages() {
  (command -v lintian >/dev/null || apt_install lintian) || say "without lintian"
  make_release "$@"
  if command -v lintian >/dev/null; then
    lintian --fail-on error,warning --suppress-tags bad-distribution-in-changes-file packages/*.deb
  else
    say "lintian is not installed: the packages are not checked by it"
  fi
}

# made_release WORD...: makes the release, unless --made says that packages/ has it. The other words are systems, which
# `systems` has afterwards.
made_release() {
  local made= word
  systems=()
  for word in "$@"; do
    case $word in
      --made) made=1 ;;
      debian12 | debian13 | ubuntu22.04 | ubuntu24.04) systems+=("$word") ;;
      *) die "there is no system '$word'; there are: debian12 debian13 ubuntu22.04 ubuntu24.04, and --made" 2 ;;
    esac
  done
  if [[ -z $made ]]; then
    make_packages
  elif [[ ! -f packages/SHA256SUMS ]]; then
    die "no packages/SHA256SUMS: make the release first (./dev package)" 2
  fi
}

# Two versions of the same tree, so that there is something to upgrade.
stage_older() {
  rm -rf build-release/older
  stage_packages build-release/older 0.0.1
}

test_packages() {
  made_release "$@"
  stage_older
  exec bash tools/test_package.sh build-release/older packages "${systems[@]}"
}

test_boot() {
  made_release "$@"
  stage_older
  exec bash tools/test_boot.sh build-release/older packages "${systems[@]}"
}
