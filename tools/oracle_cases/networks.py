"""Whole networks trained for some steps. Nothing large is stored: weights and data are made by a stream that
Rust reproduces bit for bit.

    splitmix64(seed, i): s = seed + (i + 1) * 0x9E3779B97F4A7C15          (all modulo 2^64)
                         z = (s ^ s >> 30) * 0xBF58476D1CE4E5B9
                         z = (z ^ z >> 27) * 0x94D049BB133111EB
                         z =  z ^ z >> 31
    uniform(seed, i)   = (z >> 40) / 2^24 * 2 - 1                         in f64: in [-1, 1), exact in f32 too

Element i (row-major) of parameter j of network `id` is f32(uniform(1000 * id + j, i) * (1 / sqrt(fan_in))), the product
in f64; a bias takes the fan_in of its weight. j counts all parameters in state-dict order ("parameters" in attrs);
batch-norm's are 1 and 0 and drawn from nothing, but they are counted. Batch k = 0 .. 3 of the inputs is
uniform(1000 * id + 900 + k, i), not scaled. Row r of batch k has index n = k * batch + r and label (n * 7 + 3) % 10;
for binary_cross_entropy the target [batch, 1] is label % 2, as f32.

Step t trains on batch t % 4 with SGD and momentum 0.9 ("optimizer" in attrs), mean loss. Roles:

    losses                     f64 [steps]: each step's loss before its update
    logits_before              output for batch 0, evaluation mode, before training (first "logit_rows" rows)
    logits_after               the same after training
    init.<p>                   first 8 elements of parameter p at the start (to check the stream)
    grad.<p>                   first 8 elements of its gradient at step 0
    grad_norms64               f64 [parameters]: Euclidean norm of each gradient at step 0, computed in f64
    final.<p>, final.<buffer>  first 8 elements of parameter p, or of a batch-norm statistic, after training
    losses64, logits_before64, logits_after64, grad64.<p>, final64.<p>   the same run in f64, from the same f32 start
    spread                     f64 [steps]: how far PyTorch's own f32 curves are from losses64, see below

Rounding alone decides the sign of a ReLU's input now and then, and every such flip changes a gradient by a jump.
So f32 runs part, and a test must know how far. `spread` is the largest |loss - losses64| of each step over six f32
runs of PyTorch: the stored one and five whose weights begin some units in the last place away. "spread" in
attrs is the same for whole tensors of the other roles. A sound test is
|loss[t] - losses64[t]| <= tol + 3 * max(spread[..=t]), with the case's tol (1e-5; 1e-4 with batch-norm).
An f64 run meets no flips and must agree with the f64 roles to about 1e-9.
With lr 0.01 the networks with batch-norm are chaotic (bnnet 0.09, ResNet-18 0.07 apart), so theirs is
smaller; the lab network hardly learns with 0.01, so `lab_fast` is the same with 0.03."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from .vectors import NAMES, Group, f32, f64, i64, splitmix64, uniform

BATCHES, PROBE, RUNS = 4, 8, 6


class Lab(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2, 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2, 2).reshape(-1, 400)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


def bnnet():
    block = lambda i, o: [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*block(3, 32), *block(32, 64), *block(64, 128), nn.Flatten(), nn.Linear(128 * 16, 10))


def mlp500():
    return nn.Sequential(nn.Linear(500, 256), nn.ReLU(), nn.Linear(256, 10))


def mlp_2_8_1():
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())


def mlp_2_8_8_1():
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())


class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.downsample = (
            nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if stride != 1 or i != o else None
        )

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """torchvision's names, CIFAR's stem: 3x3 stride 1, no max-pool."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64)
        stage = lambda i, o, stride: nn.Sequential(Block(i, o, stride), Block(o, o, 1))
        self.layer1, self.layer2 = stage(64, 64, 1), stage(64, 128, 2)
        self.layer3, self.layer4 = stage(128, 256, 2), stage(256, 512, 2)
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3)))


