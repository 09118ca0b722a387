# SPDX-License-Identifier: Apache-2.0
"""The closing line of ./dev test: its counts, and that no failure is lost."""
import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import count_tests  # noqa: E402

GTEST = """<testsuites><testsuite name="A">
<testcase name="a" status="run" result="completed"/>
<testcase name="b" status="run" result="completed"/>
<testcase name="c" status="run" result="skipped"><skipped message="no card"/></testcase>
<testcase name="d" status="notrun" result="suppressed"/>
%s</testsuite></testsuites>"""
FAILED = '<testcase name="e" status="run"><failure message="1"/><failure message="2"/></testcase>'
PYTEST = """<testsuites><testsuite><testcase name="x"/><testcase name="y"><skipped message="no card"/></testcase>
%s</testsuite></testsuites>"""


@pytest.fixture
def report(tmp_path, capsys):
    class Report:
        def ctest(self, **statuses):
            """Writes the report of a ctest that ran the programs NAME_test as the tests NAME, each with that status."""
            tests = [{"name": name, "command": [f"/b/test/{name}_test"]} for name in statuses]
            (tmp_path / "ctest.json").write_text(json.dumps({"tests": tests}))
            cases = "".join(f'<testcase name="{name}" status="{status}">{"<failure/>" if status == "fail" else ""}'
                            "</testcase>" for name, status in statuses.items())
            (tmp_path / "ctest.xml").write_text(f"<testsuite>{cases}</testsuite>")
            return self

        def gtest(self, name, text):
            (tmp_path / "gtest").mkdir(exist_ok=True)
            (tmp_path / "gtest" / f"{name}.xml").write_text(text)
            return self

        def pytest(self, text):
            (tmp_path / "pytest.xml").write_text(text)
            return self

        def count(self, unit="-", py="-"):
            status = count_tests.main([str(tmp_path), "--unit-status", str(unit), "--pytest-status", str(py)])
            return status, capsys.readouterr().out.splitlines()[-1]

    return Report()


def test_cases_of_both_are_summed(report):
    report.ctest(core="run").gtest("core_test", GTEST % "").pytest(PYTEST % "")
    assert report.count(0, 0) == (0, "3 passed, 0 failed, 3 skipped")


def test_the_closing_line_tells_what_was_left_out(report, tmp_path, capsys):
    report.pytest(PYTEST % "")
    assert count_tests.main([str(tmp_path), "--pytest-status", "0", "--left-out", "three tests"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed, 1 skipped (three tests)"


def test_a_failed_case_counts_once_however_many_expectations_it_missed(report):
    report.ctest(core="fail").gtest("core_test", GTEST % FAILED).pytest(PYTEST % "")
    assert report.count(8, 0) == (1, "3 passed, 1 failed, 3 skipped")


def test_a_crash_after_the_last_case_is_a_failure(report):
    report.ctest(core="fail").gtest("core_test", GTEST % "")
    assert report.count(8) == (1, "2 passed, 1 failed, 2 skipped")


def test_a_crash_without_a_report_is_a_failure(report):
    report.ctest(core="fail", base="run")
    assert report.count(8) == (1, "1 passed, 1 failed, 0 skipped")


def test_a_report_cut_short_is_a_failure(report):
    report.ctest(core="fail").gtest("core_test", GTEST[:80])
    assert report.count(8) == (1, "0 passed, 1 failed, 0 skipped")


def test_a_program_that_was_not_found_is_a_failure(report):
    report.ctest(core="notrun")
    assert report.count(8) == (1, "0 passed, 1 failed, 0 skipped")


def test_a_program_that_runs_twice_is_counted_twice(report):
    report.ctest(core="run").gtest("core_test", GTEST % "").gtest("core_test_1", GTEST % "")
    assert report.count(0) == (0, "4 passed, 0 failed, 4 skipped")


def test_an_error_of_a_fixture_is_a_failure(report):
    report.pytest(PYTEST % '<testcase name="z"><error message="x"/></testcase>')
    assert report.count(py=1) == (1, "1 passed, 1 failed, 1 skipped")


def test_a_status_that_no_case_explains_is_a_failure(report):
    report.pytest(PYTEST % "")
    assert report.count(py=3) == (1, "1 passed, 1 failed, 1 skipped")


def test_no_test_at_all_is_a_failure(report):
    assert report.count(0, 0) == (1, "0 passed, 1 failed, 0 skipped")


def test_a_group_without_tests_may_be_empty(tmp_path, capsys):
    assert count_tests.main([str(tmp_path), "--pytest-status", "0", "--may-be-empty"]) == 0
    assert capsys.readouterr().out == "0 passed, 0 failed, 0 skipped\n"
    assert count_tests.main([str(tmp_path), "--pytest-status", "124", "--may-be-empty"]) == 1


def test_the_counts_of_several_reports_are_summed(tmp_path, capsys):
    for name, text in (("one", PYTEST % ""), ("two", PYTEST % '<testcase name="z"><error message="x"/></testcase>')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pytest.xml").write_text(text)
        count_tests.main([str(tmp_path / name), "--pytest-status", "0"])
    capsys.readouterr()
    folders = [str(tmp_path / name) for name in ("one", "two", "three")]
    assert count_tests.main(["--sum", folders[0]]) == 0
    assert capsys.readouterr().out == "1 passed, 0 failed, 1 skipped\n"
    assert count_tests.main(["--sum", *folders[:2]]) == 1
    assert capsys.readouterr().out == "2 passed, 1 failed, 2 skipped\n"
    assert count_tests.main(["--sum", *folders]) == 1
    assert capsys.readouterr().out == "2 passed, 2 failed, 2 skipped\n"


def test_the_slowest_tests_of_both_kinds_are_listed_before_the_closing_line(tmp_path, capsys):
    (tmp_path / "ctest.xml").write_text('<testsuite><testcase name="core" classname="core" status="run" time="2.5"/>'
                                        '<testcase name="old" status="run"/></testsuite>')
    (tmp_path / "pytest.xml").write_text(
        '<testsuites><testsuite><testcase classname="tests.e2e" name="x" time="70.12"/>'
        '<testcase classname="tests.e2e" name="y" time="1.0"/></testsuite></testsuites>')
    (tmp_path / count_tests.TOTAL).write_text('{"passed": 4}')
    assert count_tests.main([str(tmp_path), "--sum", "--slowest", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "the slowest of 4 tests:", "    70.1 s  tests.e2e.x", "     2.5 s  core.core", "4 passed, 0 failed, 0 skipped"]
