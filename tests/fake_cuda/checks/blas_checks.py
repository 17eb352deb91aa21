#!/usr/bin/env python3
"""Products of matrices through LibTorch on the fake CUDA, against the host.

Run on the fake CUDA: tests/fake_cuda/run.py python3 tests/fake_cuda/checks/blas_checks.py
Where all sums are exact (small integers) the bits must be the host's; elsewhere the error is bounded by the type.
"""

import itertools
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("skipped: this Python has no torch")
    sys.exit(77)

torch.backends.cudnn.enabled = False
failures = 0
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def expect(holds, what):
    if not holds:
        raise AssertionError(what)


def integers(*shape, dtype=torch.float32):
    """Numbers whose products and sums are exact in every type."""
    if dtype.is_complex:
        return torch.complex(torch.randint(-3, 4, shape).double(), torch.randint(-3, 4, shape).double()).to(dtype)
    return torch.randint(-3, 4, shape).to(dtype)


def equal(on_device, on_host, what):
    expect(on_device.dtype == on_host.dtype and on_device.shape == on_host.shape, f"{what}: type or shape")
    expect(torch.equal(on_device.cpu(), on_host), f"{what}: not the host's numbers")


def near(on_device, on_host, what, bound):
    error = ((on_device.cpu().double() - on_host.double()).abs().max() / on_host.double().abs().max()).item()
    expect(error <= bound, f"{what}: error {error}, not {bound}")


FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
ALL = FLOATS + [torch.complex64, torch.complex128]


def host(function, *tensors):
    """On the host in a type that holds all sums; the result in the type of the operands."""
    dtype = tensors[0].dtype
    wide = torch.complex128 if dtype.is_complex else torch.float64
    return function(*[t.to(wide) for t in tensors]).to(dtype)


@check
def matrices_of_all_types_and_shapes():
    for dtype, (m, k, n) in itertools.product(ALL, [(1, 1, 1), (3, 5, 2), (17, 33, 65), (64, 7, 16), (1, 50, 9)]):
        a, b = integers(m, k, dtype=dtype), integers(k, n, dtype=dtype)
        equal(a.cuda() @ b.cuda(), host(torch.matmul, a, b), f"{dtype} {m}x{k}x{n}")


@check
def transposed_and_strided_operands():
    for dtype in ALL:
        a, b = integers(12, 40, dtype=dtype), integers(20, 30, dtype=dtype)
        for left, right in [(a[:, :30], b.t()), (a[:, 5:15].t(), a), (b.t(), b), (a[::2, ::2], b)]:
            expect(left.shape[1] == right.shape[0], "shapes")
            equal(left.cuda() @ right.cuda(), host(torch.matmul, left, right), f"{dtype} {left.shape}")
        equal((a.cuda().conj().t()) @ a.cuda(), host(lambda x: x.conj().t() @ x, a), f"{dtype} conjugated")


@check
def batches():
    for dtype in ALL:
        a, b = integers(5, 6, 7, dtype=dtype), integers(5, 7, 4, dtype=dtype)
        equal(torch.bmm(a.cuda(), b.cuda()), host(torch.bmm, a, b), f"{dtype} bmm")
        equal(torch.bmm(a.cuda().transpose(1, 2), a.cuda()), host(lambda x: x.transpose(1, 2) @ x, a), f"{dtype} bmm T")
        c = integers(5, 6, 4, dtype=dtype)
        equal(torch.baddbmm(c.cuda(), a.cuda(), b.cuda(), beta=2, alpha=3),
              host(lambda x, y, z: torch.baddbmm(x, y, z, beta=2, alpha=3), c, a, b), f"{dtype} baddbmm")
        shared = integers(1, 7, 4, dtype=dtype).expand(5, 7, 4)
        equal(torch.bmm(a.cuda(), shared.cuda()), host(torch.bmm, a, shared), f"{dtype} one matrix for all")


@check
def scaled_sums():
    for dtype in ALL:
        a, b, c = integers(6, 8, dtype=dtype), integers(8, 5, dtype=dtype), integers(6, 5, dtype=dtype)
        for alpha, beta in [(1, 1), (2, 0), (0, 3), (-1, 2)]:
            equal(torch.addmm(c.cuda(), a.cuda(), b.cuda(), alpha=alpha, beta=beta),
                  host(lambda x, y, z: torch.addmm(x, y, z, alpha=alpha, beta=beta), c, a, b), f"{dtype} {alpha} {beta}")
    c = torch.full((6, 5), float("nan"))
    a, b = integers(6, 8), integers(8, 5)
    equal(torch.addmm(c.cuda(), a.cuda(), b.cuda(), beta=0), a @ b, "beta 0 ignores NaN")


@check
def vectors():
    for dtype in ALL:
        a, x, y = integers(6, 8, dtype=dtype), integers(8, dtype=dtype), integers(16, dtype=dtype)
        equal(a.cuda() @ x.cuda(), host(torch.mv, a, x), f"{dtype} mv")
        equal(a.cuda() @ y.cuda()[::2], host(torch.mv, a, y[::2]), f"{dtype} mv with steps")
        equal(torch.addmv(y.cuda()[:6], a.cuda(), x.cuda(), alpha=2, beta=3),
              host(lambda p, q, r: torch.addmv(p, q, r, alpha=2, beta=3), y[:6], a, x), f"{dtype} addmv")
        equal(torch.dot(x.cuda(), y.cuda()[::2]), host(torch.dot, x, y[::2]), f"{dtype} dot")
        if dtype.is_complex:
            equal(torch.vdot(x.cuda(), y.cuda()[8:]), host(torch.vdot, x, y[8:]), f"{dtype} vdot")


