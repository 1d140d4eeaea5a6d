#!/usr/bin/env python3
"""Neurona beside PyTorch on this machine's CPU cores, in one interleaved run.

    python3 -m venv V && V/bin/pip install torch numpy
    cargo build --release
    V/bin/python bench/compare_torch.py [--threads N] [--rounds R] [--seconds S] [WORK ...]

Both sides do the same: a training step (zero the gradients, forward, cross-entropy, backward, SGD with momentum,
read the loss) and inference, on random data; PyTorch in both memory layouts, the faster one counted. Machines are
noisy, so the two take turns and the best of each counts. Prints a Markdown table with machine, date and commit.
"""
import argparse, datetime, json, math, os, platform, subprocess, sys, time

WORKS = {"lab_b1": 1, "lab_b4": 4, "lab_b128": 128, "bn_b64": 64, "mlp500_b32": 32, "mlp784_b128": 128, "r18_b1": 1, "r18_b32": 32}


def best_mean(seconds, call):
    """Seconds of one call: the best mean of five windows, after five calls to warm up."""
    for _ in range(5):
        call()
    best = math.inf
    for _ in range(5):
        calls, start = 0, time.perf_counter()
        while calls < 2 or time.perf_counter() - start < seconds / 5:
            call()
            calls += 1
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def torch_times(torch, make, shape, time_of):
    """Seconds of inference and of a training step of the network that `make` gives, each by `time_of` a call, in the
    memory layout that is faster for it."""
    best = [math.inf, math.inf]
    for last in (False, True) if len(shape) == 4 else (False,):
        net, x, y = make(), torch.randn(shape), torch.arange(shape[0]) % 10
        if last:
            net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
        opt, loss = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9), torch.nn.CrossEntropyLoss()

        def step():
            opt.zero_grad()
            value = loss(net(x), y)
            value.backward()
            opt.step()
            return value.item()

        train = time_of(step)
        net.eval()
        with torch.no_grad():
            best = [min(best[0], time_of(lambda: net(x))), min(best[1], train)]
    return best


def torch_side(work, threads, seconds):
    """One JSON line: PyTorch's figures for one workload, in a process of its own."""
    import torch
    from networks import NETWORKS
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    make, shape = NETWORKS[work.split("_")[0]]
    batch = WORKS[work]
    infer, train = torch_times(torch, make, (batch, *shape), lambda call: best_mean(seconds, call))
    print(json.dumps({"version": torch.__version__, "train_per_s": batch / train, "infer_per_s": batch / infer}))


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        sys.exit(f"{' '.join(command)} printed no figures:\n{done.stderr[-800:]}")
    return lines[-1]


def cpu_name():
    try:
        flags = open("/proc/cpuinfo").read()
        name = next(l.split(":", 1)[1].strip() for l in flags.splitlines() if l.startswith("model name"))
        return name + (" with AVX-512" if " avx512f" in flags else " with AVX2" if " avx2" in flags else "")
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neurona", default=os.path.join(root, "target", "release", "neurona"))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--json", metavar="FILE", help="every figure as a line of JSON, for plot_peers.py")
    parser.add_argument("--torch-side", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("works", nargs="*", metavar="WORK", help=", ".join(WORKS))
    args = parser.parse_args()
    if unknown := [w for w in args.works if w not in WORKS]:
        parser.error(f"unknown workload {unknown[0]}; there are {', '.join(WORKS)}")
    if args.torch_side:
        return torch_side(args.works[0], args.threads, args.seconds)

    settings = ["--threads", str(args.threads), "--seconds", str(args.seconds)]
    rows, ratios, figures = [], ([], []), []
    for work in args.works or WORKS:
        ours, theirs = [], []
        for _ in range(args.rounds):
            ours.append(run([args.neurona, "bench", "--device", "cpu", *settings, "--json", work]))
            theirs.append(run([sys.executable, os.path.abspath(__file__), "--torch-side", *settings, work]))
        figures += [{"peer": "neurona", "work": work, **row} for row in ours]
        figures += [{"peer": f"torch{row['version']}", "work": work, **row} for row in theirs]
        cells = [work]
        for kind, kept in zip(("train_per_s", "infer_per_s"), ratios):
            a, b = max(r[kind] for r in ours), max(r[kind] for r in theirs)
            kept.append(a / b)
            cells += [f"{a:,.0f}", f"{b:,.0f}", f"{a / b:.2f}×"]
        cells.append(f"{min(r.get('overhead_us', math.nan) for r in ours):.1f}")
        rows.append(cells)
        print(" ".join(cells), file=sys.stderr, flush=True)
    if args.json:
        with open(args.json, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in figures)
    mean = lambda values: math.exp(sum(map(math.log, values)) / len(values))
    commit = subprocess.run(["git", "-C", root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(f"{cpu_name()}, {args.threads} threads; {datetime.date.today()}; commit {commit}; PyTorch {theirs[-1]['version']}, its faster layout\n")
    print("| work | Neurona trains/s | PyTorch trains/s | ratio | Neurona infers/s | PyTorch infers/s | ratio | µs a step outside kernels (mean) |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for cells in rows:
        print("| " + " | ".join(cells) + " |")
    print(f"\nGeometric mean of the ratios: training {mean(ratios[0]):.2f}×, inference {mean(ratios[1]):.2f}×.")


if __name__ == "__main__":
    main()
