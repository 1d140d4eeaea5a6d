"""matmul, linear, conv2d."""

import torch
import torch.nn.functional as F

from .vectors import Group, bf16, f16, f64, u


def add(group: Group):
    matmul(group)
    linear(group)
    conv2d(group)


def matmul(group):
    """attrs: "transpose_a"/"transpose_b" swap the last two dimensions of in0/in1 first."""
    for suffix, a, b, ta, tb in (
        ("square", (4, 4), (4, 4), False, False),
        ("odd", (3, 7), (7, 5), False, False),
        ("ta", (7, 3), (7, 5), True, False),
        ("tb", (3, 7), (5, 7), False, True),
        ("ta_tb", (7, 3), (5, 7), True, True),
        ("k1", (5, 1), (1, 7), False, False),
        ("m1", (1, 9), (9, 4), False, False),
        ("n1", (4, 9), (9, 1), False, False),
        ("size1", (1, 1), (1, 1), False, False),
        ("line_line", (7,), (7,), False, False),
        ("line_matrix", (5,), (5, 3), False, False),
        ("matrix_line", (3, 5), (5,), False, False),
        ("batched", (2, 3, 5), (2, 5, 4), False, False),
        ("batched_ta_tb", (2, 5, 3), (2, 4, 5), True, True),
        ("batch_times_matrix", (3, 2, 5), (5, 4), False, False),
        ("matrix_times_batch", (2, 5), (3, 5, 4), False, False),
        ("broadcast_both", (2, 1, 3, 4), (3, 4, 2), False, False),
        ("broadcast_size1", (1, 2, 3), (4, 3, 2), False, False),
        ("line_batch", (5,), (3, 5, 2), False, False),
        ("batch_line", (3, 2, 5), (5,), False, False),
        ("wide", (3, 17), (17, 19), False, False),
        ("tall", (19, 3), (3, 9), False, False),
        ("long_k", (2, 67), (67, 3), False, False),
        ("empty_m", (0, 3), (3, 4), False, False),
        ("empty_k", (3, 0), (0, 4), False, False),
        ("empty_batch", (0, 2, 3), (0, 3, 2), False, False),
    ):
        turn = lambda x, y, ta=ta, tb=tb: torch.matmul(x.mT if ta else x, y.mT if tb else y)
        group.case("matmul", suffix, turn, {"a": u(*a), "b": u(*b)}, {"transpose_a": ta, "transpose_b": tb})
    for name, dtype, tol in (("f64", f64, 1e-12), ("f16", f16, 4e-3), ("bf16", bf16, 3.2e-2)):
        group.case(
            "matmul",
            name,
            torch.matmul,
            {"a": u(3, 5, dtype=dtype), "b": u(5, 4, dtype=dtype)},
            {"transpose_a": False, "transpose_b": False},
            tol=tol,
        )


def linear(group):
    for suffix, x, out in (
        ("plain", (4, 7), 5),
        ("batch1", (1, 5), 3),
        ("size1", (1, 1), 1),
        ("line", (6,), 4),
        ("three_dims", (2, 3, 5), 4),
        ("wide", (3, 19), 17),
        ("empty", (0, 5), 3),
    ):
        for bias in (True, False):
            inputs = {"x": u(*x), "weight": u(out, x[-1], lo=-1, hi=1)} | ({"bias": u(out)} if bias else {})
            group.case("linear", suffix + ("" if bias else "_no_bias"), F.linear, inputs, {"bias": bias})
    group.case(
        "linear",
        "f64",
        F.linear,
        {"x": u(3, 5, dtype=f64), "weight": u(2, 5, dtype=f64), "bias": u(2, dtype=f64)},
        {"bias": True},
        tol=1e-12,
    )


