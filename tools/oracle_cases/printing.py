"""printing.json: [{"shape", "dtype", "values", "text"}], text = str(tensor). Values are row-major;
"nan", "inf", "-inf" are strings because JSON has no such numbers."""

import json
import math
from pathlib import Path

import torch

from .vectors import NAMES, bf16, f16, f32, f64, i64, u8

INF, NAN = float("inf"), float("nan")


def tensors():
    line = lambda n: torch.arange(n, dtype=f32)
    yield torch.tensor([1, -2, 300], dtype=i64)
    yield torch.tensor([[1, 20], [-300, 4]], dtype=i64)
    yield torch.tensor([0, 7, 255], dtype=u8)
    yield torch.tensor([[True, False], [False, True]])
    yield torch.tensor(3.5)
    yield torch.tensor(7, dtype=i64)
    yield torch.tensor(True)
    yield torch.tensor(0.1, dtype=f64)
    yield torch.tensor([1.0, 2.0, -3.0])
    yield torch.tensor([0.5, -1.25, 3.14159274])
    yield torch.tensor([1e-5, 1.0, 12345.678])
    yield torch.tensor([1e8, 1.0])
    yield torch.tensor([1e10, 2e10])
    yield torch.tensor([1e-8, -2e-7])
    yield torch.tensor([0.0, -0.0])
    yield torch.tensor([0.00012, 0.5])
    yield torch.tensor([99999.0, 0.25])
    yield torch.tensor([NAN, 1.5, INF, -INF])
    yield torch.tensor([INF, -INF])
    yield torch.tensor([NAN, 2.0])
    yield torch.tensor([[0.1, -22.25], [333.0, 4.0]], dtype=f64)
    yield torch.tensor([0.1, 1.5], dtype=f16)
    yield torch.tensor([0.1, 1.5], dtype=bf16)
    yield torch.zeros(0)
    yield torch.zeros(0, 3)
    yield torch.zeros(2, 0, dtype=i64)
    yield torch.zeros(1, 1, 1)
    yield line(30)
    yield torch.arange(30, dtype=i64).reshape(3, 10)
    yield line(12).reshape(2, 2, 3) / 8
    yield line(8).reshape(2, 2, 2, 1)
    yield line(40).reshape(2, 20) * 1.5 - 7
    yield line(1000)
    yield line(1001)
    yield torch.arange(1200, dtype=i64).reshape(30, 40)
    yield (line(1320) / 7).reshape(2, 11, 60)
    yield (torch.arange(1100) % 3 == 0)


def write(folder: Path) -> Path:
    torch.set_printoptions(profile="default")
    number = lambda v: v if not isinstance(v, float) or math.isfinite(v) else str(v)
    rows = [
        {
            "shape": list(t.shape),
            "dtype": NAMES[t.dtype],
            "values": [number(v) for v in t.reshape(-1).tolist()],
            "text": str(t),
        }
        for t in tensors()
    ]
    path = folder / "printing.json"
    path.write_text("[\n" + ",\n".join(json.dumps(row, allow_nan=False) for row in rows) + "\n]\n")
    return path
