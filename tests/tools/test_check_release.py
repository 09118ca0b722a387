# SPDX-License-Identifier: Apache-2.0
"""The check of shipped files, on output of readelf, and on real files built here."""
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_release  # noqa: E402

DYNAMIC = " 0x01 (NEEDED)   Shared library: [libc.so.6]\n 0x01 (NEEDED)  Shared library: [libm.so.6]\n"
VERSIONS = """Version definition section '.gnu.version_d' contains 1 entry:
  000000: Rev: 1  Flags: none  Index: 2  Cnt: 1  Name: GLIBC_9.9
Version needs section '.gnu.version_r' contains 1 entry:
  0x0010:   Name: GLIBC_2.2.5  Flags: none  Version: 3
  0x0020:   Name: GLIBC_2.34  Flags: none  Version: 2
"""


def judge(name, dynamic, versions, sections=""):
    return check_release.judge(name, *check_release.parse(dynamic, versions, sections))


def test_a_correct_release():
    assert judge("subletd", DYNAMIC, VERSIONS) == ("2.34", [])


def test_a_symbol_that_is_too_new():
    found = judge("subletd", DYNAMIC, VERSIONS.replace("2.34", "2.36"))[1]
    assert found == ["asks for GLIBC_2.36, the floor is 2.35"]


def test_the_preloaded_library_has_a_lower_floor():
    assert judge("libsublet-cuda.so", DYNAMIC, VERSIONS)[1] == ["asks for GLIBC_2.34, the floor is 2.17"]


def test_a_version_without_a_number():
    assert "GLIBC_PRIVATE" in judge("subletd", DYNAMIC, VERSIONS.replace("2.34", "PRIVATE"))[1][0]


def test_a_library_that_is_not_glibcs():
    found = judge("subletd", DYNAMIC + " 0x01 (NEEDED) Shared library: [libstdc++.so.6]\n", VERSIONS)[1]
    assert found == ["needs libstdc++.so.6: link it statically"]


def test_a_file_with_symbols_left():
    assert judge("subletd", DYNAMIC, VERSIONS, "  [30] .symtab SYMTAB\n")[1] == ["is not stripped"]


def test_nothing_to_check_is_a_failure(tmp_path):
    assert check_release.main([str(tmp_path), "--any"]) == 1


@pytest.mark.parametrize("flags, status", [
    (["-s"], 0), ([], 1), (["-s", "-Wl,--no-as-needed", "-lstdc++"], 1),
])
def test_a_real_program(tmp_path, flags, status):
    if not shutil.which("gcc") or not shutil.which("readelf"):
        pytest.skip("no gcc or readelf here")
    (tmp_path / "a.c").write_text("#include <stdio.h>\nint main(void) { puts(\"x\"); return 0; }\n")
    (tmp_path / "out").mkdir()
    subprocess.run(["gcc", "a.c", "-o", "out/subletd", *flags], cwd=tmp_path, check=True)
    assert check_release.main([str(tmp_path / "out"), "--any"]) == status
    # Without --any the other programs of a release are missing.
    assert check_release.main([str(tmp_path / "out")]) == 1


