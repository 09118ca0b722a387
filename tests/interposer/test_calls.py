# SPDX-License-Identifier: Apache-2.0
"""Calls through the hooks: arguments and results are the driver's, counts are exact, and nothing begins before cuInit
has succeeded. A driver that has functions which nobody knows is told as not covered.
"""
import pathlib
import shutil
import subprocess

import pytest

from tests.support.interposer import (COVERED, LIBRARY, PASSIVE, SECOND_DRIVER, SOURCES, UNCOVERED, UNKNOWN_EXPORT,
                                      UNKNOWN_POINTER, compile_c, counting, environment, told)


class Fake:
    """A fake driver in a folder of its own, and a program that is linked with it."""

    def __init__(self, folder):
        self.folder = folder
        self.driver = folder / "driver"
        self.counts = counting(folder)
        self.make_driver(self.driver)
        self.program = compile_c(folder / "calls", SOURCES / "calls.c", self.driver / "libcuda.so.1")

    def make_driver(self, folder, *defines):
        folder.mkdir(exist_ok=True)
        compile_c(folder / "libcuda.so.1", "-shared", "-Wl,-soname,libcuda.so.1", *defines, SOURCES / "fake_driver.c")

    def run(self, *preloads, program=None):
        env = environment(*preloads, driver=self.driver, INTERPOSER_COUNTS=self.folder / "told")
        done = subprocess.run(list(map(str, program or [self.program])), env=env, capture_output=True, text=True,
                              check=True)
        return done.stdout

    def hooked(self, program=None):
        """-> (output, report, calls) with the interposer"""
        said = self.run(self.counts, LIBRARY, program=program)
        [(report, calls)] = told(self.folder / "told")
        return said, report, calls


@pytest.fixture
def fake(tmp_path):
    return Fake(tmp_path)


def test_arguments_and_results_are_the_drivers_and_counts_are_exact(fake):
    said, report, calls = fake.hooked()
    assert said == fake.run() == "before 285 11\ninit 0\nafter 285 11 7\nwrong 0\nchild 1\n"
    assert calls == {"cuInit": 1, "cuLaunchKernel": 40001, "cuParamSetf": 1, "cuMemAlloc_v2": 1}
    assert (report["state"], report["reason"], report["version"], report["found"]) == (COVERED, 0, 14000, 6)


def test_threads_that_come_first_at_the_same_time_all_find_hooks(fake):
    program = compile_c(fake.folder / "race", SOURCES / "race.c", fake.driver / "libcuda.so.1")
    for _ in range(10):
        said, report, calls = fake.hooked(program=[program])
        assert said == "wrong 0\n" and report["state"] == COVERED
        # Each thread looks one function up, and the self-test of the library does not count.
        assert calls == {"cuInit": 32, "cuLaunchKernel": 32, "cuGetProcAddress_v2": 32}
        for file in fake.folder.glob("told.*"):
            file.unlink()


def test_a_failed_init_begins_nothing(fake):
    fake.make_driver(fake.driver, "-DREFUSES")
    said, report, calls = fake.hooked()
    assert said == fake.run() and "init 100" in said
    assert (report["state"], report["version"], calls) == (PASSIVE, 0, {})


def test_a_new_function_that_takes_memory_leaves_the_driver_uncovered(fake):
    fake.make_driver(fake.driver, "-DNEW_EXPORT=cuMemAllocSomewhere")
    said, report, calls = fake.hooked()
    assert said == fake.run()
    assert (report["state"], report["reason"], report["name"]) == (UNCOVERED, UNKNOWN_EXPORT, "cuMemAllocSomewhere")
    assert calls["cuLaunchKernel"] == 40001, "calls are still forwarded and counted"


def test_a_new_function_of_no_family_leaves_the_driver_uncovered(fake):
    fake.make_driver(fake.driver, "-DNEW_EXPORT=cuTeleportMemory")
    assert fake.hooked()[1]["name"] == "cuTeleportMemory"


@pytest.mark.parametrize("name", ["cuDeviceGetColour", "cudbgNewFunction", "cublasLike"])
def test_a_new_function_that_only_asks_changes_nothing(fake, name):
    fake.make_driver(fake.driver, f"-DNEW_EXPORT={name}")
    assert fake.hooked()[1]["state"] == COVERED


