#!/usr/bin/env python3
"""Shapes that nobody tuned for: Neurona beside PyTorch on this machine's CPU cores, in one interleaved run.

    python3 -m venv V && V/bin/pip install torch torchvision numpy
    cargo build --release -p neurona --example bench_odd
    V/bin/python bench/odd_torch.py [--threads N] [--rounds R] [--seconds S] [--only TEXT] [layers|nets|batches ...]

layers: single convolutions, their forward pass and all three passes (Neurona's kernels against PyTorch's ops). nets:
inference and a training step of whole networks. batches: time per image of Neurona alone as the batch grows from 16 to
512. PyTorch in both memory layouts, the faster one counted. Machines are noisy, so the two take turns and the best of
each counts. Prints Markdown tables, the lowest ratios first.
"""
import argparse, datetime, math, os, subprocess, sys, time

from compare_torch import cpu_name, torch_times

# images, channels, height and width, filters, kernel, stride, padding, dilation, groups
LAYERS = {
    "7x7 s2 from 3, 224": (8, 3, 224, 64, 7, 2, 3),
    "7x7 s2 from 3, 224, b1": (1, 3, 224, 64, 7, 2, 3),
    "11x11 s4 from 3, 224": (8, 3, 224, 64, 11, 4, 2),
    "3x3 s2 from 3, 224": (8, 3, 224, 32, 3, 2, 1),
    "5x5 from 1, 28": (8, 1, 28, 10, 5, 1, 2),
    "3x3 5 to 7, 31": (8, 5, 31, 7, 3, 1, 1),
    "3x3 17 to 33, 15": (8, 17, 15, 33, 3, 1, 1),
    "3x3 24 to 24, 56": (8, 24, 56, 24, 3, 1, 1),
    "3x3 100 to 130, 14": (8, 100, 14, 130, 3, 1, 1),
    "3x3 130 to 100, 7, b1": (1, 130, 7, 100, 3, 1, 1),
    "3x3 s2 33 to 96, 31": (8, 33, 31, 96, 3, 2, 1),
    "5x5 24 to 33, 28": (8, 24, 28, 33, 5, 1, 2),
    "5x5 s2 17 to 24, 15, b1": (1, 17, 15, 24, 5, 2, 2),
    "7x7 7 to 5, 31": (8, 7, 31, 5, 7, 1, 3),
    "1x7 96 to 96, 14": (8, 96, 14, 96, (1, 7), 1, (0, 3)),
    "7x1 96 to 96, 14": (8, 96, 14, 96, (7, 1), 1, (3, 0)),
    "1x1 24 to 96, 56": (8, 24, 56, 96, 1, 1, 0),
    "1x1 96 to 24, 56": (8, 96, 56, 24, 1, 1, 0),
    "1x1 256 to 64, 56, b1": (1, 256, 56, 64, 1, 1, 0),
    "1x1 576 to 160, 7": (8, 576, 7, 160, 1, 1, 0),
    "1x1 960 to 320, 7, b1": (1, 960, 7, 320, 1, 1, 0),
    "1x1 s2 256 to 512, 56": (8, 256, 56, 512, 1, 2, 0),
    "1x1 100 to 33, 15": (8, 100, 15, 33, 1, 1, 0),
    "3x3 dilation 2 33 to 33, 28": (8, 33, 28, 33, 3, 1, 2, 2),
    "3x3 2 groups 96 to 96, 28": (8, 96, 28, 96, 3, 1, 1, 1, 2),
    "3x3 4 groups 100 to 100, 14": (8, 100, 14, 100, 3, 1, 1, 1, 4),
    "3x3 32 groups 128 to 128, 28": (8, 128, 28, 128, 3, 1, 1, 1, 32),
    "3x3 depthwise 32, 112": (8, 32, 112, 32, 3, 1, 1, 1, 32),
    "3x3 depthwise 96 s2, 112": (8, 96, 112, 96, 3, 2, 1, 1, 96),
    "3x3 depthwise 144, 56, b1": (1, 144, 56, 144, 3, 1, 1, 1, 144),
    "3x3 depthwise 576, 14": (8, 576, 14, 576, 3, 1, 1, 1, 576),
    "3x3 depthwise 33 s2, 31": (8, 33, 31, 33, 3, 2, 1, 1, 33),
    "5x5 depthwise 100, 15": (8, 100, 15, 100, 5, 1, 2, 1, 100),
}
NETS = (
    "net mobilenet_v2 224 1", "net mobilenet_v2 224 8", "net resnet50 224 1", "net resnet50 224 8",
    "net resnet18 224 8", "net alexnet 224 8", "net vgg11 64 4",
    "norms 28 64 1 16 32", "norms 32 32 3 64 48", "norms 31 24 3 20 36", "stack 28 32 1 10 20 40", "stack 28 1 1 10 20 40", "stack 31 8 5 17 33", "mlp 32 100 37 10", "mlp 1 100 37 10",
)  # fmt: skip
BATCHES = {"lab": "net lenet 32", "bn": "net course_cnn 32", "mlp784": "mlp", "r18": "net resnet18_cifar 32"}


def layer_line(images, channels, size, filters, kernel, stride, padding, dilation=1, groups=1):
    """What bench_odd reads."""
    both = lambda value: value if isinstance(value, tuple) else (value, value)
    sizes = (images, channels, size, size, filters, *both(kernel), stride, *both(padding), dilation, groups)
    return "conv " + " ".join(map(str, sizes))


def best_time(seconds, call):
    """As bench_odd: the best mean of five windows, after three calls and a window to warm up."""
    def window(least):
        calls, start = 0, time.perf_counter()
        while calls < least or time.perf_counter() - start < seconds / 5:
            call()
            calls += 1
        return (time.perf_counter() - start) / calls

    window(3)
    return min(window(1) for _ in range(5))


