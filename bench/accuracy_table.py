# SPDX-License-Identifier: Apache-2.0
"""Prints the table of bench/accuracy: accuracies, and what they differ by."""
import json
import math
import pathlib
import sys

# Two-sided 95% quantiles of Student's t, for 1, 2, ... degrees of freedom.
T95 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]


def summary(log):
    """The last line of a training's log; None where it has not ended."""
    try:
        last = json.loads(log.read_text().splitlines()[-1])
    except (OSError, IndexError, ValueError):
        return None
    ended = last.get("event") == "summary" and not last.get("stopped", False)
    return last if ended else None


def recorded(file):
    """The summaries that are kept in a file, {(setting, seed): summary}."""
    if not file.exists():
        return {}
    lines = map(json.loads, file.read_text().splitlines())
    return {(line["setting"], line["seed"]): line for line in lines}


def record(file, summaries):
    """Keeps them in the file, a line each, without what a machine decides."""
    keys = ("best_test_accuracy", "final_train_loss", "steps", "skipped",
            "weights_sha256")
    with file.open("w") as to:
        for (setting, seed), line in sorted(summaries.items()):
            kept = {k: line[k] for k in keys if k in line}
            to.write(json.dumps({"setting": setting, "seed": seed, **kept})
                     + "\n")


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
    """A line of the table; accuracies and base are {seed: percent}. A base of
    its own has nothing to differ from."""
    mean = sum(accuracies.values()) / len(accuracies)
    cells = [name, str(len(accuracies)), f"{mean:.2f}"]
    paired = [a - base[s] for s, a in accuracies.items() if s in base]
    if accuracies is base or not paired:
        return cells + ["", ""]
    difference, half = interval(paired)
    cells.append(f"{difference:+.2f}")
    cells.append("" if half is None else
                 f"[{difference - half:+.2f}, {difference + half:+.2f}]")
    return cells


# Settings that train in another way than their base, and what differs in one
# thing alone: f32 trained the same way; single weights instead of blocks.
TRAINED_ALIKE = {"f16-no-gradients": "f32-plain-momentum",
                 "f16-no-gradients-batch-10": "f32-batch-10",
                 "sparse-dsr-2x2": "sparse-dsr"}


def row_beside(name, runs):
    """A further line for a setting that another was trained like, if it was."""
    like = TRAINED_ALIKE.get(name)
    if like not in runs:
        return None
    return [f"{name}, minus {like}", *row(name, runs[name], runs[like])[1:]]


def main():
    """FOLDER of logs, FILE of records, SEEDS, "record" or "", the setting that
    the others are compared with, settings."""
    folder, file = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    seeds, base, names = int(sys.argv[3]), sys.argv[5], sys.argv[6:]
    summaries = recorded(file)
    for log in folder.glob("*.jsonl"):
        setting, seed = log.stem.rsplit("-", 1)
        last = summary(log)
        if last is not None:
            summaries[setting, int(seed)] = last
    if sys.argv[4] == "record":
        record(file, summaries)
    runs = {}
    for (setting, seed), last in summaries.items():
        if seed <= seeds and setting in {*names, base}:
            accuracy = 100 * last["best_test_accuracy"]
            runs.setdefault(setting, {})[seed] = accuracy
    print(f"| setting | seeds | best accuracy, % | minus {base}'s"
          " | 95% interval |")
    print("|---|---|---|---|---|")
    for name, accuracies in sorted(runs.items()):
        lines = [row(name, accuracies, runs.get(base, {})),
                 row_beside(name, runs)]
        for cells in filter(None, lines):
            print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
