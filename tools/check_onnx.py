"""Checks exported ONNX files: the model must pass onnx.checker with shape inference, and onnxruntime must give the
output that Neurona gave. Beside each MODEL.onnx stands MODEL.safetensors with pairs input.N and output.N, one for
each size of the batch.

    python tools/check_onnx.py [--tolerance 1e-5] MODEL.onnx ...

Differences are relative to the largest element of the output (at least 1). Needs onnx, onnxruntime, safetensors.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from safetensors.numpy import load_file


def check(path, tolerance):
    onnx.checker.check_model(str(path), full_check=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    cases = load_file(path.with_suffix(".safetensors"))
    worst, batches, same, images = 0.0, [], 0, 0
    for number in sorted(key.split(".")[1] for key in cases if key.startswith("input.")):
        x, want = cases[f"input.{number}"], cases[f"output.{number}"]
        (got,) = session.run(None, {name: x})
        if got.shape != want.shape or got.dtype != want.dtype:
            raise SystemExit(f"{path}: {got.dtype} {got.shape} instead of {want.dtype} {want.shape}")
        scale = max(1.0, float(np.abs(want).max(initial=0)))
        worst = max(worst, float(np.abs(got.astype(np.float64) - want).max(initial=0)) / scale)
        batches.append(len(x))
        if want.ndim == 2:
            same, images = same + int((got.argmax(1) == want.argmax(1)).sum()), images + len(x)
    nodes = len(onnx.load(path).graph.node)
    print(f"{path.name}: {nodes} nodes, batches {batches}, difference {worst:.1e}, same class {same} of {images}")
    return worst <= tolerance and same == images


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("models", nargs="+", type=Path)
    args = parser.parse_args()
    if not all([check(path, args.tolerance) for path in args.models]):
        sys.exit("some outputs differ by more than the tolerance")


if __name__ == "__main__":
    main()
