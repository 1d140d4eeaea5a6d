"""What all cases share: the portable number stream, inputs, one case, and the file format."""

import json
import math
import zlib
from pathlib import Path

import numpy as np
import safetensors.torch
import torch

f16, bf16, f32, f64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
u8, i64, boolean = torch.uint8, torch.int64, torch.bool
NAMES = {f16: "f16", bf16: "bf16", f32: "f32", f64: "f64", u8: "u8", i64: "i64", boolean: "bool"}
DTYPES = {name: dtype for dtype, name in NAMES.items()}
FILE_NAMES = {f16: "F16", bf16: "BF16", f32: "F32", f64: "F64", u8: "U8", i64: "I64", boolean: "BOOL"}


def splitmix64(seed: int, count: int) -> np.ndarray:
    """Values i = 0 .. count-1 of the stream: mix(seed + (i+1) * 0x9E3779B97F4A7C15), all modulo 2^64."""
    mask = (1 << 64) - 1
    z = np.uint64(seed & mask) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(seed: int, shape) -> torch.Tensor:
    """f64 in [-1, 1): (z >> 40) / 2^24 * 2 - 1, row-major. Exact in f32."""
    z = splitmix64(seed, math.prod(shape))
    return torch.from_numpy((z >> np.uint64(40)).astype(np.float64) / 2.0**24 * 2.0 - 1.0).reshape(shape)


# Inputs of a case are recipes: functions of a seed. A plain tensor is taken as it is.
def u(*shape, lo=-2.0, hi=2.0, dtype=f32):
    """Uniform in [lo, hi)."""
    return lambda seed: (lo + (uniform(seed, shape) + 1.0) * ((hi - lo) / 2.0)).to(dtype)


def ints(*shape, lo=0, hi=10, dtype=i64):
    """Integers lo .. hi-1."""
    return lambda seed: torch.floor(lo + (uniform(seed, shape) + 1.0) * ((hi - lo) / 2.0)).to(dtype)


def lit(values, dtype=f32):
    return torch.tensor(values, dtype=dtype)


