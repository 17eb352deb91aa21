"""Compiles kernels with a spill and with a narrowed store, and expects the gate on machine code to name both.

  gate_faults.py --nvcc NVCC --compiler C++
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

from gate import broken, row_of  # noqa: E402
from machine_code import codes_of  # noqa: E402
from ptx_code import Module  # noqa: E402
from ptx_machine import Grid, Memory  # noqa: E402
from replay import Result, Work, ptx_of  # noqa: E402

THREADS, BLOCKS = 256, 2
ELEMENTS = THREADS * BLOCKS * 4
# to[4i..4i+3] = from[4i..4i+3] * 2, and what is wrong with each.
SOURCE = """
__global__ void __launch_bounds__(256) whole_kernel(float4* to, const float4* from) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  float4 value = from[i];
  value.x *= 2; value.y *= 2; value.z *= 2; value.w *= 2;
  to[i] = value;
}
__global__ void __launch_bounds__(256) narrowed_kernel(float* to, const float4* from) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  const float4 value = from[i];
  to[4 * i] = value.x * 2;
  to[4 * i + 1] = value.y * 2;
  to[4 * i + 2] = value.z * 2;
  to[4 * i + 3] = value.w * 2;
}
__global__ void __launch_bounds__(256, 8) spilled_kernel(float4* to, const float4* from) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  float4 all[16];
#pragma unroll
  for (int k = 0; k < 16; ++k) all[k] = from[(i + 7 * k) % 512];
  __syncthreads();
  float4 value = all[0];
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    value.x += all[k].y * all[15 - k].x; value.y += all[k].x * all[15 - k].w;
    value.z += all[k].w * all[15 - k].z; value.w += all[k].z * all[15 - k].y;
  }
  to[i] = value;
}
"""


def work_of(module, name):
    """What a launch of the kernel does, as replay.py counts it."""
    size = 4 * ELEMENTS
    memory = Memory(bytes(2 * size), 1 << 20, [(0, 2 * size)])
    grid = Grid(module, memory, (BLOCKS, 1), THREADS)
    hits = grid.run(name, (1 << 20).to_bytes(8, "little") + ((1 << 20) + size).to_bytes(8, "little"))
    distinct = sum(int(touched.sum()) for touched in memory.touched.values())
    return Work("planted", THREADS, module.functions[name].instructions, hits.tolist(), ELEMENTS, grid.traffic, distinct)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--nvcc", required=True)
    options.add_argument("--compiler", required=True)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, made = pathlib.Path(folder) / "planted.cu", str(pathlib.Path(folder) / "planted.o")
        source.write_text(SOURCE, encoding="utf-8")
        subprocess.run([chosen.nvcc, "-c", "-std=c++17", "-O3", "-fmad=false", "-ccbin", chosen.compiler, "-gencode",
                        "arch=compute_75,code=compute_75", "-gencode", "arch=compute_90,code=sm_90", "-o", made, source],
                       check=True)
        module, codes = Module(ptx_of([made])[0]), codes_of(made)
    names = dict(zip(("whole_kernel", "narrowed_kernel", "spilled_kernel"), (None, "stores of 32 bits", "spilled")))
    wrong = 0
    for code in codes:
        name = next(name for name in module.kernels if code.kernel in name)
        lines = list(broken([row_of(code, work_of(module, name), Result())]))
        expected = names.pop(code.kernel)
        well = any(expected in line for line in lines) if expected else not lines
        print(f"{code.kernel}: {lines or 'nothing is wrong'}{'' if well else ' NOT AS EXPECTED'}")
        wrong += not well
    return 1 if wrong or names else 0


if __name__ == "__main__":
    sys.exit(main())
