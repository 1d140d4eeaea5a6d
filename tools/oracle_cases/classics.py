"""torchvision's networks: outputs in evaluation, and loss and gradients of one training step.

Nothing large is stored: weights and images come from the stream of `networks.py`. Entry j of the state dict of network
`id` (all entries are counted) starts from u = uniform(1000 * id + j, i) as f32 of

    u * sqrt(3 / fan_in)   where it has two dimensions or more; fan_in is the product of all but the first
    1 + u / 2              running_var
    u / 10                 running_mean
    1 + u / 4              other weights of one dimension
    u / 4                  biases
    0                      num_batches_tracked

Images are uniform(1000 * id + 900, i), the label of row r is (r * 7 + 3) % 10, dropout is off. Roles, all of a run in
f64 from the same f32 start:

    logits           [batch, 10] in evaluation
    loss             of the training step: mean cross-entropy
    gradients        [parameters, 4]: elements 0, n/4, n/2 and 3n/4 of each parameter's gradient (n elements)
    norms            [parameters]: Euclidean norm of each gradient
    spread           [parameters]: how far the gradients of PyTorch's own f32 runs are from those in f64, see `networks.py`
    norm_spread      [parameters]: the length of that difference, which the norms are apart at most: how much of what a
                     tipped ReLU adds lies along the gradient is chance
    largest          [parameters]: the largest element of each gradient
    starts           [parameters, 3]: mean, standard deviation and largest element of torchvision's own starting values

Networks with batch norm also have these six (but starts) with the prefix `eval_`, of a step in evaluation mode: in
training, batch norm over so few images lets rounding grow to some hundredths of a gradient.

"spread" in attrs has the same for loss and logits. Networks in NAMES_ONLY have no roles: they are others with more
layers, and only the names and shapes of their state dicts are kept, as are those of all others."""

import math

import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from .vectors import Group, f32, f64, uniform

CLASSES = 10
# Runs of PyTorch in f32. Gradients whose runs part by more than APART are those in which a ReLU or the winner of a
# max-pool tips, other ones in every run: they take more runs to know.
RUNS, MORE_RUNS, APART = 3, 8, 1e-3


def cifar(name):
    def make(**options):
        net = getattr(torchvision.models, name)(**options)
        net.conv1, net.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
        return net

    return make


def classic(name, **fixed):
    return lambda **options: getattr(torchvision.models, name)(**fixed, **options)


# name: (id, maker, side of the images, batch)
NETWORKS = {
    "alexnet": (21, classic("alexnet", dropout=0.0), 127, 4),
    "resnet18": (24, classic("resnet18"), 64, 4),
    "resnet50": (25, classic("resnet50"), 64, 4),
    "resnet18_cifar": (26, cifar("resnet18"), 16, 4),
    "resnet50_cifar": (27, cifar("resnet50"), 16, 4),
    "mobilenet_v2": (28, classic("mobilenet_v2", dropout=0.0), 64, 4),
    "vit_b_16": (29, classic("vit_b_16", image_size=32), 32, 4),
    "vgg11": (22, classic("vgg11", dropout=0.0), 64, 4),
    "vgg16_bn": (23, classic("vgg16_bn", dropout=0.0), 64, 4),
}
NAMES_ONLY = {
    "vgg11_bn": classic("vgg11_bn"),
    "vgg16": classic("vgg16"),
    "resnet34": classic("resnet34"),
    "resnet34_cifar": cifar("resnet34"),
}


def start(number: int, j: int, name: str, shape) -> torch.Tensor:
    u = uniform(1000 * number + j, shape)
    if len(shape) > 1:
        return (u * math.sqrt(3.0 / math.prod(shape[1:]))).to(f32)
    last = name.rpartition(".")[2]
    return {"running_var": 1.0 + u / 2.0, "running_mean": u / 10.0, "weight": 1.0 + u / 4.0}.get(last, u / 4.0).to(f32)


