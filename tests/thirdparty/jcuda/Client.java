// SPDX-License-Identifier: Apache-2.0
// Copies numbers to the card and back with JCuda, starts a kernel, and takes memory until it is refused. The native
// library of JCuda is linked with the driver. Prints what came back.
import static jcuda.driver.JCudaDriver.*;

import java.util.ArrayList;
import java.util.Arrays;
import jcuda.Pointer;
import jcuda.Sizeof;
import jcuda.driver.*;

class Client {
  static final String KERNEL =
      ".version 8.0\n.target sm_50\n.address_size 64\n.visible .entry mine(.param .u64 a)\n{ ret; }\n\0";
  static final long BLOCK = 64 << 20;

  static void ok(int result) {
    if (result != CUresult.CUDA_SUCCESS) throw new IllegalStateException(CUresult.stringFor(result));
  }

  /** Takes memory until it is refused, and gives all of it back. */
  static String fill() {
    var held = new ArrayList<CUdeviceptr>();
    for (;;) {
      var block = new CUdeviceptr();
      int result = cuMemAlloc(block, BLOCK);
      if (result != CUresult.CUDA_SUCCESS) {
        for (var one : held) ok(cuMemFree(one));
        return "full after " + held.size() + ": " + CUresult.stringFor(result);
      }
      held.add(block);
    }
  }

  public static void main(String[] words) {
    setExceptionsEnabled(false);
    var device = new CUdevice();
    var context = new CUcontext();
    long[] free = {0}, total = {0};
    ok(cuInit(0));
    ok(cuDeviceGet(device, 0));
    ok(cuDevicePrimaryCtxRetain(context, device));
    ok(cuCtxSetCurrent(context));
    ok(cuMemGetInfo(free, total));
    System.out.println(free[0] + " of " + total[0]);

    int[] numbers = new int[100_000], back = new int[numbers.length];
    for (int i = 0; i < numbers.length; ++i) numbers[i] = i;
    var there = new CUdeviceptr();
    long size = (long) numbers.length * Sizeof.INT;
    ok(cuMemAlloc(there, size));
    ok(cuMemcpyHtoD(there, Pointer.to(numbers), size));
    ok(cuMemcpyDtoH(Pointer.to(back), there, size));
    System.out.println("right " + Arrays.equals(numbers, back));

    var module = new CUmodule();
    var kernel = new CUfunction();
    ok(cuModuleLoadData(module, KERNEL));
    ok(cuModuleGetFunction(kernel, module, "mine"));
    ok(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, null, Pointer.to(Pointer.to(there)), null));
    ok(cuCtxSynchronize());
    ok(cuMemFree(there));
    for (int i = 0; i < 2; ++i) System.out.println(fill());
  }
}
