#!/usr/bin/env python3
"""Speed of a Triton SwiGLU over packed gate|up, to stand beside `twins_bench --only swiglu`.

    python3 tests/gpu/triton_swiglu.py

Prints GB/s (bytes read and written once over the median time) of Triton's kernel and of a plain
device copy in the same run. Needs PyTorch, Triton and a GPU.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def swiglu_kernel(gate_up, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    gate = tl.load(gate_up + row * 2 * columns + column, mask=inside).to(tl.float32)
    up = tl.load(gate_up + row * 2 * columns + columns + column, mask=inside).to(tl.float32)
    activated = gate * tl.sigmoid(gate) * up
    tl.store(out + row * columns + column, activated.to(tl.bfloat16), mask=inside)


def gigabytes_per_second(run, bytes_moved):
    milliseconds = triton.testing.do_bench(run, warmup=100, rep=500, return_mode="median")
    return bytes_moved / milliseconds / 1e6


def main():
    source = torch.randn(2**29, device="cuda").to(torch.bfloat16)
    target = torch.empty_like(source)
    copied = 4 * source.numel()
    print(f"{torch.cuda.get_device_name()}: copy "
          f"{gigabytes_per_second(lambda: target.copy_(source), copied):.0f} GB/s")
    for rows, columns in ((16384, 12288), (65536, 1536)):
        gate_up = torch.randn(rows, 2 * columns, device="cuda").to(torch.bfloat16)
        out = torch.empty(rows, columns, device="cuda", dtype=torch.bfloat16)
        best = 0.0
        for block in (512, 1024, 2048, 4096):
            for warps in (4, 8):
                grid = (rows, triton.cdiv(columns, block))
                run = lambda: swiglu_kernel[grid](gate_up, out, columns, BLOCK=block,
                                                  num_warps=warps)
                best = max(best, gigabytes_per_second(run, 6 * rows * columns))
        print(f"triton swiglu [{rows}, {columns}] BF16: {best:.0f} GB/s")


if __name__ == "__main__":
    main()
