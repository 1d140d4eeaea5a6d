#!/usr/bin/env python3
"""Small image files of every kind, and what Pillow reads from them: crates/neurona/tests/images/.

    python3 -m venv V && V/bin/pip install numpy pillow safetensors && V/bin/python tools/image_fixtures.py

`expected.safetensors` holds for each file the pixels `[h, w, 3]` of `ImageOps.exif_transpose(image).convert("RGB")`
and, under the same name in the metadata, by how many levels a reader may differ: lossy formats leave rounding open."""

import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps
from safetensors.numpy import save_file

TARGET = Path(__file__).resolve().parent.parent / "crates/neurona/tests/images"
WIDTH, HEIGHT = 21, 14


def picture(channels):
    y, x, c = np.meshgrid(np.arange(HEIGHT), np.arange(WIDTH), np.arange(channels), indexing="ij")
    return np.clip(120 + 80 * np.sin(0.3 * x + 1.3 * c) + 5 * y - 3 * c * y, 0, 255).astype(np.uint8)


def image(channels, mode):
    array = picture(channels)
    return Image.fromarray(array[:, :, 0] if channels == 1 else array, mode)


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png16(array, colour):
    """A PNG of 16 bits, which Pillow cannot write in colour."""
    height, width = array.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in array)
    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def orientation(n):
    exif = Image.Exif()
    exif[0x0112] = n
    return exif


expected, levels = {}, {}


def keep(name, tolerance=0, pixels=None):
    if pixels is None:
        pixels = np.asarray(ImageOps.exif_transpose(Image.open(TARGET / name)).convert("RGB"))
    expected[name] = np.ascontiguousarray(pixels)
    levels[name] = str(tolerance)


def save(name, picture, tolerance=0, **options):
    picture.save(TARGET / name, **options)
    keep(name, tolerance)


TARGET.mkdir(parents=True, exist_ok=True)
rgb, grey = image(3, "RGB"), image(1, "L")
save("rgb.jpg", rgb, 3, quality=95, subsampling=0)
save("subsampled.jpg", rgb, 12, quality=90, subsampling=2)
save("progressive.jpg", rgb, 3, quality=95, subsampling=0, progressive=True)
save("grey.jpg", grey, 2, quality=95)
save("cmyk.jpg", image(4, "CMYK"), 5, quality=95)
cmyk = (TARGET / "cmyk.jpg").read_bytes()
adobe = cmyk.index(b"Adobe")
# The same data declared as YCCK: other colours, which a reader must get as Pillow does.
(TARGET / "ycck.jpg").write_bytes(cmyk[: adobe + 11] + b"\x02" + cmyk[adobe + 12 :])
keep("ycck.jpg", 5)
save("turned.jpg", rgb, 3, quality=95, subsampling=0, exif=orientation(6))
for n in range(1, 9):
    save(f"turned{n}.png", rgb, exif=orientation(n))
save("turned.webp", rgb, lossless=True, exif=orientation(8))
save("rgb.png", rgb)
save("rgba.png", image(4, "RGBA"))
save("grey.png", grey)
save("grey_alpha.png", image(2, "LA"))
save("palette.png", rgb.quantize(16))
save("palette_transparent.png", rgb.quantize(16), transparency=3)
save("one_bit.png", grey.convert("1"))
wide = picture(3).astype(np.uint16) * 256 + np.arange(WIDTH)[None, :, None]
(TARGET / "rgb16.png").write_bytes(png16(wide, 2))
keep("rgb16.png")
(TARGET / "grey16.png").write_bytes(png16(wide[:, :, :1], 0))
# Pillow clips grey of 16 bits to white; the upper byte is what it takes for colour.
keep("grey16.png", pixels=np.repeat(wide[:, :, :1] >> 8, 3, axis=2).astype(np.uint8))
save("rgb.bmp", rgb)
save("palette.bmp", rgb.quantize(16))
save("grey.bmp", grey)
save("lossless.webp", rgb, lossless=True)
save("alpha.webp", image(4, "RGBA"), lossless=True, exact=True)
save("lossy.webp", rgb, 6, quality=90)
save("moving.webp", rgb, lossless=True, save_all=True, append_images=[grey.convert("RGB")])
save("still.gif", rgb.quantize(16))
save("moving.gif", rgb.quantize(16), save_all=True, append_images=[grey.convert("RGB").quantize(16)])
save("transparent.gif", rgb.quantize(16), transparency=3)
save_file(expected, TARGET / "expected.safetensors", levels)
print(f"{len(expected)} files, {sum(f.stat().st_size for f in TARGET.iterdir())} bytes")
