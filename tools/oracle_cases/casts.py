"""`cast`, attrs {"to": dtype}. Values outside the range of the target are not defined and not here,
save f32 to f16 (infinity) and integers to u8 (modulo 256)."""

from .vectors import DTYPES, Group, bf16, boolean, f16, f32, f64, i64, ints, lit, u, u8

INF, NAN = float("inf"), float("nan")


def add(group: Group):
    def cast(suffix, x, to, **more):
        group.case("cast", suffix, lambda t: t.to(DTYPES[to]), {"x": x}, {"to": to}, tol=0, confirm=False, **more)

    cast("f32_i64", lit([-2.9, -1.0, -0.5, -0.0, 0.5, 0.99, 1.0, 2.5, 3.5, 16777216.0, -123456.7]), "i64")
    cast("f32_u8", lit([0.0, 0.49, 0.5, 0.99, 1.5, 127.5, 254.99, 255.0]), "u8")
    cast("f32_bool", lit([0.0, -0.0, 1e-45, 0.5, -3.0, INF, NAN]), "bool")
    cast("f32_f64", u(2, 5), "f64")
    cast("f32_f32", u(2, 5), "f32")
    # f16: ties to even, largest finite, overflow, subnormals, underflow.
    cast("f32_f16", u(3, 5), "f16")
    cast(
        "f32_f16_rounding",
        lit(
            [
                1 + 2**-11,
                1 + 3 * 2**-11,
                1 + 2**-11 + 2**-20,
                65504.0,
                65519.0,
                65520.0,
                -1e6,
                2**-24,
                2**-25,
                2**-25 * 1.0001,
                3 * 2**-25,
                6.1e-5,
                1e-10,
                -0.0,
                INF,
                -INF,
                NAN,
            ]
        ),
        "f16",
        diff=[],
    )
    # bf16: ties to even, values that round up to the next power of two or to infinity, subnormals.
    cast("f32_bf16", u(3, 5), "bf16")
    cast(
        "f32_bf16_rounding",
        lit(
            [
                1 + 2**-8,
                1 + 3 * 2**-8,
                1 + 2**-8 + 2**-20,
                1 + 2**-8 - 2**-20,
                1.9999,
                3.3895314e38,
                3.4028235e38,
                1e-40,
                -0.0,
                INF,
                -INF,
                NAN,
            ]
        ),
        "bf16",
        diff=[],
    )
    cast("f16_f32", u(7, dtype=f16), "f32")
    cast("bf16_f32", u(7, dtype=bf16), "f32")
    cast("f16_bf16", u(7, dtype=f16), "bf16")
    cast("f64_f32", u(2, 5, dtype=f64), "f32")
    cast("f64_f32_range", lit([1e300, -1e300, 1e-300, 0.1, 1 + 2**-24, 1 + 3 * 2**-24, INF, NAN], f64), "f32", diff=[])
    cast("f64_i64", lit([-2.9, 2.9, 9007199254740991.0, -0.1], f64), "i64")
    cast("i64_f32", lit([0, -7, 16777217, 16777219, 2**53 + 1], i64), "f32")
    cast("i64_u8", lit([0, 255, 256, 300, -1], i64), "u8")
    cast("i64_bool", lit([0, 1, -1, 256], i64), "bool")
    cast("u8_f32", ints(9, hi=256, dtype=u8), "f32")
    cast("u8_i64", ints(9, hi=256, dtype=u8), "i64")
    cast("u8_f16", ints(9, hi=256, dtype=u8), "f16")
    cast("bool_f32", ints(2, 5, hi=2, dtype=boolean), "f32")
    cast("bool_i64", ints(9, hi=2, dtype=boolean), "i64")
    cast("empty", u(0, 3), "f64")
    cast("zero_dim", u(dtype=f32), "f16")
