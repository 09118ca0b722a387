# SPDX-License-Identifier: Apache-2.0
"""packaging/install.sh --system, the scripts of the package and the commands of docs/upgrading.md, in a small system of
the test: the host's /usr, all else empty, and a systemctl and a dpkg-query that note and answer what the test says.

tests/package runs both with real packages under systemd."""
import os
import shutil
import subprocess

import pytest

from tests.tools.test_install_script import ROOT, SCRIPT, make_release

INSTALLED = "usr/local/share/sublet/installed-files"
UNIT = "usr/local/lib/systemd/system/subletd.service"
MORE = [("lib/systemd/system/subletd.service", "ExecStart=/usr/bin/subletd\nDocumentation=file:/usr/share/doc/x\n"),
        ("lib/systemd/system/subletd.socket", "x"), ("share/doc/sublet/sublet.toml", "# keys\n"),
        ("lib/libsublet.so.0", "x")]
FAKES = {
    "systemctl": """echo "systemctl $*" >>/log
case "$*" in
  *is-enabled*) [ ! -e /disabled ] ;;
  *is-active*) [ -e /active ] ;;
  *enable*|*restart*) [ ! -e /broken ] ;;
esac""",
    "dpkg-query": "[ -s /state ] && cat /state",
    "systemd-sysusers": 'echo "systemd-sysusers $*" >>/log',
    "sudo": 'exec env "$@"', "apt": 'echo "apt $*" >>/log',
    "dpkg": '[ "$1" != --compare-versions ] || exec /usr/bin/dpkg "$@"; echo "dpkg $*" >>/log',
    "ldconfig": 'echo ldconfig >>/log',
    "deb-systemd-helper": 'echo "deb-systemd-helper $*" >>/log',
}
ENTER = """set -e
mount --rbind /usr "$0/usr"
mount --bind "$0.local" "$0/usr/local"
mount --rbind /dev "$0/dev"
exec chroot "$@"
"""


