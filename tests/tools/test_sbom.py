# SPDX-License-Identifier: Apache-2.0
"""tools/sbom.py on a small program that links one library of this system."""
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import sbom  # noqa: E402

NINJA = """
rule cxx
  command = g++ -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
rule link
  command = g++ -static-libstdc++ $in $libs -o $out
build a.o: cxx a.cpp
build b.o: cxx b.cpp
build a: link a.o
  libs = /usr/lib/x86_64-linux-gnu/libsodium.a
build b: link b.o
"""


@pytest.fixture
def build(tmp_path):
    if not all(shutil.which(tool) for tool in ("ninja", "g++", "dpkg-query")):
        pytest.skip("no ninja, no g++ or no dpkg here")
    if not pathlib.Path("/usr/lib/x86_64-linux-gnu/libsodium.a").exists():
        pytest.skip("no libsodium here")
    (tmp_path / "a.cpp").write_text("#include <sodium.h>\nint main() { return sodium_init() < 0; }\n")
    (tmp_path / "b.cpp").write_text("#include <nlohmann/detail/macro_scope.hpp>\nint main() {}\n")
    (tmp_path / "build.ninja").write_text(NINJA)
    subprocess.run(["ninja", "-C", tmp_path], check=True, capture_output=True)
    return tmp_path


def test_a_program_has_its_own_libraries_only(build):
    found = sbom.components(str(build), ["a"])
    assert found["libsodium-dev"]["licence"] == "ISC" and found["libsodium-dev"]["version"]
    assert "nlohmann-json3-dev" not in found and not any(name.startswith("libc6") for name in found)
    assert any(name.startswith("libstdc++") for name in found)
    found = sbom.components(str(build), ["b"])
    assert "libsodium-dev" not in found and found["nlohmann-json3-dev"]["licence"] == "MIT"
    assert {"libsodium-dev", "nlohmann-json3-dev"} <= sbom.components(str(build), ["a", "b"]).keys()


def test_a_library_with_an_unknown_licence_fails_the_release(build, monkeypatch):
    monkeypatch.setattr(sbom, "LICENCES", {})
    with pytest.raises(SystemExit, match="does not know its licence"):
        sbom.components(str(build), ["a"])


def test_the_document_is_spdx_and_always_the_same(build):
    found = sbom.components(str(build), ["a"])
    first, second = (sbom.document("sublet", "1.2", found, 1790000000) for _ in range(2))
    assert first == second
    assert first["spdxVersion"] == "SPDX-2.3" and first["creationInfo"]["created"] == "2026-09-21T14:13:20Z"
    names = {package["name"]: package for package in first["packages"]}
    assert names["sublet"]["versionInfo"] == "1.2" and names["libsodium-dev"]["licenseDeclared"] == "ISC"
    keys = {package["SPDXID"] for package in first["packages"]} | {"SPDXRef-DOCUMENT"}
    assert all({line["spdxElementId"], line["relatedSpdxElement"]} <= keys for line in first["relationships"])
    file = build / "x.json"
    file.write_text(json.dumps(first))
    assert "libsodium-dev" in sbom.read_libraries(file) and "sublet" not in sbom.read_libraries(file)


@pytest.mark.parametrize("text, found", [
    ('NAME="Ubuntu"\nID=ubuntu\n', ("ubuntu", "Ubuntu")), ("ID=debian\n", ("debian", "Debian")),
    ('NAME="Other Linux"\nID="other"\n', ("other", "Other Linux")),
])
def test_a_library_is_of_the_system_that_it_came_with(tmp_path, text, found):
    (tmp_path / "os-release").write_text(text)
    assert sbom.name_distribution(tmp_path / "os-release") == found
    assert sbom.name_distribution(tmp_path / "absent") == ("debian", "Debian")


def test_vendored_libraries_are_listed_and_bring_their_own_licences(build, tmp_path):
    document = sbom.document("sublet", "1.2", sbom.components(str(build), ["a"]), 1790000000, sbom.vendored())
    names = {package["name"]: package for package in document["packages"]}
    assert names["preact"]["licenseDeclared"] == "MIT" and names["htm"]["licenseDeclared"] == "Apache-2.0"
    assert names["uplot"]["externalRefs"][0]["referenceLocator"].startswith("pkg:npm/uplot@")
    assert "CONTAINS" in {one["relationshipType"] for one in document["relationships"]}
    (tmp_path / "file").write_text(json.dumps(document))
    assert not {"preact", "htm", "uplot"} & sbom.read_libraries(tmp_path / "file").keys()


def test_vendored_files_are_those_of_the_record():
    folder = pathlib.Path(sbom.__file__).resolve().parents[1] / "web/vendor"
    record = json.loads((folder / "vendored.json").read_text())
    assert record.keys() == {path.name for path in folder.iterdir() if path.suffix in (".js", ".css")}
    for name, facts in record.items():
        text = (folder / name).read_bytes()
        assert hashlib.sha256(text).hexdigest() == facts["sha256"], f"make {name} anew: web/vendor/make.sh"
        assert text.startswith(b"/*! "), "it begins with its licence"
