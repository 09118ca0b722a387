# SPDX-License-Identifier: Apache-2.0
"""The classes of errors against the contract, and errors as values."""
import copy
import datetime
import pathlib
import pickle
import re

import pytest

import sublet
from sublet import _hints, _size, errors
from tests.support import contract

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_each_code_of_the_contract_has_a_class():
    codes = contract.document()["components"]["schemas"]["Code"]["enum"]
    assert sorted(errors.Refusal.refusals) == sorted(codes)
    for code in codes:
        kind = getattr(sublet, code)
        assert issubclass(kind, sublet.SubletError) and kind.code == code
        raised = errors.error_of(409, {"code": code, "detail": "it is so", "hint": "do this",
                                        "numbers": {"free_bytes": 3}})
        assert type(raised) is kind and str(raised) == "it is so; do this" and raised.numbers == {"free_bytes": 3}


def test_a_code_of_a_newer_daemon_is_an_error_too():
    raised = errors.error_of(418, {"code": "Teapot", "detail": "short and stout", "hint": "pour"})
    assert type(raised) is sublet.SubletError and raised.code == "Teapot" and raised.status == 418


def test_only_refusals_that_may_pass_are_repeated():
    def refusal(status, **numbers):
        return errors.error_of(status, {"code": "Unavailable", "detail": "it is so", "numbers": numbers})
    assert refusal(503).is_passing()
    assert not refusal(503, switched_off=1).is_passing() and not refusal(409).is_passing()


def test_errors_can_be_copied_and_pickled():
    for problem in (errors.error_of(409, {"code": "TooLarge", "detail": "a", "numbers": {"most_bytes": 1}}),
                    errors.WaitTimeout("a", "b", {"place": 1}), errors.error_of(418, {"code": "Teapot"})):
        for other in (pickle.loads(pickle.dumps(problem)), copy.copy(problem)):
            assert type(other) is type(problem) and other.to_dict() == problem.to_dict()


def test_the_other_names():
    assert sublet.WouldWait is sublet.Memory and issubclass(sublet.WaitTimeout, TimeoutError)
    assert type(errors.ended_error({"id": "lease-1", "end_reason": "expired"})) is sublet.LeaseExpired


def test_hints_of_the_daemon_speak_python():
    sources = "".join(path.read_text() for folder in ("core", "engine", "http", "lease", "pause")
                      for path in (ROOT / "src" / folder).iterdir() if path.suffix in (".cpp", ".inc"))
    for words, ours in _hints.PYTHON:
        assert words in sources, f"no hint of the daemon has {words!r}"
        assert "--" not in ours and "`" not in ours
    flags = {f"--{name}" for name in ("no-wait", "gpu", "min-vram", "timeout")}
    assert {word for _, ours in _hints.NOTEBOOK for word in ours.split() if word.startswith("--")} == flags
    raised = errors.error_of(409, {"code": "Memory", "detail": "it is so", "hint": "let it queue, or ask for less"})
    assert raised.hint == "leave out wait=False, or ask for less"
    assert _hints.in_python(raised.hint, _hints.NOTEBOOK) == "leave out --no-wait, or ask for less"


def test_every_public_name_is_there_and_documented():
    for name in sublet.__all__:
        assert getattr(sublet, name).__doc__, name


def test_the_version_is_that_of_the_project():
    version = re.search(r"project\(sublet VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    assert sublet.__version__ == version


@pytest.mark.parametrize("text, count", [("8GiB", 8 << 30), ("1.5G", 3 << 29), ("512 MiB", 512 << 20), ("1GB", 10**9),
                                         ("100", 100), ("100B", 100), ("2k", 2048), (77, 77), ("0.5KiB", 512)])
def test_sizes_are_read_as_by_the_command_line(text, count):
    assert _size.parse_size(text) == count


@pytest.mark.parametrize("count, text", [(0, "0 B"), (1023, "1023 B"), (-3 << 29, "-1.5 GiB"), (8 << 30, "8.0 GiB"),
                                         ((99 << 30) + (999 << 20), "100 GiB"), (1 << 40, "1.0 TiB"),
                                         ((1 << 30) + (1 << 28) // 5, "1.0 GiB"), ((5 << 28) // 1, "1.2 GiB"),
                                         ((7 << 28) // 1, "1.8 GiB"), (150 << 30, "150 GiB")])
def test_sizes_are_rounded_as_by_the_command_line(count, text):
    assert _size.format_size(count) == text


def test_sizes_of_which_one_must_not_be_exceeded():
    assert _size.format_size_down((2 << 30) - 1) == "1.9 GiB" and _size.format_size_down(2 << 30) == "2.0 GiB"
    assert _size.format_sizes_apart((2 << 30) + 1, 2 << 30) == ("2.1 GiB", "2.0 GiB")
    assert _size.format_sizes_apart(3 << 30, 2 << 30) == ("3.0 GiB", "2.0 GiB")


@pytest.mark.parametrize("seconds, text, age", [(0.25, "250 ms", "0s"), (59.4, "59 s", "59s"), (60, "1 min", "1m"),
                                                (125, "2 min 5 s", "2m"), (7260, "2 h 1 min", "2h"),
                                                (90000, "1 d 1 h", "1d")])
def test_times_are_written_as_by_the_command_line(seconds, text, age):
    assert _size.format_duration(seconds) == text and _size.format_age(seconds) == age


@pytest.mark.parametrize("text", ["", "8 Gi B", "-1GiB", "1,5GiB", "8XiB", "iB", "0", 0, -5, True, "1e3", 1 << 63])
def test_texts_that_are_no_size_are_refused(text):
    with pytest.raises(sublet.BadRequest) as refused:
        sublet.lease(text)
    assert "8GiB" in refused.value.hint


@pytest.mark.parametrize("text, seconds", [("5s", 5.0), ("1.5m", 90.0), ("2h", 7200.0), ("250ms", 0.25), (3, 3.0),
                                           (datetime.timedelta(minutes=1), 60.0), (None, None)])
def test_times_are_read_as_by_the_command_line(text, seconds):
    assert _size.seconds_of(text) == seconds


@pytest.mark.parametrize("options, error, says", [
    ({"timeout": "soon"}, sublet.BadRequest, "'soon' is no duration"),
    ({"timeout": -1}, sublet.BadRequest, "-1 is no duration"),
    ({"timeout": True}, sublet.BadRequest, "True is no duration"),
    ({"wait": False, "timeout": 3}, ValueError, "exclude each other"),
    ({"on_pause": 3}, TypeError, "on_pause is not callable"),
    ({"residue": 0}, ValueError, "residue needs on_pause"),
    ({"vram": 1.5}, sublet.BadRequest, "neither a number of bytes nor a text"),
    ({"vram": 8}, sublet.BadRequest, "the size 8 is 8 bytes, .* 1024 or more; write the unit, such as '8GiB'"),
    ({"vram": "8"}, sublet.BadRequest, "'8GiB'"),
    ({"min_vram": 1023}, sublet.BadRequest, "1024 or more"),
    ({"vram": None}, sublet.BadRequest, "neither a number of bytes nor a text"),
])
def test_wrong_options_are_refused_at_once(options, error, says):
    with pytest.raises(error, match=says):
        sublet.lease(**{"vram": "1GiB", **options})


def test_a_program_may_keep_nothing():
    sublet.lease("1GiB", on_pause=print, residue="0MiB")
