#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes Debian packages from installed trees: what `./dev package` calls after `cmake --install`.

STAGE/PACKAGE is the root of what one package installs. Policy's places and forms (compressed documents, the
configuration in /etc, the changelog) are given here, so that an installation by hand stays plain. The same
tree and the same SOURCE_DATE_EPOCH make the same bytes.
"""
import argparse
import email.utils
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_release  # noqa: E402
import sbom  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEBIAN = ROOT / "packaging/debian"
PACKAGES = ("sublet", "sublet-simgpu", "sublet-kube", "sublet-slurm")
OPTIONAL = ("sublet-kube", "sublet-slurm")  # made where its tree was installed
MAINTAINER = "Sublet maintainers <maintainers@sublet.example>"


def git(*arguments):
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def default_version():
    """The project's version. Between releases it has a number that grows with every commit and sorts before the
    release.
    """
    version = re.search(r"project\(sublet VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    if git("describe", "--tags", "--exact-match") == f"v{version}" or not git("rev-parse", "HEAD"):
        return version
    return f"{version}~dev{git('rev-list', '--count', 'HEAD')}"


def build_time():
    """Returns the time of SOURCE_DATE_EPOCH, else of the last commit."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct") or 0)


def compress(path):
    with open(path, "rb") as source, open(f"{path}.gz", "wb") as target:
        # No name and no time in it: the same text makes the same bytes.
        with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=target, mtime=0) as out:
            shutil.copyfileobj(source, out)
    path.unlink()


def move(path, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    path.rename(target)
    if not any(path.parent.iterdir()):
        path.parent.rmdir()


def changes():
    """Returns CHANGELOG.md's newest section as the entries of a Debian changelog."""
    section = re.split(r"(?m)^## .*\n", (ROOT / "CHANGELOG.md").read_text())[1]
    text = re.sub(r"[`*]", "", section).strip()
    entries = [re.sub(r"\s+", " ", entry).strip() for entry in re.split(r"(?m)^- |\n\n", text)]
    return [entry for entry in entries if entry and not entry.startswith("#")]  # "### Added" is no entry


def write_changelog(path, package, version, when):
    wrapped = []
    for entry in changes():
        line = "  *"
        for word in entry.split():
            if len(line) + 1 + len(word) > 78:
                wrapped.append(line)
                line = "   "
            line += " " + word
        wrapped.append(line)
    path.write_text(f"{package} ({version}) unstable; urgency=medium\n\n" + "\n".join(wrapped) +
                    f"\n\n -- {MAINTAINER}  {email.utils.formatdate(when)}\n")
    compress(path)


def licence_text(library):
    """Returns the file with a library's licence. Linked libraries want their texts to come along."""
    text = pathlib.Path("/usr/share/doc") / library / "copyright"
    if not text.exists():
        raise SystemExit(f"package: {text} is missing, and a release needs it: install {library} again")
    return text


def mode_of(path):
    """Returns the mode of a file or a folder in a release. The umask of the build has no part in it."""
    if path.is_dir():
        return 0o755
    mode = path.stat().st_mode
    if mode & 0o050 == 0o010:
        return 0o711  # a program that only its owner may read (0017)
    return 0o755 if mode & 0o100 else 0o644


def arrange(package, tree, version, when, document):
    """Moves the files of `cmake --install` to Debian's places, and adds the files that only a package has."""
    share = tree / "usr/share"
    for page in share.glob("man/man?/*.[1-9]"):
        compress(page)
    doc = share / "doc" / package
    if (doc / "sublet.toml").exists():
        move(doc / "sublet.toml", tree / "etc/sublet/sublet.toml")
    doc.mkdir(parents=True, exist_ok=True)  # this was the last file in the folder
    if (share / "zsh/site-functions/_sublet").exists():
        move(share / "zsh/site-functions/_sublet", share / "zsh/vendor-completions/_sublet")
    (doc / "LICENSE").unlink(missing_ok=True)  # /usr/share/common-licenses has it
    shutil.copy(DEBIAN / "copyright", doc / "copyright")
    if (doc / "CHANGELOG.md").exists():
        compress(doc / "CHANGELOG.md")
    write_changelog(doc / "changelog", package, version, when)
    overrides = DEBIAN / f"{package}.lintian-overrides"
    if overrides.exists():
        (share / "lintian/overrides").mkdir(parents=True)
        shutil.copy(overrides, share / "lintian/overrides" / package)
    if document:
        shutil.copy(document, doc / document.name)
        (doc / "third-party").mkdir()
        for library in sbom.read_libraries(document):
            shutil.copy(licence_text(library), doc / f"third-party/{library}.txt")
            compress(doc / f"third-party/{library}.txt")
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            # Debian wants libraries that nobody may run.
            path.chmod(0o644 if ".so" in path.name else mode_of(path))


def needed_libraries(tree):
    """Returns "libc6 (>= 2.34)": the highest glibc version that any program needs."""
    versions = set()
    for path in tree.rglob("*"):
        if path.is_symlink() or not path.is_file() or path.open("rb").read(4) != b"\x7fELF":
            continue
        dump = check_release.readelf
        _, asked, _ = check_release.parse(dump("-d", path), dump("-V", path), dump("-S", path))
        versions |= {tuple(map(int, version.removeprefix("GLIBC_").split("."))) for version in asked}
    if not versions:
        raise SystemExit(f"package: no program below {tree}")
    return f"libc6 (>= {'.'.join(map(str, max(versions)))})"


def needed_slurm():
    """Returns "slurm-client (>= 22.05), slurm-client (<< 22.06~)": Slurm loads plugins of its own version only."""
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libslurm-dev"], check=True, capture_output=True,
                          text=True)
    year, month = map(int, re.match(r"(?:\d+:)?(\d+)\.(\d+)", done.stdout).groups())
    return f"slurm-client (>= {year}.{month:02}), slurm-client (<< {year}.{month + 1:02}~)"