def identical(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal values, NaN equal to NaN."""
    return a.shape == b.shape and torch.isclose(a, b, rtol=0, atol=0, equal_nan=a.is_floating_point()).all().item()


def agree(got: torch.Tensor, want: torch.Tensor, tol: float) -> float:
    """How far `got` is from `want`, in units of what `tol` allows (<= 1 is agreement)."""
    got, want = got.to(f64).reshape(-1), want.to(f64).reshape(-1)
    finite = torch.isfinite(want)
    if not identical(got[~finite], want[~finite]):
        return math.inf
    if not finite.any():
        return 0.0
    got, want = got[finite], want[finite]
    error = (got - want).abs().max().item()
    return error / (tol * max(1.0, want.abs().max().item())) if tol > 0 else (0.0 if error == 0 else math.inf)


class Group:
    """Cases of one file."""

    def __init__(self, name: str):
        self.name, self.cases, self.tensors = name, {}, {}

    def put(self, case: str, role: str, tensor: torch.Tensor):
        key = f"{case}/{role}"
        assert key not in self.tensors, f"{key} twice"
        self.tensors[key] = tensor.detach().clone().contiguous()

    def describe(self, case: str, **fields):
        assert "/" not in case and case not in self.cases, case
        self.cases[case] = fields

    def case(
        self,
        op: str,
        suffix: str,
        fn,
        inputs: dict,
        attrs: dict,
        *,
        outputs=("y",),
        diff=None,
        dtype=None,
        tol=1e-5,
        confirm=True,
    ):
        """Run `fn` on the inputs, forward and backward, and keep everything.

        `diff`: names of the inputs to differentiate (default: all floating-point ones).
        `confirm`: an f32 case must agree with its f64 computation within half its tolerance."""
        name = f"{op}_{suffix}"
        seed = zlib.crc32(name.encode()) * 1000
        given = [t(seed + j) if callable(t) else t for j, t in enumerate(inputs.values())]
        wanted = [t.is_floating_point() if diff is None else n in diff for n, t in zip(inputs, given)]

        def run(widen):
            args = [
                (t.to(f64) if widen and t.is_floating_point() else t.clone()).requires_grad_(w)
                for t, w in zip(given, wanted)
            ]
            with torch.enable_grad():
                outs = fn(*args)
                outs = list(outs) if isinstance(outs, (tuple, list)) else [outs]
                heads = [(k, o) for k, o in enumerate(outs) if o.requires_grad]
                douts = {k: uniform(seed + 500 + k, o.shape).to(o.dtype) for k, o in heads}
                leaves = [a for a, w in zip(args, wanted) if w]
                dins = torch.autograd.grad([o for _, o in heads], leaves, list(douts.values())) if heads else []
            return outs, douts, list(dins)

        outs, douts, dins = run(False)
        assert len(outs) == len(outputs), name
        dtype = dtype or NAMES[given[0].dtype]
        if confirm and dtype == "f32":
            wide_outs, _, wide_dins = run(True)
            for got, want in zip(outs + dins, wide_outs + wide_dins):
                far = agree(got, want.to(got.dtype), tol)
                assert far <= 0.5, f"{name}: f32 is {far} tolerances from f64"
        for j, tensor in enumerate(given):
            self.put(name, f"in{j}", tensor)
        for k, tensor in enumerate(outs):
            self.put(name, f"out{k}", tensor)
        for k, tensor in douts.items():
            self.put(name, f"dout{k}", tensor)
        slots = [j for j, w in enumerate(wanted) if w] if douts else []
        for j, tensor in zip(slots, dins):
            assert tensor.shape == given[j].shape and tensor.dtype == given[j].dtype, name
            self.put(name, f"din{j}", tensor)
        self.describe(name, op=op, attrs=attrs, dtype=dtype, tol=tol, inputs=list(inputs), outputs=list(outputs))

    def write(self, folder: Path) -> Path:
        """Written by hand, because the library's header order changes from run to run."""
        tensors = sorted(self.tensors.items(), key=lambda kv: (-kv[1].element_size(), kv[0]))
        header = {"__metadata__": {case: json.dumps(f, allow_nan=False) for case, f in self.cases.items()}}
        body, at = [], 0
        for name, tensor in tensors:
            data = tensor.reshape(-1).view(u8).numpy().tobytes() if tensor.numel() else b""
            header[name] = {
                "dtype": FILE_NAMES[tensor.dtype],
                "shape": list(tensor.shape),
                "data_offsets": [at, at + len(data)],
            }
            body.append(data)
            at += len(data)
        head = json.dumps(header, separators=(",", ":")).encode()
        head += b" " * (-len(head) % 8)
        path = folder / f"{self.name}.safetensors"
        path.write_bytes(len(head).to_bytes(8, "little") + head + b"".join(body))
        back = safetensors.torch.load(path.read_bytes())
        assert back.keys() == self.tensors.keys()
        assert all(back[k].dtype == t.dtype and identical(back[k], t) for k, t in tensors)
        return path


def differences(old: Path, new: Path):
    """Lines that say in what two vector files differ."""
    if old.suffix != ".safetensors":
        return ["contents"]
    a, b = (safetensors.torch.load(p.read_bytes()) for p in (old, new))
    lines = [f"{k}: only in one of the two" for k in sorted(a.keys() ^ b.keys())]
    for key in sorted(a.keys() & b.keys()):
        if a[key].shape != b[key].shape or a[key].dtype != b[key].dtype:
            lines.append(f"{key}: another shape or dtype")
        elif (far := agree(a[key], b[key], 1.0)) > 0:
            lines.append(f"{key}: {far:.1e} apart")
    return lines or ["only in the descriptions of the cases"]