# name: (id, maker, input shape, batch, steps, learning rate, loss, description)
NETWORKS = {
    "mlp500": (1, mlp500, (500,), 8, 60, 0.01, "cross_entropy", "Linear 500-256, ReLU, Linear 256-10"),
    "mlp_2_8_1": (2, mlp_2_8_1, (2,), 8, 60, 0.01, "binary_cross_entropy", "Linear 2-8, ReLU, Linear 8-1, Sigmoid"),
    "mlp_2_8_8_1": (
        3,
        mlp_2_8_8_1,
        (2,),
        8,
        60,
        0.01,
        "binary_cross_entropy",
        "Linear 2-8, ReLU, Linear 8-8, ReLU, Linear 8-1, Sigmoid",
    ),
    "lab": (
        4,
        Lab,
        (3, 32, 32),
        8,
        60,
        0.01,
        "cross_entropy",
        "conv1 5x5, ReLU, max-pool 2; conv2 5x5, ReLU, max-pool 2; fc1, ReLU, fc2, ReLU, fc3",
    ),
    "lab_fast": (
        4,
        Lab,
        (3, 32, 32),
        8,
        60,
        0.03,
        "cross_entropy",
        "conv1 5x5, ReLU, max-pool 2; conv2 5x5, ReLU, max-pool 2; fc1, ReLU, fc2, ReLU, fc3",
    ),
    "bnnet": (
        5,
        bnnet,
        (3, 32, 32),
        8,
        60,
        0.0003,
        "cross_entropy",
        "3 of: Conv 3x3 padding 1 (with bias), BatchNorm, ReLU, MaxPool 2; Flatten; Linear 2048-10",
    ),
    "resnet18": (
        6,
        ResNet18,
        (3, 32, 32),
        4,
        20,
        0.0001,
        "cross_entropy",
        "CIFAR ResNet-18: basic blocks 2-2-2-2, global average, fc",
    ),
}


def starts(network: int, model: nn.Module):
    """For each parameter, in order: how it begins."""
    fans, rows = {}, []
    for j, (name, p) in enumerate(model.named_parameters()):
        layer = model.get_submodule(name.rpartition(".")[0])
        row = {"name": name, "shape": list(p.shape)}
        if isinstance(layer, nn.BatchNorm2d):
            row["init"] = "ones" if name.endswith("weight") else "zeros"
        else:
            if p.dim() > 1:
                fans[layer] = math.prod(p.shape[1:])
            row |= {"init": "uniform", "seed": 1000 * network + j, "fan_in": fans[layer]}
        rows.append(row)
    return rows


def weights(row) -> torch.Tensor:
    if row["init"] != "uniform":
        return (torch.ones if row["init"] == "ones" else torch.zeros)(row["shape"])
    return (uniform(row["seed"], row["shape"]) * (1.0 / math.sqrt(row["fan_in"]))).to(f32)


def train(maker, rows, batches, steps, lr, loss, dtype, nudge=0):
    """Losses and probes of one run. `nudge` > 0 moves every weight by a few units in the last place."""
    model = maker()
    with torch.no_grad():
        for j, (p, row) in enumerate(zip(model.parameters(), rows)):
            w = weights(row)
            if nudge:
                w = (w.double() * (1 + uniform(1000000 * nudge + j, w.shape) * 2.0**-22)).to(f32)
            p.copy_(w)
    model = model.to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, foreach=False)
    criterion = getattr(F, loss)

    def outputs():
        model.eval()
        with torch.no_grad():
            y = model(batches[0][0].to(dtype))
        model.train()
        return y

    probes = {"logits_before": outputs()}
    losses = []
    for step in range(steps):
        x, target = batches[step % BATCHES]
        target = target if target.dtype == i64 else target.to(dtype)
        optimizer.zero_grad()
        value = criterion(model(x.to(dtype)), target)
        value.backward()
        if step == 0:
            probes |= {f"grad.{n}": p.grad.clone() for n, p in model.named_parameters()}
        optimizer.step()
        losses.append(value.item())
    probes["logits_after"] = outputs()
    probes |= {f"final.{n}": v for n, v in model.state_dict().items()}
    return torch.tensor(losses, dtype=f64), probes