def run(model, state, x, labels, dtype, nudge=0):
    """Logits in evaluation; loss and gradients of a step in training, and in evaluation where that differs. `nudge`
    moves weights by units in the last place."""
    if nudge:
        move = lambda j, w: (w.double() * (1 + uniform(1000000 * nudge + j, w.shape) * 2.0**-22)).to(w.dtype)
        state = {n: move(j, w) for j, (n, w) in enumerate(state.items())}
    model = model.to(dtype)
    model.load_state_dict(state)

    def step():
        model.zero_grad()
        logits = model(x.to(dtype))
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        return logits.detach().double(), loss.detach().double(), [p.grad.clone() for p in model.parameters()]

    model.eval()
    logits, _, grads = step()
    steps = {"eval_": grads} if list(model.buffers()) else {}
    model.train()
    _, loss, steps[""] = step()
    return logits, loss, steps


def entries(model):
    return [[name, list(tensor.shape)] for name, tensor in model.state_dict().items()]


def describe(group, name, model, tol, **attrs):
    attrs["entries"] = entries(model)
    group.describe(name, op="classic", dtype="f32", tol=tol, inputs=[], outputs=["logits"], attrs=attrs)


def add(group: Group):
    for name, maker in NAMES_ONLY.items():
        with torch.device("meta"):
            describe(group, name, maker(num_classes=CLASSES), 0)
    for name, (number, maker, side, batch) in NETWORKS.items():
        torch.manual_seed(number)
        model = maker(num_classes=CLASSES)
        summary = lambda p: torch.stack([p.double().mean(), p.double().std(correction=0), p.double().abs().max()])
        group.put(name, "starts", torch.stack([summary(p.detach()) for p in model.parameters()]).to(f32))
        state = {}
        for j, (entry, tensor) in enumerate(model.state_dict().items()):
            state[entry] = start(number, j, entry, tensor.shape) if tensor.is_floating_point() else tensor.clone()
        x = uniform(1000 * number + 900, (batch, 3, side, side)).to(f32)
        labels = (torch.arange(batch) * 7 + 3) % CLASSES
        logits64, loss64, steps64 = run(model, state, x, labels, f64)
        zeros = lambda: {mode: torch.zeros(len(grads), dtype=f64) for mode, grads in steps64.items()}
        norms = lambda grads: torch.stack([g.norm() for g in grads])
        spread, norm_spread, spreads = zeros(), zeros(), {"loss": 0.0, "logits": 0.0}
        largest = {mode: torch.stack([g.abs().max() for g in grads]) for mode, grads in steps64.items()}
        apart = lambda mode: (spread[mode] / (largest[mode] + 1e-7 * largest[mode].max())).median().item()
        parted = list(steps64)
        for nudge in range(MORE_RUNS):
            if nudge == RUNS:
                parted = [mode for mode in parted if apart(mode) > APART]
                if not parted:
                    break
            logits, loss, steps = run(model, state, x, labels, f32, nudge)
            spreads["loss"] = max(spreads["loss"], (loss - loss64).abs().item())
            spreads["logits"] = max(spreads["logits"], (logits - logits64).abs().max().item())
            for mode in parted:
                far = [g.double() - w for g, w in zip(steps[mode], steps64[mode])]
                spread[mode] = torch.maximum(spread[mode], torch.stack([d.abs().max() for d in far]))
                norm_spread[mode] = torch.maximum(norm_spread[mode], norms(far))
        probe = lambda g: g.reshape(-1)[[g.numel() * k // 4 for k in range(4)]]
        group.put(name, "logits", logits64)
        group.put(name, "loss", loss64.reshape(1))
        for mode, grads in steps64.items():
            group.put(name, mode + "gradients", torch.stack([probe(g) for g in grads]))
            group.put(name, mode + "norms", norms(grads))
            group.put(name, mode + "spread", spread[mode].to(f32))
            group.put(name, mode + "norm_spread", norm_spread[mode].to(f32))
            group.put(name, mode + "largest", largest[mode].to(f32))
        describe(group, name, model, 1e-5, id=number, side=side, batch=batch, spread=spreads)
        medians = {mode: apart(mode) for mode in steps64}
        print(f"  {name}: loss {loss64:.4f}, {spreads}, gradients apart by {medians} of their largest", flush=True)
        del model, state, steps64, steps
