#!/usr/bin/env python3
"""Peak memory of a ResNet-18 training step, above each process's own baseline, here and in PyTorch.

    cargo build --release && V/bin/python bench/peak_memory.py [BATCH]      (128 images unless told otherwise)
"""
import json, os, resource, subprocess, sys


def torch_side(batch):
    import torch
    import torch.nn.functional as F
    from networks import ResNet18
    before = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
    net = ResNet18()
    x, y = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    for _ in range(3):
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"peak": peak, "baseline": before}))


def child(command):
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(out.splitlines()[-1])


def main():
    if "--torch-side" in sys.argv:
        return torch_side(int(sys.argv[2]))
    batch = sys.argv[1] if len(sys.argv) > 1 else "128"
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    binary = os.path.join(root, "target", "release", "neurona")
    ours = child([binary, "bench", "--seconds", "0.1", "--json", "--batch", batch, "r18"])
    theirs = child([sys.executable, os.path.abspath(__file__), "--torch-side", batch])
    mib = 1 << 20
    print(f"Neurona: {(ours['peak_bytes'] - ours['baseline_bytes']) / mib:.0f} MiB above {ours['baseline_bytes'] / mib:.0f} MiB")
    print(f"PyTorch: {(theirs['peak'] - theirs['baseline']) / mib:.0f} MiB above {theirs['baseline'] / mib:.0f} MiB")


main()