def torch_layer(torch, line, seconds):
    """Seconds of the forward pass and of all three, in the layout that is faster for each."""
    n, c, h, w, k, r, s, stride, top, left, dilation, groups = map(int, line.split()[1:])
    options = ([stride] * 2, [top, left], [dilation] * 2, False, [0, 0], groups)
    best = [math.inf, math.inf]
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.rand(n, c, h, w).contiguous(memory_format=layout)
        weight, bias = torch.rand(k, c // groups, r, s).contiguous(memory_format=layout), torch.rand(k)
        forward = lambda: torch.ops.aten.convolution(x, weight, bias, *options)
        dy = torch.rand_like(forward())
        backward = lambda: torch.ops.aten.convolution_backward(dy, x, weight, [k], *options, [True] * 3)
        times = best_time(seconds, forward), best_time(seconds, backward)
        best = [min(best[0], times[0]), min(best[1], sum(times))]
    return best


def torch_net(torch, line):
    """A network and the shape of its batch."""
    from torch import nn
    from networks import mlp
    kind, *words = line.split()
    if kind == "net":
        import torchvision
        name, size, images = words[0], int(words[1]), int(words[2])
        return torchvision.models.get_model(name, num_classes=10), (images, 3, size, size)
    numbers = [int(word) for word in words]
    if kind == "mlp":
        return mlp(*numbers[1:]), (numbers[0], numbers[1])
    size, images, *channels = numbers
    layers = []
    for i, o in zip(channels, channels[1:]):
        norm = [nn.BatchNorm2d(o)] if kind == "norms" else []
        layers += [nn.Conv2d(i, o, 3, padding=1), *norm, nn.ReLU(), nn.MaxPool2d(2)]
    last = channels[-1] * (size // 2 ** (len(channels) - 1)) ** 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(last, 10)), (images, channels[0], size, size)


def torch_network(torch, line, seconds):
    """Seconds of inference and of a training step, in the layout that is faster for each."""
    shape = torch_net(torch, line)[1]
    return torch_times(torch, lambda: torch_net(torch, line)[0], shape, lambda call: best_time(seconds, call))


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neurona", default=os.path.join(root, "target", "release", "examples", "bench_odd"))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--only", default="", metavar="TEXT", help="only work with this in its name")
    parser.add_argument("groups", nargs="*", metavar="GROUP", default=["layers", "nets", "batches"])
    args = parser.parse_args()
    command = [args.neurona, "--threads", str(args.threads), "--seconds", str(args.seconds)]
    ours = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def neurona(line):
        print(line, file=ours.stdin, flush=True)
        answer = ours.stdout.readline()
        return [float(word) for word in answer.split()] if answer else sys.exit(f"{args.neurona} ended at {line}")

    commit = subprocess.run(["git", "-C", root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(f"{cpu_name()}, {args.threads} threads; {datetime.date.today()}; commit {commit}", flush=True)
    if "batches" in args.groups:
        sizes = (16, 32, 64, 128, 256, 512)
        print("\nNeurona's µs for an image, training / inference\n\n| network | " + " | ".join(f"batch {n}" for n in sizes) + " |")
        print("|---" + "|---:" * len(sizes) + "|")
        for name, line in BATCHES.items():
            if args.only not in name:
                continue
            lines = {n: f"mlp {n} 784 512 256 10" if line == "mlp" else f"{line} {n}" for n in sizes if name != "r18" or n <= 128}
            best = {n: [math.inf] * 2 for n in lines}
            for _ in range(args.rounds):
                for n in lines:
                    best[n] = [min(a, b / n * 1e6) for a, b in zip(best[n], neurona(lines[n]))]
            print(f"| {name} | " + " | ".join(f"{t:.2f} / {i:.2f}" for i, t in best.values()) + " |", flush=True)

    works = [(name, layer_line(*sizes), torch_layer) for name, sizes in LAYERS.items() if "layers" in args.groups]
    works += [(line, line, torch_network) for line in NETS if "nets" in args.groups]
    works = [work for work in works if args.only in work[0]]
    if not works:
        return
    import torch
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    rows = []
    for name, line, theirs in works:
        best = [[math.inf] * 2, [math.inf] * 2]
        for _ in range(args.rounds):
            for side, times in enumerate((neurona(line), theirs(torch, line, args.seconds))):
                best[side] = [min(pair) for pair in zip(best[side], times)]
                # Threads that wait for more work would keep the other side from its cores.
                time.sleep(0.02)
        (forward, both), (torch_forward, torch_both) = best
        rows.append((torch_both / both, torch_forward / forward, name, forward, torch_forward, both, torch_both))
        shown = " ".join(f"{t * 1e3:.3f}" for t in rows[-1][3:])
        print(f"{name}: forward {rows[-1][1]:.2f}, with gradients {rows[-1][0]:.2f}; ms {shown}", file=sys.stderr, flush=True)
    print(f"\nPyTorch {torch.__version__}, its faster layout; milliseconds\n")
    print("| work | forward: Neurona | PyTorch | ratio | with gradients: Neurona | PyTorch | ratio |\n|---|---:|---:|---:|---:|---:|---:|")
    for ratio, forward_ratio, name, *times in sorted(rows):
        f, tf, b, tb = (f"{t * 1e3:,.3f}" for t in times)
        print(f"| {name} | {f} | {tf} | {forward_ratio:.2f}× | {b} | {tb} | {ratio:.2f}× |")
    mean = lambda at: math.exp(sum(math.log(row[at]) for row in rows) / len(rows))
    print(f"\nGeometric mean of the ratios: forward {mean(1):.2f}×, with gradients {mean(0):.2f}×.")


if __name__ == "__main__":
    main()
