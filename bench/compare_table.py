#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of bench/compare-pytorch, from the files that its runs leave."""
import argparse
import json
import pathlib
import re
import statistics


def step_seconds(log, batch):
    """Durations of the steps in a training log.

    A step line has the speed since its epoch began, so the time since then is
    images / speed, and a step is the difference to the line before.
    """
    seconds, epoch, elapsed, images = [], None, 0.0, 0
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["event"] != "step":
            continue
        if event["epoch"] != epoch:
            epoch, elapsed, images = event["epoch"], 0.0, 0
        images += batch
        now = images / event["images_per_second"]
        seconds.append(now - elapsed)
        elapsed = now
    return seconds


def read_runs(folder, batch, warmup):
    """{threads: {side: [one dict per round]}}"""
    runs = {}
    for path in sorted(folder.glob("*.json")):
        side, threads = re.fullmatch(r"(\w+)-(\d+)-\d+", path.stem).groups()
        summary = json.loads(path.read_text())
        if side == "thimble":
            seconds = step_seconds(path.with_suffix(".jsonl"), batch)[warmup:]
            per_step = statistics.median(seconds)
        else:
            per_step = summary["seconds_per_step"]
        over = None
        if summary["rss_base_bytes"] and summary["rss_peak_bytes"]:
            over = summary["rss_peak_bytes"] - summary["rss_base_bytes"]
        sides = runs.setdefault(int(threads), {"thimble": [], "pytorch": []})
        sides[side].append({"speed": batch / per_step, "over": over,
                            "arena": summary.get("arena_bytes"),
                            "torch": summary.get("torch"),
                            "setting": summary.get("setting")})
    return runs


def median(rounds, key):
    values = [r[key] for r in rounds if r[key] is not None]
    return statistics.median(values) if values else None


def text(value, scale=1.0, form="{:.1f}"):
    return "-" if value is None else form.format(value / scale)


def ratio(ours, theirs):
    return "-" if not ours or not theirs else f"{ours / theirs:.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--warmup-steps", type=int, required=True)
    args = parser.parse_args()

    runs = read_runs(args.folder, args.batch, args.warmup_steps)
    row = "{:>7}  {:<18} {:>9} {:>9}  {:>16}".format
    print(f"wrn-28-2, dense, f32, batch {args.batch}; medians of",
          len(next(iter(runs.values()))["thimble"]), "round(s); MB are 10^6")
    print(row("threads", "", "Thimble", "PyTorch", "Thimble/PyTorch"))
    for threads, sides in sorted(runs.items()):
        ours, theirs = sides["thimble"], sides["pytorch"]
        speeds = median(ours, "speed"), median(theirs, "speed")
        over = median(ours, "over"), median(theirs, "over")
        # Per round, so that what slows the machine for a while cancels.
        rounds = [a["speed"] / b["speed"] for a, b in zip(ours, theirs)]
        print(row(threads, "images/s", *map(text, speeds), ratio(*speeds)))
        print(row("", "RSS over base, MB", text(over[0], 1e6),
                  text(over[1], 1e6), ratio(*over)))
        print(row("", "planned arena, MB", text(median(ours, "arena"), 1e6),
                  "-", "-"))
        print(row("", "speed, each round", "", "",
                  f"{min(rounds):.3f} .. {max(rounds):.3f}"))
    print()
    for threads, sides in sorted(runs.items()):
        # One line, unless the rounds differ.
        for peer in dict.fromkeys(f"PyTorch {r['torch']}: {r['setting']}"
                                  for r in sides["pytorch"]):
            print(peer)
    print()
    for threads, sides in sorted(runs.items()):
        speeds = [median(sides[s], "speed") for s in ("thimble", "pytorch")]
        print(f"images/s, Thimble / PyTorch, {threads} thread(s):",
              ratio(*speeds))


if __name__ == "__main__":
    main()