@pytest.fixture
def given(tmp_path, monkeypatch):
    """The files of a complete release, as small as they can be."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for name, libraries in (("sublet", {"libx-dev": "MIT", "liby-dev": "ISC"}), ("sublet-simgpu", {"libx-dev": "MIT"}),
                            ("sublet-kube", {"libx-dev": "MIT"})):
        packages = [{"SPDXID": "SPDXRef-sublet", "name": name, "licenseDeclared": "Apache-2.0"}]
        packages += [{"SPDXID": f"SPDXRef-{key}", "name": key, "licenseDeclared": value}
                     for key, value in libraries.items()]
        (folder / f"{name}.spdx.json").write_text(json.dumps({"packages": packages}))
        (folder / f"{name}_1.2_amd64.deb").write_text("x")
    tree = tmp_path / "sublet-1.2-linux-x86_64"
    names = [f"bin/{name}" for name in check_release.PROMISED] + [*check_release.DOCUMENTS, "install.sh", "VERSION"]
    names += [f"share/doc/sublet/third-party/{name}.txt" for name in ("libx-dev", "liby-dev")]
    for name in [*names, "share/doc/sublet/sublet.spdx.json"]:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("x")
    for name in ("install.sh", "sublet-1.2-py3-none-any.whl", "sublet-1.2.tar.gz"):
        (folder / name).write_text("x")
    repack(folder, tree)
    # The content of packages has tests of its own, below.
    monkeypatch.setattr(check_release, "wrong_with_package", lambda package, linked: [])
    return folder, tree


def repack(folder, tree):
    with tarfile.open(folder / f"{tree.name}.tar.gz", "w:gz") as archive:
        archive.add(tree, tree.name)
    note_sums(folder)


def note_sums(folder):
    (folder / "SHA256SUMS").write_text("".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())
        if path.name != "SHA256SUMS"))


def test_a_complete_release_has_nothing_wrong(given):
    assert check_release.judge_packages(given[0]) == []


@pytest.mark.parametrize("pattern", check_release.FILES)
def test_a_file_that_is_not_given_is_missed(given, pattern):
    for path in given[0].glob(pattern):
        path.unlink()
    assert any(pattern in problem for problem in check_release.judge_packages(given[0]))


@pytest.mark.parametrize("name", ["bin/sublet-keep", "lib/systemd/system/subletd.socket", "install.sh",
                                  "share/doc/sublet/third-party/liby-dev.txt", "share/doc/sublet/docs/upgrading.md"])
def test_a_file_that_the_archive_lacks_is_missed(given, name):
    (given[1] / name).unlink()
    repack(*given)
    assert check_release.judge_packages(given[0]) == [f"sublet-1.2-linux-x86_64.tar.gz has no {name}"]


def test_sums_must_be_there_and_right(given):
    (given[0] / "install.sh").write_text("changed")
    (given[0] / "extra.deb").write_text("x")
    assert check_release.wrong_sums(given[0]) == ["extra.deb", "install.sh"]
    note_sums(given[0])
    assert check_release.wrong_sums(given[0]) == []
    (given[0] / "extra.deb").unlink()
    assert check_release.wrong_sums(given[0]) == ["extra.deb"]


@pytest.mark.parametrize("licence", ["", "NOASSERTION"])
def test_a_library_without_a_licence_is_named(given, licence):
    document = given[0] / "sublet.spdx.json"
    document.write_text(document.read_text().replace('"ISC"', f'"{licence}"'))
    note_sums(given[0])
    assert check_release.judge_packages(given[0]) == ["sublet.spdx.json has no licence for liby-dev"]


def test_the_archive_is_no_python_source(given):
    (given[0] / "sublet-1.2.tar.gz").unlink()
    assert check_release.judge_packages(given[0]) == [f"no sublet-*.tar.gz in {given[0]}"]


# The places of a complete package sublet, as ./dev release fills it.
IN_SUBLET = ("usr/bin/sublet-keep", "usr/lib/systemd/system/sublet-keeper.socket", "usr/share/man/man8/subletd.8.gz",
             "etc/sublet/sublet.toml", "usr/share/doc/sublet/copyright", "usr/share/doc/sublet/CHANGELOG.md.gz",
             "usr/share/doc/sublet/sublet.spdx.json", "usr/share/doc/sublet/third-party/libx-dev.txt.gz")


def make_package(folder, name, without=()):
    tree = folder / name
    wanted = [check_release.place_in_package(path) for path in
              (*(f"bin/{program}" for program in check_release.PROMISED), *check_release.DOCUMENTS)]
    documents = f"./usr/share/doc/{name}"
    places = {place for owner, place in wanted if owner == name} | {
        f"{documents}/copyright", f"{documents}/{name}.spdx.json", f"{documents}/third-party/libx-dev.txt.gz"}
    for place in places - {f"./{path}" for path in without}:
        (tree / place).parent.mkdir(parents=True, exist_ok=True)
        (tree / place).write_text("x")
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN/control").write_text(f"Package: {name}\nVersion: 1.2\nArchitecture: amd64\nDepends: libc6\n"
                                         "Maintainer: X <x@localhost>\nDescription: x\n")
    package = folder / f"{name}_1.2_amd64.deb"
    subprocess.run(["dpkg-deb", "-Znone", "--build", tree, package], check=True, capture_output=True)
    return package


@pytest.mark.parametrize("lacks", [None, *IN_SUBLET])
def test_a_file_that_a_package_lacks_is_missed(tmp_path, lacks):
    if not shutil.which("dpkg-deb"):
        pytest.skip("no dpkg-deb here")
    package = make_package(tmp_path, "sublet", [lacks])
    expected = [f"sublet_1.2_amd64.deb has no {'licence of libx-dev' if 'third-party' in lacks else './' + lacks}"] \
        if lacks else []
    assert check_release.wrong_with_package(package, ["libx-dev"]) == expected


def test_simulated_cards_are_a_package_of_their_own(tmp_path):
    if not shutil.which("dpkg-deb"):
        pytest.skip("no dpkg-deb here")
    assert check_release.wrong_with_package(make_package(tmp_path, "sublet-simgpu"), ["libx-dev"]) == []
    (tmp_path / "x").mkdir()
    package = make_package(tmp_path / "x", "sublet-simgpu", ["usr/lib/simgpu/libcuda.so.1", "usr/bin/simgpu-load"])
    assert len(check_release.wrong_with_package(package, ["libx-dev"])) == 2


def test_the_agent_of_kubernetes_is_a_package_of_its_own():
    for name in ("bin/sublet-kube", "bin/sublet-probe", "share/man/man8/sublet-kube.8"):
        assert check_release.place_in_package(name)[0] == "sublet-kube"
    assert check_release.place_in_package("share/sublet/kubernetes/kubectl-sublet")[0] == "sublet"