class System:
    def __init__(self, folder):
        self.root, self.local = folder / "root", folder / "root.local"
        for name in ("usr", "etc", "dev", "fakes", "var/lib/sublet", "run/systemd/system", "root"):
            (self.root / name).mkdir(parents=True)
        (self.root / "tmp").mkdir(mode=0o1777)
        (self.root / "tmp").chmod(0o1777)
        for name in ("bin", "sbin", "lib", "lib64"):
            (self.root / name).symlink_to(f"usr/{name}")
        for name, text in FAKES.items():
            (self.root / "fakes" / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.root / "fakes" / name).chmod(0o755)
        self.local.mkdir()
        self.path("var/lib/sublet/store.db").write_text("leases")

    def path(self, name):
        """The file of the system on the host."""
        inner = name.removeprefix("usr/local/")
        return self.local / inner if inner != name else self.root / name

    def log(self):
        return self.path("log").read_text() if self.path("log").exists() else ""

    def run(self, *command, user=(), umask=0o022, **environment):
        own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        done = subprocess.run(["unshare", *own, "--mount", "--propagation", "private", "sh", "-c", ENTER, self.root,
                               *user, self.root, *command], capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, umask=umask,
                              env={"PATH": "/fakes:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **environment})
        if "unshare failed" in done.stderr:
            pytest.skip("no namespaces here")
        return done

    def give(self, version="1.2", more=()):
        """Makes a release in the system's /release, and returns the archive's place there."""
        folder = self.root / "release"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return f"/release/{make_release(folder, version, [*MORE, *more]).name}"

    def install(self, *arguments, **options):
        shutil.copy(SCRIPT, self.root / "install.sh")
        return self.run("sh", "/install.sh", "--system", *arguments, **options)


@pytest.fixture
def system(tmp_path):
    if not shutil.which("unshare"):
        pytest.skip("no unshare here")
    return System(tmp_path)


def refused(system, done, text):
    assert done.returncode != 0 and text in done.stderr, done.stdout + done.stderr
    assert not system.path(INSTALLED).exists() and not system.path("usr/local/bin").exists()


def test_the_first_installation_starts_the_services(system):
    done = system.install(system.give())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "--quiet enable --now sublet-keeper.socket sublet-actor.socket subletd.socket" in system.log()
    assert "ldconfig" in system.log() and "systemd-sysusers /usr/local/lib/sysusers.d/sublet.conf" in system.log()
    assert system.path(UNIT).read_text() == ("ExecStart=/usr/local/bin/subletd\n"
                                             "Documentation=file:/usr/local/share/doc/x\n")
    assert system.path("etc/sublet/sublet.toml").read_text() == "# keys\n"


def test_a_user_cannot_install_for_the_system(system):
    if os.geteuid() != 0:
        pytest.skip("one user cannot become another one here")
    refused(system, system.install(system.give(), user=["--userspec=12345:12345"]), "--system needs root")


# ------------------------------------------------------------------------------------------- package and archive


@pytest.mark.parametrize("state, text", [
    ("installed", "install the newer package, or remove and purge it"), ("unpacked", "the package sublet is installed"),
    ("half-configured", "the package sublet is installed"), ("config-files", "Purge it first (apt purge sublet)"),
])
def test_the_archive_is_refused_beside_a_package_in_any_state(system, state, text):
    system.path("state").write_text(state)
    refused(system, system.install(system.give()), text)
    system.path("state").write_text("not-installed")
    assert system.install(system.give()).returncode == 0


def test_masked_units_are_refused_before_anything_is_copied(system):
    system.path("etc/systemd/system").mkdir(parents=True)
    system.path("etc/systemd/system/subletd.socket").symlink_to("/dev/null")
    refused(system, system.install(system.give()), "subletd.socket is masked, so that Sublet cannot start")


def script(system, name, *arguments):
    text = (ROOT / f"packaging/debian/sublet.{name}").read_text().replace("@VERSION@", "1.3")
    system.path(name).write_text(text)
    return system.run("sh", f"/{name}", *arguments)


def test_a_purge_of_the_package_leaves_the_data_of_the_archive(system):
    assert system.install(system.give()).returncode == 0
    before = system.log()
    for word in ("remove", "purge"):
        assert script(system, "postrm", word).returncode == 0
    assert system.path("var/lib/sublet/store.db").read_text() == "leases"
    assert system.log() == before, "no unit is masked or reloaded"
    assert system.install("--remove").returncode == 0
    assert script(system, "postrm", "purge").returncode == 0
    assert not system.path("var/lib/sublet").exists()


@pytest.mark.parametrize("arguments", [("install",), ("install", "1.1"), ("upgrade", "1.2")])
def test_the_package_is_refused_beside_the_archive(system, arguments):
    assert script(system, "preinst", *arguments).returncode == 0
    assert system.install(system.give()).returncode == 0
    done = script(system, "preinst", *arguments)
    assert done.returncode == 1 and "install.sh has installed Sublet in /usr/local" in done.stderr
    assert script(system, "preinst", "abort-upgrade", "1.2").returncode == 0
    # The command that the refusal names.
    removed = system.run("sh", "/usr/local/share/sublet/install.sh", "--system", "--remove")
    assert removed.returncode == 0, removed.stderr
    assert script(system, "preinst", *arguments).returncode == 0


# ------------------------------------------------------------------------------------------- upgrades


def test_an_upgrade_restarts_and_enables_nothing_again(system):
    assert system.install(system.give("1.2")).returncode == 0
    system.path("log").unlink()
    assert system.install(system.give("1.3")).returncode == 0
    assert "systemctl restart subletd.service" in system.log()
    assert "enable --now sublet-keeper" in system.log(), "the small release has two units, so that others stay new"
    assert "enable --now subletd" not in system.log() and "subletd.socket" not in system.log()
    system.path("log").unlink()
    system.path("disabled").touch()
    assert system.install(system.give("1.4")).returncode == 0
    assert "enable --now" not in system.log() and " restart" not in system.log()
    assert "try-restart subletd.service" in system.log(), "a daemon that runs all the same is restarted"


def test_a_daemon_that_does_not_start_is_told_after_doctor(system):
    system.path("broken").touch()
    done = system.install(system.give())
    assert done.returncode == 1 and "doctor says" in done.stdout
    assert "failed: a start of the services; see journalctl" in done.stdout
    assert "Sublet is installed, but not all steps succeeded" in done.stderr


@pytest.mark.parametrize("older, newer", [("1.2", "1.10"), ("0.1.0~dev9", "0.1.0"), ("0.1.0~dev9", "0.1.0~dev10")])
def test_an_older_archive_is_refused_over_a_newer_one(system, older, newer):
    for version in (older, newer, newer):
        assert system.install(system.give(version)).returncode == 0
    done = system.install(system.give(older, [("bin/sublet-older", "x")]))
    assert done.returncode == 1 and f"version {newer} in /usr/local by the older version {older}" in done.stderr
    assert not system.path("usr/local/bin/sublet-older").exists()
    assert system.install(system.give(older), SUBLET_ALLOW_DOWNGRADE="1").returncode == 0
    assert system.path("usr/local/share/sublet/version").read_text() == older


# ------------------------------------------------------------------------------------------- places and modes


@pytest.mark.parametrize("prefix", ["/opt/sublet", "/usr", "/usr/local/x", "x"])
def test_the_system_has_one_place(system, prefix):
    refused(system, system.install("--prefix", prefix, system.give()), "installs into /usr/local only")
    assert system.install("--prefix", "/usr/local/", system.give()).returncode == 0


def test_a_strict_umask_does_not_close_what_services_read(system):
    assert system.install(system.give(), umask=0o077).returncode == 0
    for name in ("etc/sublet", "usr/local/bin", "usr/local/share/doc/sublet"):
        assert system.path(name).stat().st_mode & 0o777 == 0o755, name
    assert system.path("etc/sublet/sublet.toml").stat().st_mode & 0o777 == 0o644
    assert system.path("usr/local/bin/sublet").stat().st_mode & 0o777 == 0o755


def test_units_of_others_are_left_alone(system):
    system.path("usr/local/lib/systemd/system/subletd.service.d").mkdir(parents=True)
    other = system.path("usr/local/lib/systemd/system/sublet-backup.service")
    other.write_text("ExecStart=/usr/bin/tar\n")
    assert system.install(system.give()).returncode == 0
    assert other.read_text() == "ExecStart=/usr/bin/tar\n"


def test_a_removal_stops_at_services_that_do_not_stop(system):
    assert system.install(system.give()).returncode == 0
    system.path("active").touch()
    done = system.install("--remove")
    assert done.returncode == 1 and "not all services have stopped" in done.stderr
    assert system.path(UNIT).exists()
    system.path("active").unlink()
    assert system.install("--remove").returncode == 0
    assert not system.path(UNIT).exists() and not system.path("usr/local/share/sublet").exists()
    assert system.path("etc/sublet/sublet.toml").exists()


# ------------------------------------------------------------------------------------------- docs/upgrading.md


def block(title):
    """The first block of commands below a title."""
    text = (ROOT / "docs/upgrading.md").read_text()
    return text.partition(f"## {title}\n")[2].partition("```sh\n")[2].partition("```")[0]


def test_going_back_restores_the_copy_of_the_last_upgrade(system):
    store, folder = system.path("var/lib/sublet/store.db"), system.path("var/lib")
    copies = []
    for leases in ("first", "second"):
        store.write_text(leases)
        text = block("Before an upgrade").replace("%H%M%S", f"0{len(copies)}0000")
        assert system.run("sh", "-ec", text).returncode == 0
        copies.append(max(folder.glob("sublet.2*")).name)
    store.write_text("of the newer version")
    back = block("Going back").replace("sublet.20260921-141320", copies[1])
    system.run("sh", "-c", back)  # its last line is for the archive, which is not here
    assert store.read_text() == "second" and (folder / copies[1] / "store.db").read_text() == "second"
    assert system.path("var/lib/sublet.newer/store.db").read_text() == "of the newer version"


def test_going_back_without_a_copy_deletes_nothing(system):
    system.run("sh", "-c", block("Going back"))
    assert system.path("var/lib/sublet/store.db").read_text() == "leases"


def test_leases_go_from_the_package_to_the_archive(system):
    system.path("etc/sublet").mkdir()
    system.path("etc/sublet/sublet.toml").write_text("mine")
    system.path("postrm").write_text((ROOT / "packaging/debian/sublet.postrm").read_text())
    system.path("fakes/apt").write_text("#!/bin/sh\n[ $1 != purge ] || { rm /etc/sublet/*; sh /postrm purge; }\n")
    archive = system.give()
    shutil.copy(SCRIPT, system.path("install.sh"))
    text = block("From packages to the archive, and back").replace("sublet-*-linux-x86_64.tar.gz", archive)
    done = system.run("sh", "-ec", f"cd /; {text}")
    assert done.returncode == 0, done.stderr
    assert system.path("var/lib/sublet/store.db").read_text() == "leases"
    assert system.path("etc/sublet/sublet.toml").read_text() == "mine" and system.path(UNIT).exists()
