#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of bench/compare-pytorch, from the files that its runs leave."""
import argparse
import json
import pathlib
import re
import statistics


def step_seconds(log, batch, unit):
    """Durations of the steps in a training log.

    A step line has the speed since its epoch began, so the time since then is
    units / speed, and a step is the difference to the line before.
    """
    seconds, epoch, elapsed, units = [], None, 0.0, 0
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["event"] != "step":
            continue
        if event["epoch"] != epoch:
            epoch, elapsed, units = event["epoch"], 0.0, 0
        units += batch
        now = units / event[f"{unit}_per_second"]
        seconds.append(now - elapsed)
        elapsed = now
    return seconds


def read_run(path, batch, warmup, unit):
    """Speed and memory of one run."""
    summary = json.loads(path.read_text())
    if path.name.startswith("thimble"):
        seconds = step_seconds(path.with_suffix(".jsonl"), batch,
                               unit)[warmup:]
        per_step = statistics.median(seconds)
    else:
        per_step = summary["seconds_per_step"]
    base, peak = summary["rss_base_bytes"], summary["rss_peak_bytes"]
    return {"speed": batch / per_step, "base": base,
            "over": peak - base if base and peak else None,
            "arena": summary.get("arena_bytes"),
            "torch": summary.get("torch"), "setting": summary.get("setting")}


def read_runs(folder, batch, warmup, unit):
    """{threads: {"thimble": [one dict per round], a setting of PyTorch: ...}}"""
    runs = {}
    for path in folder.glob("*.json"):
        name = re.fullmatch(r"(thimble|pytorch)-(\d+)-(\d+)-?(.*)", path.stem)
        if name is None:
            continue
        side, threads, number, setting = name.groups()
        sides = runs.setdefault(int(threads), {})
        rounds = sides.setdefault(setting or side, {})
        rounds[int(number)] = read_run(path, batch, warmup, unit)
    return {threads: {side: [rounds[i] for i in sorted(rounds)]
                      for side, rounds in sides.items()}
            for threads, sides in runs.items()}


def fastest(sides):
    """The setting of PyTorch with the best median."""
    return max((side for side in sides if side != "thimble"),
               key=lambda side: median(sides[side], "speed"))


def cpu(cpuinfo):
    """Name and 16-bit instructions of a CPU, from the text of /proc/cpuinfo."""
    found = dict(re.findall(r"^(model name|flags)\s*: (.*)$", cpuinfo, re.M))
    flags = found.get("flags", "").split()
    has = [f"{flag}: {'yes' if flag in flags else 'no'}" for flag in
           ("avx512f", "avx512_bf16", "amx_bf16")]
    return ", ".join([found.get("model name", "unknown CPU")] + has)


def median(rounds, key):
    values = [r[key] for r in rounds if r[key] is not None]
    return statistics.median(values) if values else None


def text(value, scale=1.0, form="{:.1f}"):
    return "-" if value is None else form.format(value / scale)


def ratio(ours, theirs):
    return "-" if not ours or not theirs else f"{ours / theirs:.3f}"


def print_table(runs, batch, model, unit):
    row = "{:>7}  {:<18} {:>9} {:>9}  {:>16}".format
    print(f"{model}; {batch} {unit} per step; medians of",
          len(next(iter(runs.values()))["thimble"]), "round(s); MB are 10^6")
    print(row("threads", "", "Thimble", "PyTorch", "Thimble/PyTorch"))
    for threads, sides in sorted(runs.items()):
        ours, theirs = sides["thimble"], sides[fastest(sides)]
        speeds = median(ours, "speed"), median(theirs, "speed")
        over = median(ours, "over"), median(theirs, "over")
        base = median(ours, "base"), median(theirs, "base")
        # Per round, so that what slows the machine for a while cancels.
        rounds = [a["speed"] / b["speed"] for a, b in zip(ours, theirs)]
        print(row(threads, f"{unit}/s", *map(text, speeds), ratio(*speeds)))
        print(row("", "RSS over base, MB", text(over[0], 1e6),
                  text(over[1], 1e6), ratio(*over)))
        print(row("", "base, MB", text(base[0], 1e6), text(base[1], 1e6), "-"))
        print(row("", "planned arena, MB", text(median(ours, "arena"), 1e6),
                  "-", "-"))
        print(row("", "speed, each round", "", "",
                  f"{min(rounds):.3f} .. {max(rounds):.3f}"))


def print_peer(runs, folder, unit):
    """Each setting that was tried, and what the fastest one was."""
    row = "{:>7}  {:<34} {:>9} {:>18}".format
    print(row("threads", "settings of PyTorch", f"{unit}/s",
              "RSS over base, MB"))
    for threads, sides in sorted(runs.items()):
        tried = json.loads((folder / f"settings-{threads}.json").read_text())
        for name, speed in tried.items():
            if name in sides:
                values = (text(median(sides[name], "speed")),
                          text(median(sides[name], "over"), 1e6))
            elif isinstance(speed, str):
                values = "-", speed
            else:
                values = text(speed), "a few steps only"
            print(row(threads, name, *values))
    print()
    for threads, sides in sorted(runs.items()):
        # One line, unless the rounds differ.
        for peer in dict.fromkeys(f"PyTorch {r['torch']}: {r['setting']}"
                                  for r in sides[fastest(sides)]):
            print(peer)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--warmup-steps", type=int, required=True)
    parser.add_argument("--model", required=True, help="ours, in words")
    parser.add_argument("--unit", default="images", help="of the batch")
    args = parser.parse_args()

    runs = read_runs(args.folder, args.batch, args.warmup_steps, args.unit)
    print_table(runs, args.batch, args.model, args.unit)
    print()
    print_peer(runs, args.folder, args.unit)
    print("CPU:", cpu(pathlib.Path("/proc/cpuinfo").read_text()))
    print()
    for threads, sides in sorted(runs.items()):
        speeds = [median(sides[s], "speed") for s in ("thimble", fastest(sides))]
        print(f"{args.unit}/s, Thimble / PyTorch, {threads} thread(s):",
              ratio(*speeds))


if __name__ == "__main__":
    main()
