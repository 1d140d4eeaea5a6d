"""Checks and times Neurona's Hopper kernels against cuDNN and cuBLAS (through PyTorch) on the GPU at hand.

hopper_check.py [--build] [--quick] [GROUP ...]   groups: matmul forward inputs weights; --build only compiles, without a GPU.
Each group runs in a process of its own, so that a kernel that fails takes nothing else along."""
import json, os, sys, time
import torch, torch.nn.functional as F
from hopper_ops import *
import hopper_driver

CONV = {"air_1a": (2000, 24, 31, 31, 64, 3, 1, 1), "air_1b": (2000, 64, 15, 15, 64, 3, 1, 1), "air_2a": (2000, 64, 15, 15, 256, 3, 1, 1),
        "air_2b": (2000, 256, 7, 7, 256, 3, 1, 1), "air_3b": (2000, 256, 3, 3, 256, 3, 1, 1), "r18_64": (512, 64, 32, 32, 64, 3, 1, 1),
        "r18_128s2": (512, 64, 32, 32, 128, 3, 2, 1), "r18_256": (512, 256, 8, 8, 256, 3, 1, 1), "r18_512": (512, 512, 4, 4, 512, 3, 1, 1),
        "r50_1x1": (128, 256, 56, 56, 64, 1, 1, 0), "r50_3x3": (128, 128, 28, 28, 128, 3, 1, 1)}
# n, c, h, w, k, r, s, stride, pad, dilation
ODD = [(3, 8, 7, 9, 8, 3, 3, (1, 1), (1, 1), (1, 1)), (2, 64, 13, 11, 64, 3, 3, (1, 1), (0, 0), (1, 1)),
       (5, 72, 10, 17, 136, 5, 3, (2, 1), (3, 1), (1, 1)), (1, 24, 33, 20, 40, 3, 3, (1, 1), (2, 2), (2, 2)),
       (4, 128, 9, 9, 320, 1, 1, (2, 2), (0, 0), (1, 1)), (2, 16, 23, 23, 256, 7, 7, (2, 2), (3, 3), (1, 1)),
       (3, 40, 12, 12, 24, 3, 3, (2, 2), (1, 1), (2, 2)), (2, 256, 5, 6, 512, 2, 2, (2, 2), (0, 0), (1, 1)),
       (7, 96, 8, 8, 64, 3, 3, (3, 3), (1, 1), (1, 1)), (2, 8, 64, 3, 16, 3, 1, (1, 1), (1, 0), (1, 1)),
       (1, 8, 1, 1, 8, 1, 1, (1, 1), (0, 0), (1, 1)), (130, 64, 4, 4, 128, 3, 3, (1, 1), (1, 1), (1, 1)),
       (3, 32, 6, 7, 48, 3, 3, (1, 1), (4, 3), (1, 1)), (2, 200, 31, 31, 72, 4, 4, (2, 2), (1, 1), (1, 1))]
LIMIT = {torch.float16: 6e-4, torch.bfloat16: 4e-3}


def chunk_for(c):
    return 16 if c <= 16 else 32 if ceil(c, 32) * 32 < ceil(c, 64) * 64 else 64


def conv_configs(c, k):
    """Candidates (kind, config) for c summed and k output channels, the expected best first."""
    chunk = chunk_for(c)
    def cfg(kind, m, n, stages, blocks, buffers=1, **more):
        return kind, Config(TILE_M=m, TILE_N=n, STAGES=stages, BLOCKS_PER_SM=blocks, OUT_BUFFERS=buffers, A_CHUNK=chunk, B_CHUNK=chunk, **more)
    n = 32 if k <= 32 else 64
    slab = [cfg("slab", 384, n, 2, 1, GROUPS_M=3), cfg("slab", 384, n, 1, 1, GROUPS_M=3), cfg("slab", 256, n, 2, 1)]
    if k <= 32:
        return slab + [cfg("plain", 128, 32, 4, 2), cfg("plain", 128, 32, 3, 3)]
    if k <= 64:
        return slab + [cfg("plain", 128, 64, 4, 2), cfg("plain", 192, 64, 5, 1, 2, GROUPS_M=3)]
    if k <= 128:
        return [cfg("plain", 128, 128, 3, 2), cfg("plain", 256, 128, 4, 1), cfg("slab", 256, 64, 2, 1)]
    return [cfg("plain", 128, 256, 4, 1), cfg("plain", 256, 128, 4, 1), cfg("plain", 128, 128, 3, 2)]


