"""Multi-head attention and embeddings. Parameters are inputs, under PyTorch's names."""

import torch
import torch.nn.functional as F
from torch import nn

from .vectors import Group, f64, ints, lit, u


def add(group: Group):
    embedding(group)
    attention(group)


def embedding(group):
    def case(suffix, weight, index, padding=None, **more):
        run = lambda w, i: F.embedding(i, w, padding_idx=padding)
        group.case("embedding", suffix, run, {"weight": weight, "index": index}, {"padding_idx": padding}, **more)

    case("sequence", u(7, 3), ints(2, 5, hi=7))
    case("repeated", u(4, 5), lit([1, 1, 1, 0, 3, 1], torch.int64))
    case("padding", u(6, 3), lit([[2, 0, 5], [2, 2, 1]], torch.int64), padding=2)
    case("zero_dim", u(4, 3), lit(2, torch.int64))
    case("empty", u(4, 3), lit([], torch.int64))
    case("f64", u(4, 3, dtype=f64), ints(6, hi=4), tol=1e-12)


def attention(group):
    def case(suffix, dim, heads, n, queries, keys=None, batch_first=True, bias=True, mask=None, **more):
        def made(wide):
            return nn.MultiheadAttention(dim, heads, bias=bias, batch_first=batch_first).to(wide)

        shape = lambda length: (n, length, dim) if batch_first else (length, n, dim)
        inputs = {"x": u(*shape(queries), lo=-1, hi=1)}
        if keys:
            inputs |= {"keys": u(*shape(keys), lo=-1, hi=1), "values": u(*shape(keys), lo=-1, hi=1)}
        parameters = {"in_proj_weight": u(3 * dim, dim, lo=-0.5, hi=0.5)}
        if bias:
            parameters["in_proj_bias"] = u(3 * dim, lo=-0.5, hi=0.5)
        parameters["out_proj.weight"] = u(dim, dim, lo=-0.5, hi=0.5)
        if bias:
            parameters["out_proj.bias"] = u(dim, lo=-0.5, hi=0.5)
        inputs |= parameters
        diff = list(inputs)
        if mask is not None:
            inputs["mask"] = mask

        def run(*args):
            given = dict(zip(inputs, args))
            x = given["x"]
            k, v = (given["keys"], given["values"]) if keys else (x, x)
            layer = made(x.dtype)
            y, _ = torch.func.functional_call(
                layer,
                {name: given[name] for name in parameters},
                (x, k, v),
                {"need_weights": False, "attn_mask": given.get("mask")},
            )
            return y

        attrs = {
            "dim": dim,
            "heads": heads,
            "batch_first": batch_first,
            "bias": bias,
            "keys": bool(keys),
            "mask": mask is not None,
        }
        group.case("multihead_attention", suffix, run, inputs, attrs, diff=diff, **more)

    case("self", 8, 2, 2, 5)
    case("one_head", 6, 1, 2, 3)
    case("each_element", 4, 4, 1, 3)
    case("no_bias", 8, 2, 2, 4, bias=False)
    case("length_first", 8, 2, 3, 4, batch_first=False)
    case("cross", 8, 4, 2, 3, keys=5)
    case("cross_length_first", 8, 2, 2, 3, keys=4, batch_first=False)
    case("one_position", 8, 2, 2, 1)
    case("causal", 8, 2, 2, 4, keys=4, mask=torch.triu(torch.full((4, 4), float("-inf")), 1), confirm=True)
