#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the archive of a release from an installed tree, and the checksums of all files of the release.

The archive has one folder with bin, lib, share and install.sh. The same tree and the same time make the same bytes.
"""
import argparse
import gzip
import hashlib
import pathlib
import shutil
import sys
import tarfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import package  # noqa: E402
import sbom  # noqa: E402

INSTALLER = package.ROOT / "packaging/install.sh"


def archive_name(version):
    return f"sublet-{version}-linux-x86_64"


def add_notices(tree, documents):
    """Puts the lists of linked libraries, and the licences of these libraries, into the tree."""
    notices = tree / "share/doc/sublet/third-party"
    notices.mkdir(parents=True, exist_ok=True)
    for document in documents:
        shutil.copy(document, tree / "share/doc/sublet" / document.name)
        for library in sbom.read_libraries(document):
            shutil.copy(package.licence_text(library), notices / f"{library}.txt")


def member(path, name, when):
    info = tarfile.TarInfo(name)
    info.mtime, info.mode = when, 0o755
    if path.is_symlink():
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
    elif path.is_dir():
        info.type = tarfile.DIRTYPE
    else:
        info.size = path.stat().st_size
        info.mode = package.mode_of(path)
    return info


def pack(tree, target, top, when):
    """Writes all below the tree as TARGET, in the order of names, below the folder TOP."""
    with open(target, "wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in [tree, *sorted(tree.rglob("*"))]:
            name = str(pathlib.PurePath(top, path.relative_to(tree)))
            info = member(path, name, when)
            if info.isreg():
                with path.open("rb") as content:
                    archive.addfile(info, content)
            else:
                archive.addfile(info)


def write_checksums(folder):
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
             for path in sorted(folder.iterdir()) if path.is_file() and path.name != "SHA256SUMS"]
    (folder / "SHA256SUMS").write_text("".join(lines))


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=pathlib.Path, help="a tree of `cmake --install`, with usr/ in it")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--version", default=package.default_version())
    parser.add_argument("--sbom", type=pathlib.Path, action="append", default=[])
    args = parser.parse_args(argv)
    tree, when, name = args.tree / "usr", package.build_time(), archive_name(args.version)
    add_notices(tree, args.sbom)
    shutil.copy(INSTALLER, tree / "install.sh")
    (tree / "VERSION").write_text(args.version + "\n")
    args.out.mkdir(parents=True, exist_ok=True)
    target = args.out / f"{name}.tar.gz"
    pack(tree, target, name, when)
    shutil.copy(INSTALLER, args.out / "install.sh")
    for document in args.sbom:
        shutil.copy(document, args.out / document.name)
    write_checksums(args.out)
    print(f"{target.name:44} {target.stat().st_size // 1024:6} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
