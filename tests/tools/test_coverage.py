# SPDX-License-Identifier: Apache-2.0
"""tools/coverage.py on a small tree that g++ compiles with counters."""
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import coverage  # noqa: E402

FILES = {
    "src/core/a.h": "inline int twice(int x) {\n  return 2 * x;\n}\ninline int never(int x) {\n  return x;\n}\n",
    "src/core/a.cpp": '#include "a.h"\nint used(int x) {\n  if (x > 5)\n    return 0;\n  return twice(x);\n}\n'
                      "int unused() {\n  return 1;\n}\n",
    "src/core/a_test.cpp": "int used(int);\nint main() {\n  return used(1) == 2 ? 0 : 1;\n}\n",
    "src/core/testing/world.cpp": "int world() {\n  return 1;\n}\n",
    "src/engine/b.cpp": "int idle() {\n  return 1;\n}\n",
}


@pytest.fixture
def tree(tmp_path):
    if not shutil.which("g++") or not shutil.which("gcov"):
        pytest.skip("no g++ or gcov here")
    (tmp_path / "build").mkdir()
    objects = []
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if name.endswith(".cpp"):
            objects.append(f"build/{path.parent.name}_{path.stem}.o")
            subprocess.run(["g++", "--coverage", "-O0", "-c", path, "-o", objects[-1]], cwd=tmp_path, check=True)
    subprocess.run(["g++", "--coverage", *objects, "-o", "build/test"], cwd=tmp_path, check=True)
    return tmp_path


def test_lines_are_counted_by_folder_without_tests(tree, capsys):
    subprocess.run([tree / "build/test"], check=True)
    assert coverage.main([str(tree / "build"), "--root", str(tree), "--missing", "src/core/a.cpp"]) == 0
    missing, _, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert missing == ["src/core/a.cpp:", "4", "7", "8"]
    counts = {folder: (int(total), int(covered)) for folder, total, covered, *_ in rows}
    assert counts.keys() == {"src/core", "src/engine", "all"}
    assert counts["src/core"][1] == counts["src/core"][0] - len(missing[1:]) > 0 and counts["src/engine"][1] == 0
    assert counts["all"] == tuple(map(sum, zip(counts["src/core"], counts["src/engine"])))


def test_objects_that_no_program_executed_count_as_not_covered(tree, capsys):
    assert coverage.main([str(tree / "build"), "--root", str(tree)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[-2] == "0.0"


def test_a_build_without_counters_is_refused(tmp_path, capsys):
    assert coverage.main([str(tmp_path)]) == 1
    assert "./dev coverage" in capsys.readouterr().err
