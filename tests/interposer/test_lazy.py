# SPDX-License-Identifier: Apache-2.0
"""Libraries with stubs of the driver of their own, which load the driver at the first call: our functions hide the
stubs, and hand a call over to them while there is no driver.
"""
import subprocess

import pytest

from tests.support.interposer import COVERED, LIBRARY, SOURCES, compile_c, counting, environment, told

FIRST = ["init_here", "launch_here", "param_here", "allocate_by_address", "free_here"]


class Lazy:
    def __init__(self, folder):
        self.folder = folder
        self.driver = folder / "driver"
        self.counts = counting(folder)
        self.library = compile_c(folder / "liblazy.so", "-shared", "-Wl,-soname,liblazy.so", SOURCES / "lazy.c")
        self.opened = compile_c(folder / "opened", SOURCES / "lazily.c")
        self.linked = compile_c(folder / "linked", "-DLINKED", SOURCES / "lazily.c", self.library,
                                f"-Wl,-rpath,{folder}")

    def add_driver(self):
        self.driver.mkdir()
        compile_c(self.driver / "libcuda.so.1", "-shared", "-Wl,-soname,libcuda.so.1", SOURCES / "fake_driver.c")

    def run(self, program, *words, preloads=()):
        env = environment(*preloads, driver=self.driver, INTERPOSER_COUNTS=self.folder / "told")
        return subprocess.run([program, self.library, *words], env=env, capture_output=True, text=True,
                              check=True).stdout

    def hooked(self, program, *words):
        """-> (output, report, calls)"""
        said = self.run(program, *words, preloads=(self.counts, LIBRARY))
        [(report, calls)] = told(self.folder / "told")
        return said, report, calls


@pytest.fixture
def lazy(tmp_path):
    return Lazy(tmp_path)


@pytest.mark.parametrize("first", FIRST)
def test_stubs_of_an_opened_library_load_the_driver(lazy, first):
    lazy.add_driver()
    said, report, calls = lazy.hooked(lazy.opened, first)
    assert said == lazy.run(lazy.opened, first)
    assert "launch_here 285" in said and "param_here 11" in said and "allocate_by_address 7" in said
    assert report["state"] == COVERED and report["found"] == 6
    # Calls count once, also those that came by way of a stub, from the first successful cuInit on.
    after = {"cuInit": 1, "cuLaunchKernel": 1, "cuParamSetf": 1, "cuMemAlloc_v2": 1, "cuGetProcAddress_v2": 1,
             "cuMemFree_v2": 1}
    if first == "init_here":
        after = {name: 2 for name in after}
    assert calls == {**after, "cuCtxSynchronize": 1}


def test_stubs_of_a_linked_library_load_the_driver(lazy):
    lazy.add_driver()
    said, report, calls = lazy.hooked(lazy.linked, "launch_here")
    assert said == lazy.run(lazy.linked, "launch_here") and "linked 5\ninit 0" in said
    assert report["state"] == COVERED and calls["cuInit"] == 2 and calls["cuLaunchKernel"] == 3


def test_threads_that_call_a_stub_first_at_the_same_time_all_reach_the_driver(lazy):
    lazy.add_driver()
    for first in FIRST[:4]:
        said, report, _ = lazy.hooked(lazy.opened, first, "32")
        assert said == lazy.run(lazy.opened, first, "32") and report["state"] == COVERED
        for file in lazy.folder.glob("told.*"):
            file.unlink()


@pytest.mark.parametrize("first", FIRST)
def test_without_a_driver_the_stubs_tell_their_own_error(lazy, first):
    for program in (lazy.opened, lazy.linked):
        bare = lazy.run(program, first)
        assert lazy.run(program, first, preloads=[LIBRARY]) == bare
        assert "init_here 303" in bare and "free_here 303" in bare and "wait_here 303" in bare


def test_a_variable_with_the_name_of_a_function_is_never_called(lazy):
    """A loader that keeps pointers to the driver's functions under their names."""
    (lazy.folder / "pointers.c").write_text("void* cuInit; void* cuMemAlloc_v2;\n")
    pointers = compile_c(lazy.folder / "libpointers.so", "-shared", lazy.folder / "pointers.c")
    (lazy.folder / "asks.c").write_text(
        "#include <stdio.h>\nextern int cuInit(unsigned) __attribute__((weak));\n"
        "int main(void) { return printf(\"%d\\n\", cuInit(0)) < 0; }\n")
    program = compile_c(lazy.folder / "asks", "-Wl,-z,lazy", lazy.folder / "asks.c")
    env = environment(LIBRARY, driver=lazy.driver)
    env["LD_PRELOAD"] += f":{pointers}"
    assert subprocess.run([program], env=env, capture_output=True, text=True, check=True).stdout == "500\n"
