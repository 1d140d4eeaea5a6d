#!/usr/bin/env python3
"""Makes the images that Neurona carries: crates/neurona/assets/fashion-mnist/.

    tools/embed_fashion_mnist.py FOLDER     FOLDER holds the four official *-ubyte.gz files

Takes the first 500 images of each class from the official training file and the first 100 of each from the
official test file, in the order of those files. Writes gzipped idx files without name or time in them, so that
the same input gives the same bytes, and prints the CRC-32 of what is inside for the test in data/embedded.rs."""

import gzip
import struct
import sys
import zlib
from pathlib import Path

PARTS = {"train": ("train", 500), "test": ("t10k", 100)}


def read(path: Path, magic: int, dims: int) -> tuple[list[int], bytes]:
    data = gzip.decompress(path.read_bytes())
    found, *sizes = struct.unpack(f">{1 + dims}I", data[: 4 + 4 * dims])
    if found != magic:
        sys.exit(f"{path}: not an idx{dims} file of bytes")
    return sizes, data[4 + 4 * dims :]


def write(path: Path, magic: int, sizes: list[int], body: bytes) -> None:
    data = struct.pack(f">{1 + len(sizes)}I", magic, *sizes) + body
    path.write_bytes(gzip.compress(data, compresslevel=9, mtime=0))
    print(f"{path.name}: {path.stat().st_size} bytes, CRC-32 {zlib.crc32(data):#010x}")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    source = Path(sys.argv[1])
    target = Path(__file__).resolve().parent.parent / "crates/neurona/assets/fashion-mnist"
    target.mkdir(parents=True, exist_ok=True)
    for part, (official, of_each) in PARTS.items():
        (_, height, width), images = read(source / f"{official}-images-idx3-ubyte.gz", 0x803, 3)
        _, labels = read(source / f"{official}-labels-idx1-ubyte.gz", 0x801, 1)
        size, seen, chosen = height * width, [0] * 10, []
        for i, label in enumerate(labels):
            if seen[label] < of_each:
                seen[label] += 1
                chosen.append(i)
        pixels = b"".join(images[i * size : (i + 1) * size] for i in chosen)
        write(target / f"{part}-images.idx3.gz", 0x803, [len(chosen), height, width], pixels)
        write(target / f"{part}-labels.idx1.gz", 0x801, [len(chosen)], bytes(labels[i] for i in chosen))


if __name__ == "__main__":
    main()