def weight_configs(c, k, taps):
    chunk = max(32, chunk_for(c))
    def cfg(kind, m, n, gm, gn, stages, blocks, **more):
        return kind, Config(output=0, TILE_M=m, TILE_N=n, GROUPS_M=gm, GROUPS_N=gn, STAGES=stages, BLOCKS_PER_SM=blocks, B_CHUNK=chunk, **more)
    slab = []
    if 1 < taps <= 9:
        n = ceil(taps, 3) * 3 * chunk
        slab = [cfg("slab", 64, n, 1, 3, 6, 1, DEPTH=64), cfg("slab", 64, n, 1, 3, 4, 1, DEPTH=64)]
        if chunk < 64:
            slab += [cfg("slab", 64, n, 1, 3, 4, 1, DEPTH=128)]
    if chunk < 64:
        found = [cfg("plain", 64, 288, 1, 3, 5, 1), cfg("plain", 64, 256, 1, 2, 5, 1)]
        return slab + [f for f in found if f[1].TILE_N // f[1].GROUPS_N % chunk == 0]
    if k <= 64:
        return slab + [cfg("plain", 64, 576, 1, 3, 5, 1, DEPTH=32), cfg("plain", 64, 256, 1, 2, 5, 1)]
    return [cfg("plain", 128, 192, 2, 1, 5, 1), cfg("plain", 256, 128, 2, 1, 4, 1), cfg("plain", 128, 256, 2, 1, 4, 1)] + slab[:1]


def graph_ms(f, n=20):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            f()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(n):
            f()
    times = []
    for _ in range(5):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record(); graph.replay(); b.record(); torch.cuda.synchronize()
        times.append(a.elapsed_time(b) / n)
    return sorted(times)[2]


def error(out, ref):
    out, ref = out.double(), ref.double()
    return ((out - ref).norm() / ref.norm().clamp_min(1e-30)).item() if torch.isfinite(out).all() else float("nan")


def nan(*shape, dtype):
    return torch.full(shape, float("nan"), device="cuda", dtype=dtype)


def nhwc(t):
    return t.permute(0, 2, 3, 1).contiguous()


def verdict(what, e, limit, bad):
    if not e < limit:
        bad.append(f"WRONG {what}: {e:.2e}")


def reference(dt, x, w, gy, stride, pad, dilation):
    """Forward, input gradient, weight gradient on upcast values."""
    wide = torch.float64 if x.numel() * w.numel() < 2e9 else torch.float32
    x, w, gy = x.to(wide), w.to(wide), gy.to(wide) if gy is not None else None
    y = F.conv2d(x, w, None, stride, pad, dilation)
    if gy is None:
        return y
    dx, dw, _ = torch.ops.aten.convolution_backward(gy, x, w, None, list(stride), list(pad), list(dilation), False, [0, 0], 1, [True, True, False])
    return y, dx, dw


def case(dt, n, c, h, w, k, r, s, stride, pad, dilation):
    p = (h + 2 * pad[0] - dilation[0] * (r - 1) - 1) // stride[0] + 1
    q = (w + 2 * pad[1] - dilation[1] * (s - 1) - 1) // stride[1] + 1
    x = torch.randn(n, c, h, w, device="cuda", dtype=dt)
    weights = torch.randn(k, c, r, s, device="cuda").mul(0.05).to(dt).float()
    return x, weights, torch.randn(n, k, p, q, device="cuda", dtype=dt), p, q


def convolve_as(kind, x, packed, out, parts, cfg, scale, bias, relu, extra):
    if kind == "plain":
        return convolve(x, packed, out, parts, cfg, scale, bias, relu, True, extra)
    if len(parts) > 1 or slab_config(x, packed, parts[0], cfg) is None:
        return None
    return convolve_slab(x, packed, out, parts[0], cfg, scale, bias, relu, extra)


def forward_run(kind, x, weights, p, q, stride, pad, dilation, cfg, scale=None, bias=None, relu=0, extra={}):
    k, c, r, s = weights.shape
    packed = nan(k, r * s, c, dtype=x.dtype)
    out = nan(x.shape[0], p, q, k, dtype=x.dtype)
    parts = forward_parts(x.shape[1], x.shape[2], r, s, stride, pad, dilation, p, q)
    return pack(weights, packed, False), convolve_as(kind, x, packed, out, parts, cfg, scale, bias, relu, extra), out


def input_run(kind, gy, weights, h, w, stride, pad, dilation, cfg, extra={}):
    k, c, r, s = weights.shape
    packed = nan(c, r * s, k, dtype=gy.dtype)
    out = nan(gy.shape[0], h, w, c, dtype=gy.dtype)
    return pack(weights, packed, True), convolve_as(kind, gy, packed, out, gradient_parts(h, w, r, s, stride, pad, dilation), cfg, None, None, 0, extra), out


SAFE = {}  # dict(SPIN_LIMIT=4000000) turns a deadlock into an error


def check_conv(op):
    bad, count = [], 0
    for start in (0, 1):  # the two types in turn, each shape with each type
        for i, odd in enumerate(ODD):
            dt = (torch.float16, torch.bfloat16)[(i + start) % 2]
            n, c, h, w, k, r, s, stride, pad, dilation = odd
            x, weights, gy, p, q = case(dt, *odd)
            y, dx, dw = reference(dt, x, weights, gy, stride, pad, dilation)
            xl, gl = nhwc(x), nhwc(gy)
            if op == "forward":
                for j, (kind, cfg) in list(enumerate(conv_configs(c, k)))[start::2]:
                    bias = torch.randn(k, device="cuda") if j % 2 == 0 else None
                    scale = torch.randn(k, device="cuda") if (i + j) % 3 == 0 else None
                    relu = (i + j) % 2
                    packing, go, out = forward_run(kind, xl, weights, p, q, stride, pad, dilation, cfg, scale, bias, relu, SAFE)
                    if go is None:
                        continue
                    packing(); go(); torch.cuda.synchronize()
                    ref = y if scale is None else y * scale.to(y.dtype)[None, :, None, None]
                    ref = ref if bias is None else ref + bias.to(y.dtype)[None, :, None, None]
                    verdict(f"forward {dt} {odd} {kind} {cfg.name()} bias={bias is not None} relu={relu}", error(out, nhwc(ref.relu() if relu else ref)), LIMIT[dt], bad)
                    count += 1
            if op == "inputs":
                for j, (kind, cfg) in list(enumerate(conv_configs(k, c)))[start::2]:
                    packing, go, out = input_run(kind, gl, weights, h, w, stride, pad, dilation, cfg, SAFE)
                    if go is None:
                        continue
                    packing(); go(); torch.cuda.synchronize()
                    verdict(f"inputs {dt} {odd} {kind} {cfg.name()}", error(out, nhwc(dx)), LIMIT[dt], bad)
                    count += 1
            if op == "weights":
                for j, (kind, cfg) in list(enumerate(weight_configs(c, k, r * s)))[start::2]:
                    out = nan(*weights.shape, dtype=dt if j % 2 else torch.float32)
                    found = weight_gradient(xl, gl, out, stride, pad, dilation, cfg, kind == "slab", SAFE)
                    if found is None:
                        continue
                    found[0](); found[1](); torch.cuda.synchronize()
                    verdict(f"weights {dt} {odd} {kind} {cfg.name()}", error(out, dw), LIMIT[dt] if j % 2 else 1e-5, bad)
                    count += 1
    print(f"{op}: {count} checks, {len(bad)} wrong", *bad[:12], sep="\n  ", flush=True)
    return bad


def time_conv(op, types, results):
    for dt in types:
        for name, (n, c, h, w, k, r, st, pd) in CONV.items():
            stride, pad, dilation = (st, st), (pd, pd), (1, 1)
            x, weights, gy, p, q = case(dt, n, c, h, w, k, r, r, stride, pad, dilation)
            xc, wc, gc = (t.to(memory_format=torch.channels_last) for t in (x, weights.to(dt), gy))
            flops = 2 * gy.numel() * c * r * r
            back = lambda mask: torch.ops.aten.convolution_backward(gc, xc, wc, None, list(stride), list(pad), [1, 1], False, [0, 0], 1, mask)
            run = {"forward": lambda: F.conv2d(xc, wc, None, stride, pad), "inputs": lambda: back([True, False, False]), "weights": lambda: back([False, True, False])}[op]
            ref = run() if op == "forward" else run()[0 if op == "inputs" else 1]
            vendor = graph_ms(run)
            xl, gl = nhwc(x), nhwc(gy)
            configs = {"forward": lambda: conv_configs(c, k), "inputs": lambda: conv_configs(k, c), "weights": lambda: weight_configs(c, k, r * r)}[op]()
            found = []
            for kind, cfg in configs:
                try:
                    extra = None
                    if op == "forward":
                        extra, go, out = forward_run(kind, xl, weights, p, q, stride, pad, dilation, cfg)
                    elif op == "inputs":
                        extra, go, out = input_run(kind, gl, weights, h, w, stride, pad, dilation, cfg)
                    else:
                        out = nan(*weights.shape, dtype=torch.float32)
                        go = weight_gradient(xl, gl, out, stride, pad, dilation, cfg, kind == "slab")
                        go, extra = go if go else (None, None)
                    if go is None:
                        continue
                    if op == "weights":
                        go(); extra()
                    else:
                        extra(); go()
                    torch.cuda.synchronize()
                    e = error(out, ref if op == "weights" else nhwc(ref))
                    if not e < 2 * LIMIT[dt]:
                        print("  WRONG", op, name, dt, kind, cfg.name(), f"{e:.2e}", flush=True)
                        continue
                    both = (lambda go=go, extra=extra: (go(), extra())) if op == "weights" else go
                    found.append((graph_ms(both), kind + " " + cfg.name(), graph_ms(extra)))
                except Exception as problem:
                    print("  FAILED", op, name, kind, cfg.name(), str(problem)[:200], flush=True)
                    if "launch" in str(problem) or "CUDA error" in str(problem):
                        raise
            if not found:
                continue
            found.sort()
            ms, which, packing = found[0]
            results.append(dict(op=op, conv=name, dtype=str(dt)[6:], own=ms, pack=packing, vendor=vendor, ratio=vendor / ms, tflops=flops / ms / 1e9, which=which, all=[(f"{t:.4f}", v) for t, v, _ in found]))
            print(f"{op:8}{name:10}{str(dt)[6:]:9} own {ms:.4f} ({'of it sum' if op == 'weights' else 'and pack'} {packing:.4f})  cuDNN {vendor:.4f}  ratio {vendor / ms:.2f}  {flops / ms / 1e9:6.0f} TF  {which} | "
                  + ", ".join(f"{v} {t:.3f}" for t, v, _ in found[1:4]), flush=True)


def matmul_configs():
    shares = dict(output=0, STAGES=3)
    return [("plain", Config(TILE_M=128, TILE_N=256, STAGES=4, BLOCKS_PER_SM=1)), ("plain", Config()), ("plain", Config(TILE_N=64, STAGES=4)), ("plain", Config(TILE_M=64, TILE_N=64, GROUPS_M=1, STAGES=6)),
            ("shares", Config(output=0, TILE_N=128, STAGES=3)), ("shares", Config(output=0, TILE_N=64, STAGES=4)), ("shares", Config(output=0, TILE_N=256, STAGES=4, BLOCKS_PER_SM=1)),
            ]


def matmul_as(kind, *arguments, extra={}):
    return (matmul_shares if kind == "shares" else matmul)(*arguments, extra=extra)


def check_matmul():
    bad, count = [], 0
    for start in (0, 1):
        for i, (m, n, k) in enumerate([(128, 128, 64), (8, 8, 8), (200, 264, 136), (1000, 520, 72), (136, 48, 784), (640, 256, 2048), (64, 16, 4096)]):
            for a_rows in (0, 1):
                for b_rows in (0, 1):
                    for j, (kind, cfg) in list(enumerate(matmul_configs()))[start::2]:
                        dt = (torch.float16, torch.bfloat16)[start]
                        a = torch.randn((k, m) if a_rows else (m, k), device="cuda", dtype=dt)
                        b = torch.randn((k, n) if b_rows else (n, k), device="cuda", dtype=dt)
                        bias, relu = (torch.randn(n, device="cuda") if (i + j) % 2 else None), j % 2
                        out = nan(m, n, dtype=dt)
                        matmul_as(kind, a, b, out, cfg, a_rows, b_rows, bias, relu, extra=SAFE)()
                        torch.cuda.synchronize()
                        ref = (a.T if a_rows else a).double() @ (b if b_rows else b.T).double()
                        ref = ref + bias.double() if bias is not None else ref
                        verdict(f"matmul {dt} {m}x{n}x{k} rows {a_rows}{b_rows} {kind} {cfg.name()}", error(out, ref.relu() if relu else ref), LIMIT[dt], bad)
                        count += 1
    print(f"matmul: {count} checks, {len(bad)} wrong", *bad[:12], sep="\n  ", flush=True)
    return bad


def time_matmul(types, results):
    for dt in types:
        for m, n, k, a_rows, b_rows in [(8192, 8192, 8192, 0, 1), (4096, 4096, 4096, 0, 1), (4096, 4096, 4096, 0, 0), (4096, 4096, 4096, 1, 1), (4096, 512, 784, 0, 0), (4096, 256, 512, 0, 0),
                                        (512, 784, 4096, 1, 1), (256, 512, 4096, 1, 1), (4096, 784, 512, 0, 1), (4096, 512, 256, 0, 1), (128, 512, 784, 0, 0), (128, 256, 512, 0, 0), (512, 784, 128, 1, 1)]:
            a = torch.randn((k, m) if a_rows else (m, k), device="cuda", dtype=dt)
            b = torch.randn((k, n) if b_rows else (n, k), device="cuda", dtype=dt)
            out = nan(m, n, dtype=dt)
            left, right, other = a.T if a_rows else a, b if b_rows else b.T, torch.empty_like(out)
            repeat = 5 if m == 8192 else 20
            vendor = graph_ms(lambda: torch.mm(left, right, out=other), repeat)
            found = []
            for kind, cfg in matmul_configs():
                if kind == "shares" and m * n > 2**20:
                    continue
                go = matmul_as(kind, a, b, out, cfg, a_rows, b_rows)
                go(); torch.cuda.synchronize()
                e = error(out, other)
                if not e < 2 * LIMIT[dt]:
                    print("  WRONG", m, n, k, kind, cfg.name(), e, flush=True)
                    continue
                found.append((graph_ms(go, repeat), kind + " " + cfg.name()))
            found.sort()
            if found:
                ms, which = found[0]
                results.append(dict(op="matmul", shape=[m, n, k, a_rows, b_rows], dtype=str(dt)[6:], own=ms, vendor=vendor, ratio=vendor / ms, all=found))
                print(f"matmul {m}x{n}x{k} rows {a_rows}{b_rows} {str(dt)[6:]:9} own {ms:.4f}  cuBLAS {vendor:.4f}  ratio {vendor / ms:.2f}  {2e-9 * m * n * k / ms:6.0f} TF  {which} | "
                      + ", ".join(f"{v} {t:.4f}" for t, v in found[1:4]), flush=True)


def group_main(group, types, out):
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.zeros(1, device="cuda")
    torch.manual_seed(int(time.time()))
    results = []
    bad = check_matmul() if group == "matmul" else check_conv(group)
    torch.backends.cudnn.benchmark = True  # cuDNN's best for each shape
    start = time.time()
    if len(bad) < 100:
        time_matmul(types, results) if group == "matmul" else time_conv(group, types, results)
    print(f"{group}: timed in {time.time() - start:.0f} s", flush=True)
    if out:
        json.dump(results, open(f"{out}/{group}.json", "w"))


def build_all():
    """Every variant that a run would ask for, into the cache."""
    from concurrent.futures import ThreadPoolExecutor
    jobs = set()
    def add(file, macros): jobs.add((file, tuple(sorted(macros.items()))))
    def add_conv(kind, cfg, t, safe):
        assert kind == "slab" or cfg.fits(), cfg.name()
        add("ops/conv2d/conv2d_hopper_slab.cu" if kind == "slab" else "ops/conv2d/conv2d_hopper.cu", dict(cfg.macros, ELEMENT=t, **safe))
    def add_weights(kind, cfg, t, out, safe):
        assert kind == "slab" or cfg.fits(), cfg.name()
        add("ops/conv2d/conv2d_hopper_weights.cu", dict(cfg.macros, ELEMENT=t, A_ROWS=1, B_ROWS=1, OUTPUT=0, SLAB=int(kind == "slab"), OUT_ELEMENT=out, **safe))
    def add_matmul(kind, cfg, t, safe):
        assert cfg.fits(), cfg.name()
        for a in (0, 1):
            for b in (0, 1):
                add("ops/matmul/matmul_hopper.cu", dict(cfg.macros, ELEMENT=t, A_ROWS=a, B_ROWS=b, **(dict(OUTPUT=0, OUT_ELEMENT=t) if kind == "shares" else {}), **safe))
    for start in (0, 1):
        for kind, cfg in matmul_configs()[start::2]:
            add_matmul(kind, cfg, ("f16", "bf16")[start], SAFE)
        for i, (n, c, h, w, k, r, s, *_) in enumerate(ODD):
            t = ("f16", "bf16")[(i + start) % 2]
            for kind, cfg in conv_configs(c, k)[start::2] + conv_configs(k, c)[start::2]:
                add_conv(kind, cfg, t, SAFE)
            for j, (kind, cfg) in list(enumerate(weight_configs(c, k, r * s)))[start::2]:
                add_weights(kind, cfg, t, t if j % 2 else "float", SAFE)
    for t in ("f16", "bf16") if "--quick" not in sys.argv else ("bf16",):
        for kind, cfg in matmul_configs():
            add_matmul(kind, cfg, t, {})
        for n, c, h, w, k, r, *_ in CONV.values():
            for kind, cfg in conv_configs(c, k) + conv_configs(k, c):
                add_conv(kind, cfg, t, {})
            for kind, cfg in weight_configs(c, k, r * r):
                add_weights(kind, cfg, t, "float", {})
    for t in ("f16", "bf16"):
        add("ops/conv2d/conv2d_hopper_pack.cu", dict(ELEMENT=t, WEIGHT_ELEMENT="float"))
    print(len(jobs), "variants")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda j: hopper_driver.build(j[0], dict(j[1])), sorted(jobs)))


def main():
    names = [a for a in sys.argv[1:] if not a.startswith("--")] or ["matmul", "forward", "weights", "inputs"]
    if "--build" in sys.argv:
        return build_all()
    types = (torch.bfloat16,) if "--quick" in sys.argv else (torch.float16, torch.bfloat16)
    for group in names:
        child = os.fork()
        if child == 0:
            try:
                group_main(group, types, os.environ.get("OUT"))
            except BaseException as problem:
                print(f"{group}: {type(problem).__name__} {str(problem)[:600]}", flush=True)
                os._exit(1)
            os._exit(0)
        start = time.time()
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.time() - start > 30:
                print(f"{group}: no answer after 30 s", flush=True)
                os.kill(child, 9)
                os.waitpid(child, 0)
                break
            time.sleep(0.05)


if __name__ == "__main__":
    main()
