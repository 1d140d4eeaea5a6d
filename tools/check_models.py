#!/usr/bin/env python3
"""Whole networks of torchvision, at full size, against Neurona.

    V/bin/pip install torch torchvision numpy safetensors
    cargo build --release -p neurona --example check_model
    V/bin/python tools/check_models.py [--only resnet50,vgg16] [--side 64] [--batch 2] [--folder DIR] [--time]

For each network torchvision saves random weights, images, and what it makes of them: outputs and gradients in evaluation, and loss
and gradients of one training step (dropout off), in f64. `check_model` loads the weights strictly and says how far it is. The
files of the largest network take 2.2 GB; they go into DIR (default: a temporary folder) and are removed again.

With `--time` nothing is compared: both run at 224 pixels with two threads, and a table shows the milliseconds."""

import argparse
import copy
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
import torchvision
from safetensors.torch import save_file
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "target" / "release" / "examples" / "check_model"
NAMES = ["alexnet", "vgg11", "vgg11_bn", "vgg16", "vgg16_bn", "resnet18", "resnet34", "resnet50"]
NAMES += ["resnet18_cifar", "resnet34_cifar", "resnet50_cifar", "mobilenet_v2", "vit_b_16"]
RUNS = 6
# name, batch
TIMED = [("resnet50", 1), ("resnet50", 8), ("mobilenet_v2", 1), ("mobilenet_v2", 8), ("vit_b_16", 1)]


def make(name: str, side: int, **options):
    if name.startswith(("alexnet", "vgg", "mobilenet")):
        options["dropout"] = 0.0
    if name == "vit_b_16":
        options["image_size"] = side
    net = getattr(torchvision.models, name.removesuffix("_cifar"))(**options)
    if name.endswith("_cifar"):
        net.conv1, net.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
        nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
    if name == "vit_b_16":
        nn.init.normal_(net.heads.head.weight, std=0.02)  # torchvision's starts at zero, which would hide all else
    return net


def step(net, x, labels):
    net.train()
    net.zero_grad()
    loss = F.cross_entropy(net(x), labels)
    loss.backward()
    return loss.detach()


def run(net, x, labels):
    """Logits in evaluation, and the gradients there; loss and gradients in training."""
    gradients = lambda: {n: p.grad.clone() for n, p in net.named_parameters()}
    net.eval()
    net.zero_grad()
    logits = net(x)
    F.cross_entropy(logits, labels).backward()
    in_evaluation = gradients()
    return logits.detach(), in_evaluation, step(net, x, labels), gradients()


def apart(grads, wanted) -> float:
    far = sum((grads[n].double() - w).pow(2).sum().item() for n, w in wanted.items())
    return math.sqrt(far / sum(w.pow(2).sum().item() for w in wanted.values()))


def check(name: str, side: int, batch: int, folder: Path) -> bool:
    torch.manual_seed(1)
    net = make(name, side)
    for entry, buffer in net.named_buffers():
        if entry.endswith("running_mean"):
            buffer.normal_(std=0.1)
        elif entry.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
    x, labels = torch.randn(batch, 3, side, side), torch.arange(batch) * 37 % 1000
    state = {n: t.clone() for n, t in net.state_dict().items()}
    save_file(state, folder / "weights.safetensors")
    wide = copy.deepcopy(net).double()
    logits, evals, loss, grads = run(wide, x.double(), labels)
    del wide
    # Rounding decides the sign of a ReLU's input now and then, and each such flip moves the gradients by a jump: the
    # farthest of some runs, all but the first from weights that are up to 2⁻¹⁸ of their size away, shows how much.
    own, far = [0.0, 0.0], [0.0, 0.0]
    for nudge in range(RUNS):
        move = lambda t: t * (1 + (torch.rand_like(t) - 0.5) * 2.0 ** (nudge - 22)) if nudge and t.is_floating_point() else t
        net.load_state_dict({n: move(t) for n, t in state.items()})
        logits32, eval32, loss32, grads32 = run(net, x, labels)
        own = [max(own[0], apart(eval32, evals)), max(own[1], apart(grads32, grads))]
        far = [max(far[0], (logits32 - logits).abs().max().item()), max(far[1], (loss32 - loss).abs().item())]
    own = torch.tensor(own)
    reference = {"images": x, "labels": labels, "logits": logits.float(), "loss": loss.reshape(1), "own": own}
    reference |= {f"eval_grad.{n}": g.float() for n, g in evals.items()}
    save_file(reference | {f"grad.{n}": g.float() for n, g in grads.items()}, folder / "reference.safetensors")
    print(
        f"{name}, distances from PyTorch's f64:\n  PyTorch's f32: logits {far[0]:.1e}, loss {far[1]:.1e}, "
        f"gradients {own[0]:.1e} in evaluation, {own[1]:.1e} in training",
        flush=True,
    )
    done = subprocess.run([PROGRAM, name, str(side), folder])
    for file in folder.glob("*.safetensors"):
        file.unlink()
    return done.returncode == 0


def milliseconds(work) -> float:
    work()
    times = []
    while len(times) < 3 or sum(times) < 2.0 and len(times) < 20:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1000 * sum(times) / len(times)


def timed():
    torch.set_num_threads(2)
    print("network, batch | PyTorch: inference, training step (ms) | Neurona")
    for name, batch in TIMED:
        net, x, labels = make(name, 224), torch.randn(batch, 3, 224, 224), torch.arange(batch)
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)

        def inference():
            with torch.no_grad():
                net(x)

        def training():
            step(net, x, labels)
            optimizer.step()

        net.eval()
        theirs = [milliseconds(inference), milliseconds(training)]
        ours = subprocess.run([PROGRAM, name, "224", "--time", str(batch)], capture_output=True, text=True, check=True)
        print(f"{name}, {batch} | {theirs[0]:.0f}, {theirs[1]:.0f} | {ours.stdout.strip()}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(NAMES), help="networks, separated by commas")
    parser.add_argument("--side", type=int, default=224, help="pixels (CIFAR's networks: 32)")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--folder", type=Path, help="where the files go")
    parser.add_argument("--time", action="store_true", help="measure instead")
    args = parser.parse_args()
    if args.time:
        timed()
        return 0
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        sides = {n: 32 if n.endswith("_cifar") else args.side for n in args.only.split(",")}
        good = [check(n, side, args.batch, Path(folder)) for n, side in sides.items()]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
