"""What layers do with images beyond the basic ops: "same" padding, other sizes, dilated windows."""

import torch.nn.functional as F

from .vectors import Group, f64, lit, u


def add(group: Group):
    conv_same(group)
    upsample(group)
    adaptive(group)
    dilated(group)
    batch_norm_sequence(group)


def conv_same(group):
    def case(suffix, x, weight, bias=None, dilation=(1, 1), groups=1, **more):
        inputs = {"x": x, "weight": weight} | ({"bias": bias} if bias is not None else {})
        run = lambda x, w, b=None: F.conv2d(x, w, b, padding="same", dilation=dilation, groups=groups)
        group.case("conv2d_same", suffix, run, inputs, {"dilation": list(dilation), "groups": groups}, **more)

    case("3x3", u(2, 3, 5, 6), u(4, 3, 3, 3, lo=-0.5, hi=0.5), u(4))
    case("5x2", u(2, 3, 6, 5), u(4, 3, 5, 2, lo=-0.5, hi=0.5), u(4))
    case("2x5", u(1, 2, 5, 6), u(3, 2, 2, 5, lo=-0.5, hi=0.5))
    case("2x2", u(2, 2, 4, 4), u(3, 2, 2, 2, lo=-0.5, hi=0.5), u(3))
    case("1x1", u(2, 3, 4, 4), u(2, 3, 1, 1), u(2))
    case("dilated", u(1, 2, 7, 6), u(3, 2, 2, 3, lo=-0.5, hi=0.5), u(3), dilation=(3, 2))
    case("depthwise", u(2, 4, 5, 5), u(4, 1, 4, 3, lo=-0.5, hi=0.5), u(4), groups=4)
    case("larger_than_image", u(1, 1, 2, 2), u(1, 1, 5, 4, lo=-0.5, hi=0.5))
    case("f64", u(1, 2, 5, 4, dtype=f64), u(3, 2, 4, 2, lo=-0.5, hi=0.5, dtype=f64), u(3, dtype=f64), tol=1e-12)


def upsample(group):
    for suffix, shape, size in (
        ("double", (2, 3, 4, 5), (8, 10)),
        ("factors", (1, 2, 3, 4), (9, 4)),
        ("same", (1, 2, 3, 4), (3, 4)),
        ("size", (2, 3, 4, 5), (7, 9)),
        ("one_axis", (2, 3, 4, 5), (4, 8)),
        ("smaller", (1, 2, 7, 9), (3, 4)),
        ("one_pixel", (2, 3, 1, 1), (3, 2)),
        ("large", (1, 1, 10, 7), (33, 29)),
    ):
        run = lambda x, size=size: F.interpolate(x, size=size, mode="nearest")
        group.case("upsample_nearest2d", suffix, run, {"x": u(*shape)}, {"size": list(size)}, tol=1e-6)


def adaptive(group):
    for suffix, shape, size in (
        ("divides", (2, 3, 6, 8), (3, 2)),
        ("overlaps", (2, 3, 7, 10), (3, 4)),
        ("one_axis", (1, 2, 7, 6), (7, 4)),
        ("larger", (1, 2, 3, 4), (5, 6)),
        ("one", (2, 3, 5, 7), (1, 1)),
        ("row", (2, 3, 5, 7), (1, 3)),
        ("one_pixel", (1, 2, 1, 1), (2, 3)),
    ):
        run = lambda x, size=size: F.adaptive_avg_pool2d(x, size)
        group.case("adaptive_bins", suffix, run, {"x": u(*shape)}, {"output_size": list(size)}, tol=2e-6)


def dilated(group):
    def case(suffix, shape, kernel, stride, padding, dilation, ceil=False, x=None):
        attrs = {
            "kernel": list(kernel),
            "stride": list(stride),
            "padding": list(padding),
            "dilation": list(dilation),
            "ceil_mode": ceil,
        }
        run = lambda x: F.max_pool2d(x, kernel, stride, padding, dilation, ceil)
        group.case("max_pool2d_dilated", suffix, run, {"x": x if x is not None else u(*shape)}, attrs, tol=0)

    case("square", (2, 3, 7, 8), (2, 2), (1, 1), (0, 0), (2, 2))
    case("stride", (2, 3, 9, 8), (2, 3), (2, 3), (0, 1), (3, 1))
    case("padding", (1, 2, 6, 7), (3, 3), (2, 2), (1, 1), (2, 2))
    case("ceil", (1, 2, 8, 7), (2, 2), (3, 2), (1, 0), (2, 3), True)
    case("ties", None, (2, 2), (1, 1), (0, 0), (2, 2), x=lit([[[[1.0, 2.0, 1.0], [0.0, 0.0, 0.0], [1.0, 3.0, 1.0]]]]))


def batch_norm_sequence(group):
    for suffix, shape in (("sequence", (3, 4, 5)), ("one_place", (4, 3, 1))):
        run = lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True)
        inputs = {"x": u(*shape), "weight": u(shape[1], lo=0.5, hi=1.5), "bias": u(shape[1])}
        group.case("batch_norm1d", suffix, run, inputs, {})