def write_control(package, tree, values):
    control = tree / "DEBIAN"
    control.mkdir()
    text = (DEBIAN / f"{package}.control").read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    (control / "control").write_text(text)
    for name, mode in (("conffiles", 0o644), ("shlibs", 0o644), ("triggers", 0o644), ("preinst", 0o755),
                       ("postinst", 0o755), ("prerm", 0o755), ("postrm", 0o755)):
        source = DEBIAN / f"{package}.{name}"
        if source.exists():
            (control / name).write_text(source.read_text().replace("@VERSION@", values["VERSION"]))
            (control / name).chmod(mode)
    sums = []
    for path in sorted(tree.rglob("*")):
        if path.is_file() and not path.is_symlink() and "DEBIAN" not in path.relative_to(tree).parts:
            done = subprocess.run(["md5sum", str(path.relative_to(tree))], cwd=tree, check=True, capture_output=True,
                                  text=True)
            sums.append(done.stdout)
    (control / "md5sums").write_text("".join(sums))


def build(package, stage, out, version, when, document):
    tree = stage / package
    arrange(package, tree, version, when, document)
    architecture = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True,
                                  text=True).stdout.strip()
    size = sum(path.lstat().st_size for path in tree.rglob("*") if path.is_file()) // 1024 + 1
    write_control(package, tree, {"VERSION": version, "ARCHITECTURE": architecture, "SIZE": size,
                                  "DEPENDS": needed_libraries(tree),
                                  "SLURM": needed_slurm() if package == "sublet-slurm" else ""})
    for path in tree.rglob("*"):  # dpkg-deb takes off only times after the release
        os.utime(path, (when, when), follow_symlinks=False)
    target = out / f"{package}_{version}_{architecture}.deb"
    # Every dpkg that we support can read xz. One thread makes the same bytes on every machine.
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(tree), str(target)], check=True,
                   env={**os.environ, "SOURCE_DATE_EPOCH": str(when), "DPKG_DEB_THREADS_MAX": "1"},
                   stdout=subprocess.DEVNULL)
    print(f"{target.name:44} {target.stat().st_size // 1024:6} KiB, installed {size} KiB")
    return target


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", type=pathlib.Path, nargs="?")
    parser.add_argument("out", type=pathlib.Path, nargs="?")
    parser.add_argument("--version", default=default_version())
    parser.add_argument("--sbom", type=pathlib.Path, help="the folder with PACKAGE.spdx.json of each package")
    parser.add_argument("--print-version", action="store_true", help="print the version and end")
    parser.add_argument("--time", action="store_true", help="print the time of the release in seconds, and end")
    args = parser.parse_args(argv)
    when = build_time()
    if args.print_version or args.time:
        print(args.version if args.print_version else when)
        return 0
    if not args.stage or not args.out:
        parser.error("needs STAGE and OUT")
    os.umask(0o022)  # the folders of a package are open
    args.out.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        if package in OPTIONAL and not (args.stage / package).exists():
            continue
        document = args.sbom / f"{package}.spdx.json" if args.sbom and package != "sublet-slurm" else None
        build(package, args.stage.resolve(), args.out.resolve(), args.version, when, document)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
