"""max_pool2d, avg_pool2d, adaptive_avg_pool2d."""

import torch
import torch.nn.functional as F

from .vectors import Group, f64, ints, lit, u

NAN = float("nan")


def add(group: Group):
    def max_pool(suffix, x, k, s, p=(0, 0), d=(1, 1), ceil=False, **more):
        attrs = {"kernel": list(k), "stride": list(s), "padding": list(p), "dilation": list(d), "ceil_mode": ceil}
        group.case("max_pool2d", suffix, lambda t: F.max_pool2d(t, k, s, p, d, ceil), {"x": x}, attrs, **more)

    exact = {"tol": 0}
    max_pool("2x2", u(2, 3, 4, 6), (2, 2), (2, 2), **exact)
    max_pool("2x2_odd", u(1, 3, 5, 7), (2, 2), (2, 2), **exact)
    max_pool("2x2_ceil", u(1, 3, 5, 7), (2, 2), (2, 2), ceil=True, **exact)
    max_pool("3x3_s2_p1", u(1, 2, 8, 7), (3, 3), (2, 2), (1, 1), tol=1e-6)
    max_pool("3x3_s2_p1_ceil", u(1, 2, 8, 6), (3, 3), (2, 2), (1, 1), ceil=True, tol=1e-6)
    max_pool("3x3_s2", u(2, 2, 7, 7), (3, 3), (2, 2), tol=1e-6)
    max_pool("3x3_s1", u(1, 2, 5, 5), (3, 3), (1, 1), tol=1e-5)
    max_pool("3x3_s1_p1", u(1, 2, 3, 4), (3, 3), (1, 1), (1, 1), tol=1e-5)
    max_pool("2x2_s3", u(1, 2, 8, 7), (2, 2), (3, 3), **exact)
    max_pool("3x2_s2x1_p1x0", u(2, 2, 6, 5), (3, 2), (2, 1), (1, 0), tol=1e-6)
    max_pool("1x1", u(1, 3, 2, 3), (1, 1), (1, 1), **exact)
    max_pool("whole", u(2, 3, 3, 5), (3, 5), (3, 5), **exact)
    max_pool("dilated", u(1, 2, 6, 7), (2, 2), (1, 1), (0, 0), (2, 3), tol=1e-6)
    max_pool("negative_padded", u(1, 2, 4, 4, lo=-5, hi=-1), (3, 3), (2, 2), (1, 1), tol=1e-6)
    # Of equal values the first in row order gets the gradient.
    max_pool("ties", ints(2, 2, 4, 4, hi=2, dtype=torch.float32), (2, 2), (2, 2), **exact)
    max_pool("ties_overlap", ints(1, 2, 5, 5, hi=2, dtype=torch.float32), (3, 3), (2, 2), (1, 1), tol=1e-6)
    max_pool("ties_zero", torch.zeros(1, 1, 4, 4), (2, 2), (2, 2), **exact)
    max_pool("nan", lit([[[[1.0, NAN, 0.0, 2.0], [3.0, 0.5, 1.0, 1.5]]]]), (2, 2), (2, 2), diff=[], **exact)
    max_pool("empty_batch", u(0, 2, 4, 4), (2, 2), (2, 2), **exact)
    max_pool("f64", u(1, 2, 5, 5, dtype=f64), (2, 2), (2, 2), **exact)

    def avg_pool(suffix, x, k, s, p=(0, 0), ceil=False, include=True, **more):
        attrs = {
            "kernel": list(k),
            "stride": list(s),
            "padding": list(p),
            "ceil_mode": ceil,
            "count_include_pad": include,
            "divisor_override": None,
        }
        group.case("avg_pool2d", suffix, lambda t: F.avg_pool2d(t, k, s, p, ceil, include), {"x": x}, attrs, **more)

    avg_pool("2x2", u(2, 3, 4, 6), (2, 2), (2, 2))
    avg_pool("2x2_odd", u(1, 3, 5, 7), (2, 2), (2, 2))
    avg_pool("whole", u(2, 3, 4, 4), (4, 4), (4, 4))
    avg_pool("1x1", u(1, 2, 3, 3), (1, 1), (1, 1))
    avg_pool("3x3_s1", u(1, 2, 5, 4), (3, 3), (1, 1))
    avg_pool("2x2_s3", u(1, 2, 7, 8), (2, 2), (3, 3))
    for include in (True, False):
        end = "" if include else "_exclude_pad"
        avg_pool("3x3_s2_p1" + end, u(1, 2, 7, 6), (3, 3), (2, 2), (1, 1), include=include)
        avg_pool("3x3_s1_p1" + end, u(1, 2, 3, 4), (3, 3), (1, 1), (1, 1), include=include)
        avg_pool("2x4_s2x1_p1x2" + end, u(2, 1, 5, 4), (2, 4), (2, 1), (1, 2), include=include)
        avg_pool("3x3_s2_p1_ceil" + end, u(1, 2, 6, 8), (3, 3), (2, 2), (1, 1), ceil=True, include=include)
    avg_pool("empty_batch", u(0, 2, 4, 4), (2, 2), (2, 2))
    avg_pool("f64", u(1, 2, 4, 5, dtype=f64), (3, 3), (2, 2), (1, 1), tol=1e-12)

    for suffix, shape in (
        ("plain", (2, 3, 4, 4)),
        ("odd", (1, 5, 3, 7)),
        ("size1", (3, 2, 1, 1)),
        ("line", (2, 2, 1, 9)),
        ("empty_batch", (0, 3, 2, 2)),
    ):
        group.case(
            "adaptive_avg_pool2d",
            suffix,
            lambda x: F.adaptive_avg_pool2d(x, 1),
            {"x": u(*shape)},
            {"output_size": [1, 1]},
        )
