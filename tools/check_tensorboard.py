#!/usr/bin/env python3
"""Reads a run's event files with the real TensorBoard and compares them with its metrics.csv.

    pip install tensorboard
    python tools/check_tensorboard.py runs/fashion-mnist-1

Fails when a value is missing, twice there, or differs by more than single precision does.
"""

import csv
import math
import pathlib
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def tag(column):
    """The tag of a column, as TensorBoard shows it."""
    group, _, name = column.partition("_")
    if group in ("train", "val"):
        return f"{group}/{name}"
    return column if column == "lr" else f"run/{column}"


def main(run):
    run = pathlib.Path(run)
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    with open(run / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    problems, compared = [], 0
    for column in (c for c in rows[0] if c != "epoch"):
        want = [(int(row["epoch"]), float(row[column])) for row in rows if row[column] != ""]
        if not want:
            continue
        if tag(column) not in events.Tags()["scalars"]:
            problems.append(f"{tag(column)} is not there")
            continue
        got = [(event.step, event.value) for event in events.Scalars(tag(column))]
        if [step for step, _ in got] != [step for step, _ in want]:
            problems.append(f"{tag(column)} has epochs {[s for s, _ in got]} instead of {[s for s, _ in want]}")
            continue
        for (step, value), (_, expected) in zip(got, want):
            compared += 1
            if not math.isclose(value, expected, rel_tol=1e-6, abs_tol=1e-30):
                problems.append(f"{tag(column)} in epoch {step} is {value} instead of {expected}")
    print("\n".join(problems) or f"{compared} values of {len(rows)} epochs agree")
    return 1 if problems else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
