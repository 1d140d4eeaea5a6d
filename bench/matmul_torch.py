#!/usr/bin/env python3
"""Matrix products of Neurona beside torch.mm on this machine's CPU cores, in one interleaved run.

    python3 -m venv V && V/bin/pip install torch numpy
    cargo build --release -p neurona --example bench_matmul
    V/bin/python bench/matmul_torch.py [--threads N] [--rounds R] [--seconds S] [squares|mlp784|mlp500|thin ...]

squares: 256 to 4096. mlp784, mlp500: all products of a training step of these networks at batch 128 and 32. thin: few
rows. Machines are noisy, so the two take turns and the best of each counts. Prints a Markdown table.
"""
import argparse, datetime, math, os, subprocess, sys, time

from compare_torch import cpu_name

WIDTHS = {"mlp784": (128, [784, 512, 256, 10]), "mlp500": (32, [500, 256, 10])}


def products(name):
    """(rows, columns, depth, layout) of each product."""
    if name == "squares":
        return [(n, n, n, "ab") for n in (256, 512, 1024, 2048, 4096)]
    if name == "thin":
        sizes = (64, 256, 1000, 4096)
        return [(m, n, k, layout) for layout in ("ab", "abt") for m in (1, 4, 8, 32) for k in sizes for n in sizes]
    batch, widths = WIDTHS[name]
    found = []
    for i, (inside, outside) in enumerate(zip(widths, widths[1:])):
        found += [(batch, outside, inside, "abt"), (outside, inside, batch, "atb")]
        found += [(batch, inside, outside, "ab")] if i else []
    return found


def torch_speed(torch, m, n, k, layout, seconds):
    """The best GFLOP/s of five windows."""
    a = torch.rand(k, m).t() if layout.startswith("at") else torch.rand(m, k)
    b = torch.rand(n, k).t() if layout.endswith("bt") else torch.rand(k, n)
    out = torch.empty(m, n)

    def run(times):
        start = time.perf_counter()
        for _ in range(times):
            torch.mm(a, b, out=out)
        return (time.perf_counter() - start) / times

    run(2)
    times = int(min(max(seconds / 5 / run(2), 1), 1e6))
    return 2 * m * n * k / min(run(times) for _ in range(5)) / 1e9


def main():
    import torch
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neurona", default=os.path.join(root, "target", "release", "examples", "bench_matmul"))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("groups", nargs="*", metavar="GROUP", default=["squares", *WIDTHS, "thin"])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    command = [args.neurona, "--threads", str(args.threads), "--seconds", str(args.seconds)]
    ours = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def speed(m, n, k, layout):
        print(m, n, k, layout, file=ours.stdin, flush=True)
        answer = ours.stdout.readline()
        return float(answer) if answer else sys.exit(f"{args.neurona} ended")

    print(f"{cpu_name()}, {args.threads} threads; {datetime.date.today()}; PyTorch {torch.__version__}; GFLOP/s\n")
    print("| product | rows | columns | depth | Neurona | PyTorch | ratio |\n|---|---:|---:|---:|---:|---:|---:|")
    names, ratios = {"ab": "A·B", "abt": "A·Bᵀ", "atb": "Aᵀ·B"}, []
    for group in args.groups:
        for product in products(group):
            best = [0.0, 0.0]
            for _ in range(args.rounds):
                best[0] = max(best[0], speed(*product))
                best[1] = max(best[1], torch_speed(torch, *product, args.seconds))
                # Threads that wait for more work would keep the other side from its cores.
                time.sleep(0.02)
            ratios.append(best[0] / best[1])
            m, n, k, layout = product
            print(f"| {names[layout]} | {m} | {n} | {k} | {best[0]:.1f} | {best[1]:.1f} | {ratios[-1]:.2f}× |", flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"\nGeometric mean of the ratios: {mean:.2f}×; least {min(ratios):.2f}×.")


if __name__ == "__main__":
    main()