@check
def linear_layers_and_their_gradients():
    for dtype in FLOATS:
        layer = torch.nn.Linear(24, 10).to(dtype)
        x = torch.randn(7, 24, dtype=dtype)
        results = []
        for device in ["cpu", "cuda"]:
            here = torch.nn.Linear(24, 10, dtype=dtype, device=device)
            here.load_state_dict(layer.state_dict())
            own = x.detach().clone().to(device).requires_grad_()
            y = here(own)
            y.square().sum().backward()
            results.append([y.detach(), own.grad, here.weight.grad, here.bias.grad])
        bound = {torch.float32: 1e-6, torch.float64: 1e-15, torch.float16: 3e-3, torch.bfloat16: 2e-2}[dtype]
        for name, on_host, on_device in zip(["y", "dx", "dw", "db"], *results):
            near(on_device, on_host, f"{dtype} {name}", bound)


@check
def epilogues_of_activations():
    for dtype, bound in [(torch.float32, 1e-6), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)]:
        bias, a, b = torch.randn(16, dtype=dtype), torch.randn(8, 32, dtype=dtype), torch.randn(32, 16, dtype=dtype)
        wide = bias.double() + a.double() @ b.double()
        on_device = [t.cuda() for t in (bias, a, b)]
        near(torch._addmm_activation(*on_device), F.relu(wide), f"{dtype} relu", bound)
        near(torch._addmm_activation(*on_device, use_gelu=True), F.gelu(wide, approximate="tanh"), f"{dtype} gelu", bound)


@check
def sums_of_halves_are_fp32():
    # 2048 + 1 is 2048 in fp16: sums in fp16 would never pass it.
    for dtype, count in [(torch.float16, 4096), (torch.bfloat16, 512)]:
        a, b = torch.ones(2, count, dtype=dtype), torch.ones(count, 2, dtype=dtype)
        equal(a.cuda() @ b.cuda(), torch.full((2, 2), count, dtype=dtype), f"{dtype}")
    a = torch.ones(2, 3000, dtype=torch.float16).cuda()
    wide = torch.mm(a, a.t(), out_dtype=torch.float32)
    equal(wide, torch.full((2, 2), 3000.0), "fp32 result of fp16 operands")


@check
def convolutions_by_columns():
    x, w = integers(2, 3, 9, 9).requires_grad_(), integers(4, 3, 3, 3).requires_grad_()
    dx, dw = x.detach().cuda().requires_grad_(), w.detach().cuda().requires_grad_()
    y, dy = F.conv2d(x, w, stride=2, padding=1), F.conv2d(dx, dw, stride=2, padding=1)
    y.square().sum().backward()
    dy.square().sum().backward()
    for name, on_host, on_device in [("y", y, dy), ("dx", x.grad, dx.grad), ("dw", w.grad, dw.grad)]:
        equal(on_device.detach(), on_host.detach(), name)


@check
def bits_do_not_depend_on_the_batch():
    a, b = torch.randn(40, 300).cuda(), torch.randn(300, 24).cuda()
    whole = (a @ b).cpu()
    for rows in [1, 7, 16, 33]:
        expect(torch.equal((a[:rows] @ b).cpu(), whole[:rows]), f"{rows} rows")
    expect(torch.equal((a @ b[:, 3:8]).cpu(), whole[:, 3:8]), "some columns")
    expect(torch.equal((b.t() @ a.t()).t().cpu(), whole), "transposed")


@check
def order_of_streams_and_graphs():
    x, w = torch.randn(8, 8).cuda(), torch.randn(8, 8).cuda()
    result = torch.zeros(8, 8).cuda()
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for _ in range(2):
            torch.mm(x, w, out=result)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mm(x, w, out=result)
    result.zero_()
    for value in [1.0, 2.0]:
        x.fill_(value)
        torch.cuda.synchronize()
        expect(not torch.equal(result, x @ w), "nothing runs before the launch")
        graph.replay()
        torch.cuda.synchronize()
        expect(torch.equal(result, x @ w), "a launch reads what is there now")


@check
def what_is_refused():
    # fp16 sums are not known: LibTorch gets an error, not a plausible number.
    torch.backends.cuda.matmul.allow_fp16_accumulation = True
    try:
        a = torch.ones(4, 4, dtype=torch.float16).cuda()
        try:
            a @ a
            expect(False, "sums in fp16")
        except RuntimeError as error:
            expect("CUBLAS_STATUS_NOT_SUPPORTED" in str(error), str(error))
    finally:
        torch.backends.cuda.matmul.allow_fp16_accumulation = False


for function in CHECKS:
    torch.manual_seed(1)
    try:
        function()
        print("ok    ", function.__name__.replace("_", " "), flush=True)
    except Exception as error:  # noqa: BLE001: the next check may hold
        failures += 1
        print("FAILED", function.__name__.replace("_", " "), type(error).__name__, error, flush=True)
sys.exit(failures != 0)
