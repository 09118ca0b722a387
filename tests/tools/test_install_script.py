# SPDX-License-Identifier: Apache-2.0
"""packaging/install.sh with a small release of the test: installations, and refusals before anything is changed.

tests/package runs it with a real release."""
import functools
import hashlib
import http.server
import pathlib
import shutil
import ssl
import subprocess
import tarfile
import threading

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "packaging/install.sh"
SUBLET = """#!/bin/sh
[ "$1" != --version ] || { echo sublet 1.2; exit 0; }
echo "doctor says: no daemon"
exit 1
"""


def make_release(folder, version="1.2", more=()):
    tree = folder / f"sublet-{version}-linux-x86_64"
    for name, text in {"bin/sublet": SUBLET, "bin/sublet-gpu": "x", "lib/systemd/system/subletd.service": "x",
                       "share/doc/sublet/README.md": "x", "VERSION": version, **dict(more)}.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    (tree / "bin/sublet").chmod(0o755)
    shutil.copy(SCRIPT, tree / "install.sh")
    archive = folder / f"{tree.name}.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(tree, tree.name)
    note_sum(archive)
    return archive


def note_sum(archive, digest=None):
    digest = digest or hashlib.sha256(archive.read_bytes()).hexdigest()
    (archive.parent / "SHA256SUMS").write_text(f"{'0' * 64}  other.deb\n{digest}  {archive.name}\n")


@pytest.fixture
def place(tmp_path):
    class Place:
        home = tmp_path / "home"

        def install(self, *arguments, script=SCRIPT, **environment):
            return subprocess.run(["sh", script, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                                  stdin=subprocess.DEVNULL,
                                  env={"HOME": str(self.home), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                                       **environment})

        def files(self):
            return {str(path.relative_to(self.home)) for path in self.home.rglob("*") if path.is_file()}

    Place.home.mkdir()
    (tmp_path / "release").mkdir()
    return Place()


@pytest.fixture
def archive(tmp_path, place):
    return make_release(tmp_path / "release")


def test_a_user_installs_and_removes(place, archive):
    done = place.install("--user", archive)
    assert done.returncode == 0, done.stderr
    assert "the checksum of sublet-1.2-linux-x86_64.tar.gz is right" in done.stdout
    assert "export PATH=" in done.stdout and done.stdout.endswith("doctor says: no daemon\n")
    assert {".local/bin/sublet", ".local/share/doc/sublet/README.md"} <= place.files()
    assert not any("systemd" in name for name in place.files()), "units belong to a system"
    assert (place.home / ".local/bin/sublet-gpu").stat().st_mode & 0o777 == 0o711
    (place.home / ".local/bin/mine").write_text("x")
    assert place.install("--user", "--remove").returncode == 0
    assert place.files() == {".local/bin/mine"}


def test_the_unpacked_archive_installs_itself(place, archive):
    with tarfile.open(archive) as packed:
        packed.extractall(place.home / "unpacked")
    script = place.home / "unpacked/sublet-1.2-linux-x86_64/install.sh"
    assert place.install("--user", "--prefix", place.home / "p", script=script).returncode == 0
    assert "p/bin/sublet" in place.files()


def test_a_newer_version_removes_what_it_no_longer_has(place, archive, tmp_path):
    (tmp_path / "next").mkdir()
    older = make_release(tmp_path / "next", "1.1", [("bin/sublet-old", "x")])
    assert place.install("--user", older).returncode == 0 and ".local/bin/sublet-old" in place.files()
    assert place.install("--user", archive).returncode == 0
    assert ".local/bin/sublet-old" not in place.files() and ".local/bin/sublet" in place.files()


def wrong_sum(archive):
    note_sum(archive, "1" * 64)
    return "it is damaged or another file"


def no_sum(archive):
    (archive.parent / "SHA256SUMS").write_text(f"{'0' * 64}  x{archive.name}\n")
    return "has no checksum of sublet-1.2"


def no_sums(archive):
    (archive.parent / "SHA256SUMS").unlink()
    return "there is no SHA256SUMS beside"


def cut_short(archive):
    archive.write_bytes(archive.read_bytes()[:-100])
    return "it is damaged or another file"


def gone(archive):
    archive.unlink()
    return "there is no file"


def another(archive):
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(ROOT / "LICENSE", "x/LICENSE")
    note_sum(archive)
    return "is no release of Sublet"


def too_new(archive):
    make_release(archive.parent, "1.2", [("bin/sublet", "#!/bin/sh\necho GLIBC_2.99 not found >&2; exit 1\n")])
    return "they need glibc 2.35"


def not_executable(archive):
    """As on a file system that is mounted noexec."""
    with tarfile.open(archive) as packed:
        packed.extractall(archive.parent)
    tree = archive.parent / archive.name.removesuffix(".tar.gz")
    (tree / "bin/sublet").chmod(0o644)
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(tree, tree.name)
    note_sum(archive)
    return "If it is mounted noexec: TMPDIR=/another/folder"


@pytest.mark.parametrize("spoil", [wrong_sum, no_sum, no_sums, cut_short, gone, another, too_new,
                                   not_executable])
def test_a_wrong_archive_is_refused_before_anything_is_changed(place, archive, spoil):
    text = spoil(archive)
    done = place.install("--user", archive)
    assert done.returncode == 1 and text in done.stderr, done.stdout + done.stderr
    assert place.files() == set()


@pytest.mark.parametrize("arguments, text", [
    ((), "--user or --system"), (("--user", "--frob"), "unknown argument"), (("--user", "a", "b"), "one archive only"),
    (("--user",), "give the archive"), (("--user", "--prefix"), "needs a folder"),
    (("--user", "--prefix", "/usr/local/"), "there is --system"), (("--user", "--prefix", "/"), "there is --system"),
    (("--user", "http://localhost/sublet-1.2-linux-x86_64.tar.gz"), "give an address of https"),
])
def test_wrong_usage_ends_with_2(place, arguments, text):
    done = place.install(*arguments)
    assert done.returncode == 2 and text in done.stderr
    assert place.files() == set()


def test_removing_what_is_not_there_is_refused(place):
    done = place.install("--user", "--remove")
    assert done.returncode == 1 and "nothing of Sublet is noted" in done.stderr


def test_an_older_version_is_refused_over_a_newer_one(place, archive, tmp_path):
    (tmp_path / "next").mkdir()
    older = make_release(tmp_path / "next", "1.1")
    assert place.install("--user", archive).returncode == 0
    done = place.install("--user", older)
    assert done.returncode == 1 and "by the older version 1.1" in done.stderr
    assert place.install("--user", older, SUBLET_ALLOW_DOWNGRADE="1").returncode == 0


def certificate(folder):
    """Makes a certificate for 127.0.0.1, and returns it with its key."""
    made = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", made[0], "-out", made[1]], check=True,
                   capture_output=True)
    return made[1], made[0]


def test_the_archive_may_be_a_url(place, archive, tmp_path):
    if not shutil.which("curl") or not shutil.which("openssl"):
        pytest.skip("no curl or no openssl here")
    public, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, key)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(archive.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"https://127.0.0.1:{server.server_port}/{archive.name}"
            done = place.install("--user", url, CURL_CA_BUNDLE=str(public))
            absent = place.install("--user", url + "x", CURL_CA_BUNDLE=str(public))
        finally:
            server.shutdown()
            thread.join()
    assert done.returncode == 0 and ".local/bin/sublet" in place.files(), done.stderr
    assert absent.returncode == 1 and "cannot fetch" in absent.stderr
