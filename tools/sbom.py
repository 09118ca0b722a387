#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the libraries of others that are in the programs of a release, as SPDX 2.3 (JSON).

Asks ninja for the files that made each program: the headers that were compiled in, and the archives that were linked.
dpkg tells their packages. The page for browsers, a part of subletd, has vendored files (web/vendor). The same build
makes the same bytes.

  tools/sbom.py build-release --programs sublet subletd --name sublet --version 0.1.0 --out FILE
"""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

# The licence of what we link, by the package that has it. A release with an unknown library fails: read its licence.
LICENCES = {
    r"libboost(1\.\d+)?-dev": "BSL-1.0",
    r"nlohmann-json3-dev": "MIT",
    r"libfmt-dev": "MIT",
    r"libspdlog-dev": "MIT",
    r"libsqlite3-dev": "blessing",
    r"libcli11-dev": "BSD-3-Clause",
    r"libtomlplusplus-dev": "MIT",
    r"libyaml-cpp-dev": "MIT",
    r"libhiredis-dev": "BSD-3-Clause",
    r"libssl-dev": "Apache-2.0",
    r"libncurses-dev": "X11-distribute-modifications-variant",
    r"libsodium-dev": "ISC",
    r"libgrpc(\+\+)?-dev": "Apache-2.0",
    r"libabsl-dev": "Apache-2.0",
    r"libprotobuf-dev": "BSD-3-Clause",
    r"libre2-dev": "BSD-3-Clause",
    r"libc-ares-dev": "MIT",
    r"zlib1g-dev": "Zlib",
    r"lib(stdc\+\+|gcc)-\d+-dev": "GPL-3.0-or-later WITH GCC-exception-3.1",
}
# The interface of the system, which is copied into static programs only.
SYSTEM = re.compile(r"(libc6|linux-libc|libcrypt)-dev")
SCRIPT = "SPDXRef-npm-"  # begin of the ids of vendored libraries
LIBC = "libc6-dev", "LGPL-2.1-or-later"
# Every program of C++ has these, by -static-libstdc++ and -static-libgcc.
RUNTIME = ("libstdc++.a", "libgcc.a")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout


def find_headers(build, inputs):
    """Returns the headers outside of the tree that ninja noted for these files."""
    found, mine = set(), False
    for line in run("ninja", "-C", build, "-t", "deps").splitlines():
        if not line.startswith(" "):
            mine = line.partition(":")[0] in inputs
        elif mine and line.strip().startswith("/usr/"):
            found.add(os.path.normpath(line.strip()))
    return found


def link_words(build, program):
    return run("ninja", "-C", build, "-t", "commands", program).splitlines()[-1].split()


def find_archives(build, program):
    return {word for word in link_words(build, program) if re.fullmatch(r"/usr/\S+\.a", word)}


def find_runtime_archives():
    return {os.path.realpath(run("g++", f"-print-file-name={name}").strip()) for name in RUNTIME}


def packages_of(files):
    """Returns the packages that own the files."""
    if not files:
        return set()
    owners = set()
    said = subprocess.run(["dpkg-query", "-S", *sorted(files)], capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"})
    for line in said.stdout.splitlines():
        owners |= {name.split(":")[0] for name in line.rpartition(": ")[0].split(", ")}
    lost = re.findall(r"no path found matching pattern (\S+)", said.stderr)
    if lost:
        raise SystemExit(f"sbom: no package owns {', '.join(lost[:5])}: a release is built from packages only")
    return {owner for owner in owners if not SYSTEM.fullmatch(owner)}


def licence_of(package):
    for pattern, licence in LICENCES.items():
        if re.fullmatch(pattern, package):
            return licence
    raise SystemExit(f"sbom: {package} is linked, and tools/sbom.py does not know its licence")


def components(build, programs):
    """Returns package -> {version, source, licence} of all that is in the programs."""
    inputs, archives = set(), find_runtime_archives()
    for program in programs:
        inputs |= set(run("ninja", "-C", build, "-t", "inputs", program).split("\n"))
        archives |= find_archives(build, program)
    found = {}
    for package in sorted(packages_of(find_headers(build, inputs) | archives)):
        version, source = run("dpkg-query", "-W", "-f=${Version} ${source:Package}", package).split()
        found[package] = {"version": version, "source": source, "licence": licence_of(package)}
    if any("-static" in link_words(build, program) for program in programs):
        package, licence = LIBC
        version, source = run("dpkg-query", "-W", "-f=${Version} ${source:Package}", package).split()
        found[package] = {"version": version, "source": source, "licence": licence}
    return found


def vendored(folder=pathlib.Path(__file__).resolve().parents[1] / "web/vendor"):
    """Returns name -> {version, licence} of the libraries in the page for browsers."""
    files = json.loads((folder / "vendored.json").read_text())
    return {one["name"]: one for file in files.values() for one in file["from"]}


def format_time(when):
    return datetime.datetime.fromtimestamp(when, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def name_distribution(release="/etc/os-release"):
    """Returns the id of the system that made the libraries, as in a package URL, and its name."""
    text = pathlib.Path(release).read_text() if os.path.exists(release) else ""
    found = dict(re.findall(r'(?m)^(\w+)="?(.*?)"?$', text))
    identity = found.get("ID", "debian")
    return identity, {"debian": "Debian", "ubuntu": "Ubuntu"}.get(identity, found.get("NAME", identity))


def document(name, version, found, when, scripts=()):
    """Returns the document as an object. `scripts`: the vendored libraries, as of vendored()."""
    distribution, supplier = name_distribution()
    own = {"SPDXID": "SPDXRef-sublet", "name": name, "versionInfo": version, "supplier": "Organization: Sublet",
           "downloadLocation": "NOASSERTION", "licenseDeclared": "Apache-2.0", "licenseConcluded": "Apache-2.0",
           "copyrightText": "Copyright 2026 the Sublet authors", "filesAnalyzed": False}
    packages, relations = [own], [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-sublet")]
    for package, facts in found.items():
        key = "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", package)
        packages.append({
            "SPDXID": key, "name": package, "versionInfo": facts["version"], "supplier": f"Organization: {supplier}",
            "sourceInfo": f"built from the source package {facts['source']}", "downloadLocation": "NOASSERTION",
            "licenseDeclared": facts["licence"], "licenseConcluded": facts["licence"], "copyrightText": "NOASSERTION",
            "filesAnalyzed": False, "externalRefs": [{
                "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                "referenceLocator": f"pkg:deb/{distribution}/{package}@{facts['version']}?arch=amd64"}]})
        relations.append(("SPDXRef-sublet", "STATIC_LINK", key))
    for one in dict(scripts).values():
        key = f"{SCRIPT}{one['name']}"
        packages.append({
            "SPDXID": key, "name": one["name"], "versionInfo": one["version"], "downloadLocation": "NOASSERTION",
            "licenseDeclared": one["licence"], "licenseConcluded": one["licence"], "copyrightText": "NOASSERTION",
            "filesAnalyzed": False, "externalRefs": [{
                "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                "referenceLocator": f"pkg:npm/{one['name']}@{one['version']}"}]})
        relations.append(("SPDXRef-sublet", "CONTAINS", key))
    text = json.dumps(packages, sort_keys=True).encode()
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"{name}-{version}",
            "documentNamespace": f"https://sublet.example/spdx/{name}-{version}-{hashlib.sha256(text).hexdigest()[:16]}",
            "creationInfo": {"created": format_time(when), "creators": ["Tool: sublet-tools-sbom"]},
            "packages": packages,
            "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b}
                              for a, kind, b in relations]}


def read_libraries(file):
    """Returns package -> licence of all that the document says is linked in. Vendored files have their licences."""
    packages = json.loads(pathlib.Path(file).read_text())["packages"]
    return {package["name"]: package["licenseDeclared"] for package in packages
            if package["SPDXID"] != "SPDXRef-sublet" and not package["SPDXID"].startswith(SCRIPT)}


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--programs", nargs="+", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--time", type=int, required=True, help="the time of the release, in seconds")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args(argv)
    found = components(args.build, args.programs)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    scripts = vendored() if "subletd" in args.programs else {}
    args.out.write_text(json.dumps(document(args.name, args.version, found, args.time, scripts), indent=1) + "\n")
    print(f"{args.name}: {len(found)} libraries are linked in: {', '.join(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
