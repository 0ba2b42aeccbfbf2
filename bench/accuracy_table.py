# SPDX-License-Identifier: Apache-2.0
"""Prints the table of bench/accuracy: accuracies, and what they differ from f32."""
import json
import math
import pathlib
import sys

# Two-sided 95% quantiles of Student's t, for 1, 2, ... degrees of freedom.
T95 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]


def best_accuracy(log):
    """Of a training's log in percent; None where it has not ended."""
    try:
        last = json.loads(log.read_text().splitlines()[-1])
    except (OSError, IndexError, ValueError):
        return None
    if last.get("event") != "summary":
        return None
    return 100 * last["best_test_accuracy"]


def interval(differences):
    """Mean and half the width of its 95% interval; None of fewer than two."""
    n = len(differences)
    mean = sum(differences) / n
    if n < 2:
        return mean, None
    variance = sum((d - mean) ** 2 for d in differences) / (n - 1)
    quantile = T95[n - 2] if n - 2 < len(T95) else 1.96
    return mean, quantile * math.sqrt(variance / n)


def row(name, accuracies, base):
    """A line of the table; accuracies and base are {seed: percent}."""
    mean = sum(accuracies.values()) / len(accuracies)
    cells = [name, str(len(accuracies)), f"{mean:.2f}"]
    paired = [a - base[s] for s, a in accuracies.items() if s in base]
    if name == "f32" or not paired:
        return cells + ["", ""]
    difference, half = interval(paired)
    cells.append(f"{difference:+.2f}")
    cells.append("" if half is None else
                 f"[{difference - half:+.2f}, {difference + half:+.2f}]")
    return cells


def main():
    folder, seeds = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    runs = {}
    for name in sorted({*sys.argv[3:], "f32"}):
        for seed in range(1, seeds + 1):
            accuracy = best_accuracy(folder / f"{name}-{seed}.jsonl")
            if accuracy is not None:
                runs.setdefault(name, {})[seed] = accuracy
    print("| setting | seeds | best accuracy, % | minus f32's | 95% interval |")
    print("|---|---|---|---|---|")
    for name, accuracies in sorted(runs.items()):
        print("| " + " | ".join(row(name, accuracies, runs.get("f32", {})))
              + " |")


if __name__ == "__main__":
    main()
