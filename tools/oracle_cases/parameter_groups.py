"""Optimizers with parameter groups, and clipped gradients: 50 steps with given gradients, as in optimizers.py.

in0 a [3, 2] and in1 b [4] are the parameters at the start, each a group of its own, in2 [50, 3, 2] and in3 [50, 4] the
gradient of each step; out0 [5, 3, 2] and out1 [5, 4] are the parameters after steps 10, 20, 30, 40, 50.
attrs: the optimizer's hyperparameters; "groups": lr and weight_decay of each (null: the optimizer's); "decay": the rate
of all groups is multiplied by it after every step; "clip_norm", "norm_type", "clip_value": null or what
clip_grad_norm_ and clip_grad_value_ are given. With clip_norm, out2 [50] has the norms they had."""

import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from .optimizers import DEFAULTS, STEPS
from .vectors import Group, u


def add(group: Group):
    def trajectory(op, suffix, groups, decay=1.0, clip_norm=None, norm_type=2.0, clip_value=None, **changes):
        maker, attrs = DEFAULTS[op]
        attrs = attrs | changes

        def run(a, b, grads_a, grads_b):
            params = [a.detach().clone().requires_grad_(), b.detach().clone().requires_grad_()]
            own = [{k: v for k, v in g.items() if v is not None} | {"params": [p]} for g, p in zip(groups, params)]
            optimizer = maker(own, **attrs, foreach=False)
            schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, decay)
            seen, norms = [], []
            for step in range(STEPS):
                params[0].grad, params[1].grad = grads_a[step].clone(), grads_b[step].clone()
                if clip_norm is not None:
                    kind = float("inf") if norm_type == "inf" else norm_type
                    norms.append(clip_grad_norm_(params, clip_norm, kind, foreach=False))
                if clip_value is not None:
                    clip_grad_value_(params, clip_value, foreach=False)
                optimizer.step()
                schedule.step()
                if step % 10 == 9:
                    seen.append([p.detach().clone() for p in params])
            stacked = [torch.stack(each) for each in zip(*seen)]
            return stacked + ([torch.stack(norms).detach()] if norms else [])

        inputs = {
            "a": u(3, 2, lo=-1, hi=1),
            "b": u(4, lo=-1, hi=1),
            "grads_a": u(STEPS, 3, 2, lo=-1, hi=1),
            "grads_b": u(STEPS, 4, lo=-1, hi=1),
        }
        more = {
            "groups": groups,
            "decay": decay,
            "clip_norm": clip_norm,
            "norm_type": norm_type,
            "clip_value": clip_value,
        }
        outputs = ("a", "b", "norms") if clip_norm is not None else ("a", "b")
        group.case(op, suffix, run, inputs, attrs | more, outputs=outputs, diff=[])

    none = {"lr": None, "weight_decay": None}
    apart = [{"lr": 0.02, "weight_decay": 0.1}, {"lr": None, "weight_decay": 0.0}]
    rates = [none, {"lr": 0.003, "weight_decay": None}]
    trajectory("sgd", "groups", apart, momentum=0.9, weight_decay=0.01)
    trajectory("sgd", "groups_decay", rates, decay=0.95, momentum=0.9, nesterov=True, weight_decay=0.01)
    trajectory("adam", "groups", apart)
    trajectory("adam", "groups_decay", rates, decay=0.95, weight_decay=0.01, amsgrad=True)
    trajectory("adamw", "groups", apart)
    trajectory("adamw", "groups_decay", rates, decay=0.95)
    trajectory("rmsprop", "groups", apart)
    trajectory("rmsprop", "groups_decay", rates, decay=0.95, centered=True, momentum=0.5, weight_decay=0.01)
    trajectory("sgd", "clip_norm", [none, none], clip_norm=1.0, momentum=0.9)
    trajectory("sgd", "clip_norm_one", [none, none], clip_norm=3.0, norm_type=1.0)
    trajectory("sgd", "clip_norm_three", [none, none], clip_norm=0.8, norm_type=3.0)
    trajectory("sgd", "clip_norm_infinity", [none, none], clip_norm=0.9, norm_type="inf")
    trajectory("sgd", "clip_value", [none, none], clip_value=0.25, momentum=0.9)
    trajectory("adamw", "clip_both", apart, clip_norm=1.0, clip_value=0.3)
