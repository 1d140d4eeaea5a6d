"""Learning rates of PyTorch's schedulers: out0 [300] f64 is the rate of every step, before that step's update.

attrs: "lr", the base rate (of one_cycle: the highest), and the scheduler's arguments, defaults written out. plateau has
in0 [300] f64, the measure given after every epoch; out0 is then the rate after it. chained and sequential have a list
of parts, each with its "op" and attrs; sequential's "milestones" say where the second and later parts begin."""

import math

import torch
from torch.optim import lr_scheduler as s

from .vectors import Group, f64, uniform

STEPS = 300
MAKERS = {
    "step": lambda o, a: s.StepLR(o, a["step_size"], a["gamma"]),
    "multi_step": lambda o, a: s.MultiStepLR(o, a["milestones"], a["gamma"]),
    "exponential": lambda o, a: s.ExponentialLR(o, a["gamma"]),
    "linear": lambda o, a: s.LinearLR(o, a["start_factor"], a["end_factor"], a["total_iters"]),
    "cosine": lambda o, a: s.CosineAnnealingLR(o, a["T_max"], a["eta_min"]),
    "cosine_restarts": lambda o, a: s.CosineAnnealingWarmRestarts(o, a["T_0"], a["T_mult"], a["eta_min"]),
    "polynomial": lambda o, a: s.PolynomialLR(o, a["total_iters"], a["power"]),
    "one_cycle": lambda o, a: s.OneCycleLR(
        o,
        a["lr"],
        a["total_steps"],
        pct_start=a["pct_start"],
        anneal_strategy=a["anneal_strategy"],
        cycle_momentum=False,
        div_factor=a["div_factor"],
        final_div_factor=a["final_div_factor"],
        three_phase=a["three_phase"],
    ),
    "chained": lambda o, a: s.ChainedScheduler([make(o, p) for p in a["parts"]], o),
    "sequential": lambda o, a: s.SequentialLR(o, [make(o, p) for p in a["parts"]], a["milestones"]),
}


def make(optimizer, attrs):
    return MAKERS[attrs["op"]](optimizer, attrs)


def add(group: Group):
    def optimizer(lr):
        return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)

    def describe(op, suffix, attrs, lrs, inputs=()):
        name = f"{op}_{suffix}"
        group.put(name, "out0", torch.tensor(lrs, dtype=f64))
        # Schedulers multiply step by step; the closed forms round once.
        group.describe(
            name, op=op, attrs=attrs, dtype="f64", tol=1e-12, inputs=list(inputs), outputs=["lr"], relative=True
        )

    def case(op, suffix, lr=0.1, steps=STEPS, **attrs):
        o = optimizer(lr)
        scheduler = make(o, attrs | {"op": op, "lr": lr})
        lrs = []
        for step in range(steps):
            lrs.append(o.param_groups[0]["lr"])
            o.step()
            if step + 1 < steps:
                scheduler.step()
        describe(op, suffix, attrs | {"lr": lr}, lrs)

    case("step", "thirty", step_size=30, gamma=0.1)
    case("step", "one", step_size=1, gamma=0.97)
    case("multi_step", "three", milestones=[50, 120, 121], gamma=0.2)
    case("multi_step", "twice", milestones=[80, 80, 200], gamma=0.5)
    case("exponential", "slow", gamma=0.99)
    case("linear", "default", start_factor=1 / 3, end_factor=1.0, total_iters=5)
    case("linear", "down", start_factor=1.0, end_factor=0.0, total_iters=250)
    case("cosine", "once", T_max=299, eta_min=0.0)
    case("cosine", "again", T_max=100, eta_min=0.003)
    case("cosine_restarts", "even", T_0=50, T_mult=1, eta_min=0.0)
    case("cosine_restarts", "longer", T_0=20, T_mult=2, eta_min=0.001)
    case("polynomial", "square", total_iters=200, power=2.0)
    case("polynomial", "linear", total_iters=300, power=1.0)
    cycle = {
        "total_steps": STEPS,
        "pct_start": 0.3,
        "anneal_strategy": "cos",
        "div_factor": 25.0,
        "final_div_factor": 1e4,
        "three_phase": False,
    }
    case("one_cycle", "default", **cycle)
    case("one_cycle", "linear", **cycle | {"anneal_strategy": "linear", "pct_start": 0.23, "div_factor": 10.0})
    case("one_cycle", "three_phase", **cycle | {"three_phase": True, "final_div_factor": 100.0})
    case("one_cycle", "odd", **cycle | {"pct_start": 0.1, "total_steps": 301}, steps=301)
    warm = {"op": "linear", "start_factor": 0.01, "end_factor": 1.0, "total_iters": 40}
    cosine = {"op": "cosine", "T_max": 260, "eta_min": 0.0}
    exponential = {"op": "exponential", "gamma": 0.98}
    steps = {"op": "step", "step_size": 25, "gamma": 0.5}
    case("sequential", "warm_up_cosine", parts=[warm, cosine], milestones=[40])
    case("sequential", "warm_up_step", parts=[warm, steps], milestones=[40])
    case("sequential", "three", parts=[warm, steps, exponential], milestones=[40, 160])
    case("chained", "two", parts=[exponential, warm])
    case("chained", "three", parts=[steps, exponential, warm | {"start_factor": 0.5}])

    def plateau(suffix, lr=0.1, wave=0.05, **changes):
        attrs = {
            "mode": "min",
            "factor": 0.1,
            "patience": 10,
            "threshold": 1e-4,
            "threshold_mode": "rel",
            "cooldown": 0,
            "min_lr": 0.0,
        } | changes
        sign = 1.0 if attrs["mode"] == "min" else -1.0
        noise = uniform(77, (STEPS,)).tolist()
        measures = [sign * (2.0 * math.exp(-e / 60) + wave * n) + 3.0 for e, n in enumerate(noise)]
        o = optimizer(lr)
        scheduler = s.ReduceLROnPlateau(o, **attrs)
        lrs = []
        for measure in measures:
            scheduler.step(measure)
            lrs.append(o.param_groups[0]["lr"])
        group.put(f"plateau_{suffix}", "in0", torch.tensor(measures, dtype=f64))
        describe("plateau", suffix, attrs | {"lr": lr}, lrs, ["measure"])

    plateau("default")
    plateau("highest", mode="max", factor=0.5, patience=3, min_lr=0.002)
    plateau("cooldown", factor=0.7, patience=2, cooldown=5)
    plateau("absolute", threshold_mode="abs", threshold=0.02, patience=4, factor=0.3)