def wide(role: str) -> str:
    kind, dot, name = role.partition(".")
    return kind + "64" + dot + name


def add(group: Group):
    group.put("generator", "out0", uniform(1000, (16,)).to(f32))
    group.describe(
        "generator",
        op="generator",
        dtype="f32",
        tol=0,
        inputs=[],
        outputs=["u"],
        attrs={
            "seed": 1000,
            "z": [str(z) for z in splitmix64(1000, 16)],
            "z_of_seed_0": [str(z) for z in splitmix64(0, 4)],
        },
    )
    for name, (number, maker, shape, batch, steps, lr, loss, text) in NETWORKS.items():
        rows = starts(number, maker())
        batches = []
        for k in range(BATCHES):
            label = (torch.arange(k * batch, (k + 1) * batch) * 7 + 3) % 10
            target = label if loss == "cross_entropy" else (label % 2).to(f32).reshape(batch, 1)
            batches.append((uniform(1000 * number + 900 + k, (batch, *shape)).to(f32), target))

        losses64, probes64 = train(maker, rows, batches, steps, lr, loss, f64)
        spread, spreads = (
            torch.zeros(steps, dtype=f64),
            dict.fromkeys(("logits_before", "grad", "logits_after", "final"), 0.0),
        )
        for nudge in reversed(range(RUNS)):  # the last one is the stored one
            losses, probes = train(maker, rows, batches, steps, lr, loss, f32, nudge)
            spread = torch.maximum(spread, (losses - losses64).abs())
            for role, tensor in probes.items():
                kind = role.partition(".")[0]
                spreads[kind] = max(spreads[kind], (tensor.double() - probes64[role].double()).abs().max().item())

        logit_rows = min(batch, 4) if loss == "cross_entropy" else batch
        group.put(name, "losses", losses)
        group.put(name, "losses64", losses64)
        group.put(name, "spread", spread)
        group.put(name, "grad_norms64", torch.stack([probes64[f"grad.{r['name']}"].norm() for r in rows]))
        for row in rows:
            group.put(name, f"init.{row['name']}", weights(row).reshape(-1)[:PROBE])
        for role in probes:
            for key, tensor in ((role, probes[role]), (wide(role), probes64[role])):
                group.put(name, key, tensor[:logit_rows] if role.startswith("logits") else tensor.reshape(-1)[:PROBE])
        group.describe(
            name,
            op="network",
            dtype="f32",
            tol=1e-4 if list(maker().buffers()) else 1e-5,
            inputs=[],
            outputs=["logits"],
            attrs={
                "id": number,
                "description": text,
                "input_shape": list(shape),
                "batch": batch,
                "batches": BATCHES,
                "steps": steps,
                "loss": loss,
                "reduction": "mean",
                "optimizer": {
                    "name": "sgd",
                    "lr": lr,
                    "momentum": 0.9,
                    "dampening": 0.0,
                    "weight_decay": 0.0,
                    "nesterov": False,
                },
                "logit_rows": logit_rows,
                "parameters": rows,
                "buffers": [
                    {
                        "name": n,
                        "shape": list(b.shape),
                        "dtype": NAMES[b.dtype],
                        "init": "ones" if n.endswith("var") else "zeros",
                    }
                    for n, b in maker().named_buffers()
                ],
                "spread": {k: float(f"{v:.3g}") for k, v in spreads.items()},
            },
        )
        print(
            f"  {name}: loss {losses64[0]:.4f} to {losses64[-1]:.4f}, spread {spread.max():.1e}, {spreads}", flush=True
        )
