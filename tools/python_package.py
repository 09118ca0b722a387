#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel and the source archive of the Python package: what `./dev package` calls after the Debian packages.

Nothing is downloaded: setuptools and wheel are those of the system. The same tree and the same SOURCE_DATE_EPOCH make
the same bytes.
"""
import argparse
import gzip
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import package  # noqa: E402

PYTHON = package.ROOT / "python"
BUILD = ("import sys; from setuptools import build_meta; out = sys.argv[1]; "  # which setuptools changes
         "print(build_meta.build_wheel(out), build_meta.build_sdist(out))")


def python_version(version):
    """Returns the version of the Debian packages by Python's rules: 0.1.0~dev7 is 0.1.0.dev7."""
    made = version.replace("~", ".")
    if not re.fullmatch(r"\d+(\.\d+)*(\.dev\d+)?", made):
        raise SystemExit(f"python_package: the version '{version}' has no form for Python; use 1.2.3 or 1.2.3~dev4")
    return made


def copy_tree(folder, version, when):
    """Copies the files of the package with plain modes and one time, and sets the version."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info", "build", ".*")
    shutil.copytree(PYTHON, folder, ignore=ignored)
    shutil.copy(package.ROOT / "LICENSE", folder / "LICENSE")
    module = folder / "src/sublet/_version.py"
    text, count = re.subn(r'(?m)^__version__ = ".*"$', f'__version__ = "{version}"', module.read_text())
    assert count == 1, module
    module.write_text(text)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.utime(path, (when, when))


def repack(path, when):
    """Writes the archive anew: setuptools puts the times and the user of the build into it."""
    with tarfile.open(path) as archive:
        members = [(member, archive.extractfile(member)) for member in archive.getmembers()]
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as plain:
            for member, content in sorted(members, key=lambda pair: pair[0].name):
                member.mtime, member.uid, member.gid, member.uname, member.gname = when, 0, 0, "", ""
                member.mode, member.pax_headers = 0o755 if member.isdir() else 0o644, {}
                plain.addfile(member, content)
    with open(path, "wb") as target, gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0) as packed:
        packed.write(out.getvalue())


def build(out, version, when):
    """Returns the paths of the wheel and the source archive."""
    with tempfile.TemporaryDirectory() as temporary:
        tree = pathlib.Path(temporary) / "python"
        copy_tree(tree, version, when)
        env = {**os.environ, "SOURCE_DATE_EPOCH": str(when), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([sys.executable, "-c", BUILD, str(out)], cwd=tree, env=env, capture_output=True,
                              text=True, umask=0o022)
        if done.returncode != 0:
            raise SystemExit(f"python_package: setuptools failed; it needs python3-setuptools and python3-wheel\n"
                             f"{done.stdout}{done.stderr}")
        wheel, archive = (out / name for name in done.stdout.split()[-2:])
    repack(archive, when)
    for path in (wheel, archive):
        print(f"{path.name:44} {path.stat().st_size // 1024:6} KiB")
    return wheel, archive


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--version", default=package.default_version(), help="as of the Debian packages")
    args = parser.parse_args(argv)
    when = max(package.build_time(), 315532800)  # a zip file begins with 1980
    args.out.mkdir(parents=True, exist_ok=True)
    build(args.out.resolve(), python_version(args.version), when)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
