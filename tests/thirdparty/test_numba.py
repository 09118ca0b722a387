# SPDX-License-Identifier: Apache-2.0
"""numba-cuda's own driver tests, unmodified. Every test that is not listed here passes. A listed test that passes is a
failure, so that the list stays true.
"""

import json
import pathlib

import pytest

RUNNER = pathlib.Path(__file__).with_name("numba_runner.py")

COMPUTES = "launches a kernel compiled from Python and reads its result: unknown kernels are not computed"
SIZES = "asks for a size that only the compiler's notes in the binary tell"
GRAPHS = "needs graphs and stream capture, which are not simulated yet"
FOREIGN = "needs a package that is not installed"

# test -> the reason why it cannot pass. A class or module stands for all its tests.
CANNOT = {
    "test_context_stack.Test3rdPartyContext.test_cudajit_in_attached_primary_context": COMPUTES,
    "test_cuda_array_slicing.CudaArraySetting.test_array_assign_all": COMPUTES,
    "test_cuda_array_slicing.CudaArraySetting.test_array_assign_column": COMPUTES,
    "test_cuda_array_slicing.CudaArraySetting.test_array_assign_deep_subarray": COMPUTES,
    "test_cuda_array_slicing.CudaArraySetting.test_array_assign_row": COMPUTES,
    "test_cuda_array_slicing.CudaArraySetting.test_array_assign_subarray": COMPUTES,
    "test_cuda_array_slicing.CudaArraySetting.test_broadcast": COMPUTES,
    "test_cuda_array_slicing.CudaArraySetting.test_rank": COMPUTES,
    "test_cuda_array_slicing.CudaArraySetting.test_scalar": COMPUTES,
    "test_cuda_array_slicing.CudaArraySetting.test_strides": COMPUTES,
    "test_cuda_devicerecord.TestRecordDtypeWithStructArrays": COMPUTES,
    "test_cuda_driver.TestAcceleratedArchitecture": COMPUTES,
    "test_cuda_driver.TestCudaDriver.test_cuda_cache_config": COMPUTES,
    "test_cuda_driver.TestCudaDriver.test_cuda_core_graph_builder_launch_user_facing": GRAPHS,
    "test_cuda_driver.TestCudaDriver.test_cuda_core_stream_launch_user_facing": COMPUTES,
    "test_cuda_driver.TestCudaDriver.test_cuda_core_stream_operations": COMPUTES,
    "test_cuda_driver.TestCudaDriver.test_cuda_driver_basic": COMPUTES,
    "test_cuda_driver.TestCudaDriver.test_cuda_driver_stream_operations": COMPUTES,
    "test_cuda_driver.TestCudaDriver.test_cuda_set_shared_memory_carveout": COMPUTES,
    "test_cuda_ndarray.TestCoreContiguous.test_kernel_with_buffer": FOREIGN,
    "test_cuda_ndarray.TestCoreContiguous.test_kernel_with_strided_memory_view": FOREIGN,
    "test_cuda_ndarray.TestCudaNDArray.test_devicearray_transpose_T": COMPUTES,
    "test_cuda_ndarray.TestCudaNDArray.test_devicearray_transpose_ok": COMPUTES,
    "test_cuda_ndarray.TestRecarray.test_recarray": COMPUTES,
    "test_linker.TestLinker.test_get_local_mem_per_specialized": SIZES,
    "test_linker.TestLinker.test_get_local_mem_per_thread": SIZES,
    "test_linker.TestLinker.test_set_registers_no_max": SIZES,
    "test_linker.TestLinker.test_linking_cu": COMPUTES,
    "test_linker.TestLinker.test_linking_eager_compile": COMPUTES,
    "test_linker.TestLinker.test_linking_lazy_compile": COMPUTES,
    "test_managed_alloc.TestManagedAlloc.test_managed_array_attach_global": COMPUTES,
    "test_managed_alloc.TestManagedAlloc.test_managed_array_attach_host": COMPUTES,
    "test_module_callbacks.TestModuleCallbacks.test_decldevice_arg": COMPUTES,
    "test_module_callbacks.TestModuleCallbacks.test_jitarg": COMPUTES,
}

# module -> the least number of its tests that pass, so that an empty module is no success.
MODULES = {
    "test_array_attr": 11,
    "test_context_stack": 10,
    "test_cuda_array_slicing": 21,
    "test_cuda_auto_context": 1,
    "test_cuda_devicerecord": 9,
    "test_cuda_driver": 10,
    "test_cuda_memory": 15,
    "test_cuda_ndarray": 59,
    "test_deallocations": 13,
    "test_detect": 3,
    "test_emm_plugins": 6,
    "test_events": 3,
    "test_host_alloc": 4,
    "test_init": 5,
    "test_inline_ptx": 1,
    "test_is_fp16": 2,
    "test_linker": 14,
    "test_managed_alloc": 2,
    "test_module_callbacks": 6,
    "test_pinned": 2,
    "test_profiler": 1,
    "test_reset_device": 1,
    "test_runtime": 1,
    "test_select_device": 1,
}
SMOKE = "test_cuda_memory"  # quick, and one that copies


def why_not(test):
    return CANNOT.get(test) or CANNOT.get(test.rsplit(".", 1)[0])


@pytest.mark.parametrize("module", [
    pytest.param(module, marks=pytest.mark.smoke if module == SMOKE else pytest.mark.heavy) for module in MODULES])
def test_numbas_own_tests(foreign, make_cards, module):
    foreign.need("numba-cuda", "nvidia-nvvm", "nvidia-cuda-runtime", "filecheck", "cffi")
    cards = make_cards("2x4GiB")
    done = foreign.python(cards, RUNNER, module, timeout=900)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout.splitlines()[-1])
    wrong = {
        test: why or outcome for test, (outcome, why) in outcomes.items() if outcome == "fail" and not why_not(test)
    }
    assert not wrong, json.dumps(wrong, indent=1) + "\n" + done.stderr[-4000:]
    better = [test for test, (outcome, _) in outcomes.items() if outcome == "pass" and test in CANNOT]
    assert not better, f"these pass now, and must leave the list: {better}"
    passed = sum(outcome == "pass" for outcome, _ in outcomes.values())
    assert passed >= MODULES[module], f"only {passed} tests passed"
    shown = cards.show()
    assert shown["processes"] == [] and all(device["used_bytes"] == 0 for device in shown["devices"])
    assert shown["violations"] == 0


def test_every_listed_test_belongs_to_a_module_that_is_run():
    assert {test.split(".")[0] for test in CANNOT} <= set(MODULES)