def test_a_lookup_that_names_a_hidden_function_leaves_the_driver_uncovered(fake):
    fake.make_driver(fake.driver, "-DHIDDEN_ALLOCATION")
    _, report, _ = fake.hooked()
    assert (report["state"], report["reason"], report["name"]) == (UNCOVERED, UNKNOWN_POINTER, "cuMemAlloc")


def test_a_second_copy_of_the_driver_is_told(fake):
    other = fake.folder / "other"
    fake.make_driver(other)
    text = ("#include <dlfcn.h>\nextern int cuInit(unsigned);\nint main(void) { cuInit(0);\n"
            f"void* other = dlopen(\"{other}/libcuda.so.1\", RTLD_NOW);\n"
            "return !other || !dlsym(other, \"cuLaunchKernel\"); }\n")
    (fake.folder / "two.c").write_text(text)
    # The loader takes a library of the same name for the same library, so this copy has another one.
    compile_c(other / "libcuda.so.1", "-shared", "-Wl,-soname,libcuda.so.999", SOURCES / "fake_driver.c")
    program = compile_c(fake.folder / "two", fake.folder / "two.c", fake.driver / "libcuda.so.1")
    _, report, _ = fake.hooked(program=[program])
    assert (report["state"], report["reason"]) == (UNCOVERED, SECOND_DRIVER)


def test_other_programs_do_not_notice_the_library(fake):
    for program in (["/bin/true"], ["/bin/sh", "-c", "echo $0 | cat"], ["python3", "-c", "import ctypes, ssl"]):
        assert fake.run(LIBRARY, program=program) == fake.run(program=program)


def test_a_static_program_runs_as_without_the_library(fake):
    (fake.folder / "static.c").write_text('#include <stdio.h>\nint main(void) { puts("runs"); return 0; }\n')
    program = compile_c(fake.folder / "static", "-static", fake.folder / "static.c")
    assert fake.run(LIBRARY, program=[program]) == "runs\n"


def test_a_program_of_another_c_library_runs_as_without_the_library(fake):
    compiler = shutil.which("musl-gcc") or pytest.skip("musl is not installed: apt-get install musl-tools")
    (fake.folder / "musl.c").write_text(
        "#include <dlfcn.h>\n#include <stdio.h>\nint main(void) { return printf(\"%d %d\\n\", "
        "dlsym(RTLD_DEFAULT, \"printf\") == (void*)printf, dlsym(RTLD_DEFAULT, \"cuInit\") != 0) < 0; }\n")
    subprocess.run([compiler, "-fPIE", "-pie", "-o", fake.folder / "musl", fake.folder / "musl.c"], check=True)
    assert fake.run(LIBRARY, program=[fake.folder / "musl"]) == "1 0\n"


def test_a_32_bit_program_is_left_alone(fake):
    loader = pathlib.Path("/lib/ld-linux.so.2")
    if not loader.exists():
        pytest.skip("32-bit programs do not run here: apt-get install libc6-i386")
    (fake.folder / "small.c").write_text('void _start(void) { __asm__("int $0x80" ::"a"(1), "b"(7)); }\n')
    words = ["cc", "-m32", "-O1", "-nostdlib", "-fPIE", "-pie", f"-Wl,-dynamic-linker,{loader}"]
    subprocess.run([*words, "-o", "small", "small.c"], cwd=fake.folder, check=True)
    done = subprocess.run([fake.folder / "small"], env=environment(LIBRARY), capture_output=True, text=True)
    assert done.returncode == 7 and "wrong ELF class" in done.stderr


def test_a_sanitized_program_runs_if_its_order_of_libraries_is_not_checked(fake):
    program = fake.folder / "sanitized"
    words = ["-fsanitize=address", "-o", program, SOURCES / "calls.c", fake.driver / "libcuda.so.1", "-pthread"]
    if subprocess.run(["cc", *map(str, words)], capture_output=True).returncode != 0:
        pytest.skip("this compiler has no AddressSanitizer")
    said, report, calls = fake.hooked(program=[program])
    assert "wrong 0" in said and report["state"] == COVERED and calls["cuLaunchKernel"] == 40001
