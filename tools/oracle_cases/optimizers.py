"""Optimizers alone: 50 steps with given gradients.

in0 a [3, 2] and in1 b [4] are the parameters at the start, in2 [50, 3, 2] and in3 [50, 4] the gradient of each step;
out0 [5, 3, 2] and out1 [5, 4] are the parameters after steps 10, 20, 30, 40, 50.
attrs: all hyperparameters; "lrs": null, or the learning rate of every step ("lr" is then only the first)."""

import math

import torch

from .vectors import Group, u

STEPS = 50
DEFAULTS = {
    "sgd": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False}),
    "adam": (torch.optim.Adam, {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False}),
    "adamw": (
        torch.optim.AdamW,
        {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 1e-2, "amsgrad": False},
    ),
    "rmsprop": (
        torch.optim.RMSprop,
        {"lr": 1e-2, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0.0, "momentum": 0.0, "centered": False},
    ),
}


def add(group: Group):
    def trajectory(op, suffix, size=1.0, lrs=None, **changes):
        maker, attrs = DEFAULTS[op]
        attrs = attrs | changes

        def run(a, b, grads_a, grads_b):
            params = [a.detach().clone().requires_grad_(), b.detach().clone().requires_grad_()]
            optimizer = maker(params, **attrs, foreach=False)
            seen = []
            for step in range(STEPS):
                if lrs:
                    optimizer.param_groups[0]["lr"] = lrs[step]
                params[0].grad, params[1].grad = grads_a[step].clone(), grads_b[step].clone()
                optimizer.step()
                if step % 10 == 9:
                    seen.append([p.detach().clone() for p in params])
            return [torch.stack(each) for each in zip(*seen)]

        inputs = {
            "a": u(3, 2, lo=-1, hi=1),
            "b": u(4, lo=-1, hi=1),
            "grads_a": u(STEPS, 3, 2, lo=-size, hi=size),
            "grads_b": u(STEPS, 4, lo=-size, hi=size),
        }
        group.case(op, suffix, run, inputs, attrs | {"lrs": lrs}, outputs=("a", "b"), diff=[])

    trajectory("sgd", "plain")
    trajectory("sgd", "momentum", momentum=0.9)
    trajectory("sgd", "nesterov", momentum=0.9, nesterov=True)
    trajectory("sgd", "weight_decay", weight_decay=0.1)
    trajectory("sgd", "momentum_weight_decay", lr=0.01, momentum=0.9, weight_decay=5e-4)
    trajectory("sgd", "nesterov_weight_decay", lr=0.01, momentum=0.85, weight_decay=0.05, nesterov=True)
    trajectory("sgd", "dampening", momentum=0.9, dampening=0.5)
    # One-cycle-like: up, then a cosine down to zero.
    lrs = [
        round(0.1 * (s + 1) / 10, 6) if s < 10 else round(0.05 * (1 + math.cos(math.pi * (s - 9) / (STEPS - 10))), 6)
        for s in range(STEPS)
    ]
    trajectory("sgd", "changing_lr", lr=lrs[0], momentum=0.9, lrs=lrs)
    trajectory("adam", "default")
    trajectory("adam", "fast", lr=0.1, betas=[0.8, 0.95], eps=1e-3)
    trajectory("adam", "weight_decay", lr=0.01, weight_decay=0.1)
    trajectory("adam", "amsgrad", lr=0.01, amsgrad=True)
    # Gradients near eps show where eps is added.
    trajectory("adam", "tiny_gradients", lr=0.01, size=1e-7)
    trajectory("adamw", "default")
    trajectory("adamw", "weight_decay", lr=0.01, weight_decay=0.3)
    trajectory("adamw", "amsgrad", lr=0.01, amsgrad=True)
    trajectory("adamw", "no_decay", weight_decay=0.0)
    trajectory("rmsprop", "default")
    trajectory("rmsprop", "centered", centered=True)
    trajectory("rmsprop", "momentum", momentum=0.9, lr=1e-3)
    trajectory("rmsprop", "weight_decay", weight_decay=0.1)
    trajectory("rmsprop", "all", lr=1e-3, alpha=0.9, eps=1e-6, momentum=0.5, weight_decay=0.01, centered=True)
    trajectory("rmsprop", "tiny_gradients", size=1e-7)
