#!/usr/bin/env python3
"""The PyTorch oracle: small vectors that `cargo test` compares Neurona with.

    python3 -m venv V && V/bin/pip install torch torchvision numpy safetensors && V/bin/python tools/oracle.py

writes into crates/neurona/tests/oracle/ (or `--out DIR`); some minutes on one core.

    V/bin/python tools/oracle.py --check crates/neurona/tests/oracle

makes everything again in a temporary folder and compares the bytes with DIR; where they differ it names
the tensors and says how far apart they are. `--only ops,losses` restricts either to some groups.

A group is one file `<group>.safetensors`. Its tensors are named `<case>/<role>`:

    in0, in1, …      inputs, in the order of the case's "inputs"
    out0, out1, …    outputs, in the order of the case's "outputs"
    dout0, …         upstream gradient: backward is of sum(out0 * dout0)
    din0, …          gradient of in0, …; only for the differentiable inputs

and its metadata holds, under each case's name, JSON such as

    {"op": "conv2d", "attrs": {"stride": [2, 1], …}, "dtype": "f32", "tol": 1e-5,
     "inputs": ["x", "weight"], "outputs": ["y"]}

Attributes are complete: every default is written out. A value v agrees with the expected tensor w when
|v - w| <= tol * max(1, max|w|); NaN agrees with NaN and infinity with itself; tol 0 means equal values (-0 equals 0).
Every f32 case was also computed in f64 and agrees within half its tol. `networks` and `classics` have roles of their own:
see oracle_cases/networks.py and classics.py.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

# The same bits on every x86-64 machine: plain kernels, one thread. Must be set before torch is imported.
os.environ["ATEN_CPU_CAPABILITY"] = "default"
os.environ["ONEDNN_MAX_CPU_ISA"] = "SSE41"
os.environ["MKL_CBWR"] = "COMPATIBLE"
sys.dont_write_bytecode = True

import torch  # noqa: E402

from oracle_cases import (  # noqa: E402
    activations,
    attention,
    casts,
    classics,
    elementwise,
    functions,
    imaging,
    indexing,
    layers,
    losses,
    movement,
    muon,
    networks,
    normalisation,
    norms,
    optimizers,
    ordering,
    parameter_groups,
    pooling,
    printing,
    products,
    promotion,
    reductions,
    schedules,
)
from oracle_cases.vectors import Group, differences  # noqa: E402

HOME = Path(__file__).resolve().parent.parent / "crates" / "neurona" / "tests" / "oracle"
GROUPS = {
    "ops": [elementwise, promotion, casts, movement, reductions, products, pooling, normalisation],
    "tensors": [indexing, functions, ordering],
    "nn": [activations, norms, imaging, attention],
    "layers": [layers],
    "losses": [losses],
    "optimizers": [optimizers],
    "parameter_groups": [parameter_groups],
    "muon": [muon],
    "schedules": [schedules],
    "networks": [networks],
    "classics": [classics],
}


def generate(folder: Path, only: list[str]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, parts in GROUPS.items():
        if name in only:
            group = Group(name)
            for part in parts:
                part.add(group)
            written.append(group.write(folder))
            print(f"{name}: {len(group.cases)} cases, {written[-1].stat().st_size} bytes", flush=True)
    if "printing" in only:
        written.append(printing.write(folder))
        print(f"printing: {written[-1].stat().st_size} bytes")
    return written


def check(folder: Path, only: list[str]) -> bool:
    same = True
    with tempfile.TemporaryDirectory() as scratch:
        for new in generate(Path(scratch), only):
            old = folder / new.name
            if not old.exists():
                print(f"{old}: missing")
                same = False
            elif old.read_bytes() != new.read_bytes():
                print(f"{old}: differs")
                for line in differences(old, new):
                    print("  " + line)
                same = False
    print("same bytes" if same else "NOT the same bytes")
    return same


def main() -> int:
    everything = [*GROUPS, "printing"]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=HOME, help="folder to write into")
    parser.add_argument("--check", type=Path, metavar="DIR", help="compare with DIR instead of writing")
    parser.add_argument("--only", default=",".join(everything), help="groups, separated by commas")
    args = parser.parse_args()
    only = args.only.split(",")
    if unknown := set(only) - set(everything):
        parser.error(f"unknown groups {sorted(unknown)}; there are {everything}")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if args.check:
        return 0 if check(args.check, only) else 1
    generate(args.out, only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