def conv2d(group):
    """in0 [N, C, H, W]; in1 [O, C / groups, kh, kw]; in2 [O] where "bias" is true."""

    def conv(
        suffix,
        x,
        o,
        k,
        stride=(1, 1),
        padding=(0, 0),
        dilation=(1, 1),
        groups=1,
        bias=True,
        dtype=torch.float32,
        tol=1e-5,
    ):
        attrs = {
            "stride": list(stride),
            "padding": list(padding),
            "dilation": list(dilation),
            "groups": groups,
            "bias": bias,
        }
        inputs = {"x": u(*x, dtype=dtype), "weight": u(o, x[1] // groups, *k, lo=-1, hi=1, dtype=dtype)}
        if bias:
            inputs["bias"] = u(o, dtype=dtype)
        run = lambda x, w, b=None: F.conv2d(x, w, b, stride, padding, dilation, groups)
        group.case("conv2d", suffix, run, inputs, attrs, tol=tol)

    conv("1x1", (2, 3, 3, 5), 4, (1, 1))
    conv("1x1_no_bias", (1, 5, 3, 3), 2, (1, 1), bias=False)
    conv("1x1_s2", (2, 4, 5, 5), 3, (1, 1), (2, 2), bias=False)
    conv("1x1_s2_even", (1, 3, 4, 6), 2, (1, 1), (2, 2), bias=False)
    conv("3x3", (2, 2, 5, 5), 3, (3, 3))
    conv("3x3_p1", (1, 3, 5, 7), 2, (3, 3), padding=(1, 1))
    conv("3x3_p1_no_bias", (2, 2, 4, 4), 3, (3, 3), padding=(1, 1), bias=False)
    conv("3x3_s2_p1", (1, 3, 7, 7), 2, (3, 3), (2, 2), (1, 1))
    conv("3x3_s2_p1_even", (1, 2, 8, 6), 3, (3, 3), (2, 2), (1, 1), bias=False)
    conv("3x3_s2x1_p1x0", (2, 2, 6, 5), 2, (3, 3), (2, 1), (1, 0))
    conv("3x3_s1x3_p0x2", (1, 2, 5, 8), 2, (3, 3), (1, 3), (0, 2))
    conv("3x3_on_1x1", (2, 2, 1, 1), 3, (3, 3), padding=(1, 1))
    conv("3x3_on_2x2", (1, 3, 2, 2), 2, (3, 3), padding=(1, 1))
    conv("3x3_s3", (1, 2, 7, 8), 2, (3, 3), (3, 3))
    conv("2x2_s3", (1, 2, 8, 7), 3, (2, 2), (3, 3))
    conv("2x2_s2", (2, 2, 4, 6), 2, (2, 2), (2, 2))
    conv("1x5", (1, 2, 3, 9), 3, (1, 5), padding=(0, 2))
    conv("3x2", (2, 2, 5, 4), 2, (3, 2), padding=(1, 1))
    conv("5x3_s2x1", (1, 2, 9, 5), 2, (5, 3), (2, 1), (2, 1))
    conv("5x5", (1, 3, 7, 7), 2, (5, 5))
    conv("5x5_p2", (1, 1, 5, 6), 3, (5, 5), padding=(2, 2))
    conv("5x5_whole", (3, 2, 5, 5), 4, (5, 5))
    conv("7x7_s2_p3", (1, 2, 9, 9), 2, (7, 7), (2, 2), (3, 3), bias=False)
    conv("7x7_s2_p3_odd", (1, 1, 11, 8), 2, (7, 7), (2, 2), (3, 3))
    conv("dilated", (1, 2, 7, 7), 2, (3, 3), dilation=(2, 2))
    conv("dilated_p2", (1, 2, 5, 6), 2, (3, 3), padding=(2, 2), dilation=(2, 2))
    conv("dilated_s2_2x1", (1, 2, 8, 7), 2, (3, 2), (2, 2), (1, 1), (2, 1))
    conv("groups2", (2, 4, 4, 5), 6, (3, 3), padding=(1, 1), groups=2)
    conv("groups3_s2", (1, 6, 5, 5), 3, (3, 3), (2, 2), (1, 1), groups=3, bias=False)
    conv("depthwise", (2, 5, 4, 4), 5, (3, 3), padding=(1, 1), groups=5)
    conv("depthwise_s2", (1, 3, 7, 6), 3, (3, 3), (2, 2), (1, 1), groups=3, bias=False)
    conv("depthwise_x2", (1, 3, 5, 5), 6, (3, 3), groups=3)
    conv("channels17", (1, 17, 3, 3), 9, (1, 1))
    conv("channels9_out17", (1, 2, 4, 3), 17, (3, 3), padding=(1, 1), bias=False)
    conv("one_channel", (1, 1, 1, 1), 1, (1, 1))
    conv("batch5", (5, 1, 4, 4), 2, (3, 3), padding=(1, 1))
    conv("empty_batch", (0, 2, 5, 5), 3, (3, 3), padding=(1, 1))
    conv("f64", (1, 2, 5, 4), 3, (3, 3), (2, 1), (1, 1), dtype=f64, tol=1e-12)
