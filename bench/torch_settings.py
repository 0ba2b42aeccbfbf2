#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which of PyTorch's settings can be the fastest here, for bench/compare-pytorch.

A setting is a name such as bf16+channels_last+compiled. Each is tried for a few
steps by a script such as bench/torch_wrn.py, in a process of its own; those that come close to
the fastest are printed, one per line, to be measured properly. Options that are
not listed below go to it.
"""
import argparse
import itertools
import json
import pathlib
import subprocess
import sys

PRECISIONS = {
    "f32": "f32",
    "bf16": "bf16 autocast",
    # Tensors stay f32; convolutions and products may round their inputs.
    "f32-via-bf16": "f32 with products in bf16",
}
LAYOUTS = ("channels_last", "contiguous")
FOLDER = pathlib.Path(__file__).resolve().parent


def name_of(precision, layout, compiled):
    return "+".join([precision, layout] + (["compiled"] if compiled else []))


# What was the fastest on the CPUs seen so far comes first: a slow setting is
# then given up early.
ALL = [name_of(precision, layout, compiled) for compiled, layout, precision in
       itertools.product((False, True), LAYOUTS, PRECISIONS)]


def parse(name):
    """(precision, layout, compiled) of a setting's name."""
    if name not in ALL:
        raise ValueError(f"no setting '{name}'; there are {', '.join(ALL)}")
    precision, layout, *rest = name.split("+")
    return precision, layout, bool(rest)


def close_to_best(seconds, share):
    """Of {name: seconds per step, or None}, the names whose speed is at least
    `share` of the fastest one's, the fastest first."""
    known = {name: s for name, s in seconds.items() if s is not None}
    limit = min(known.values(), default=0) / share
    return sorted((name for name, s in known.items() if s <= limit),
                  key=known.get)


def probe(script, name, options, stop_above):
    """Seconds per step, or None where the setting does not work here, and why."""
    command = [sys.executable, str(script), "--setting", name,
               *options]
    if stop_above is not None:
        command += ["--stop-above", str(stop_above)]
    try:
        done = subprocess.run(command, capture_output=True, text=True,
                              timeout=900)
    except subprocess.TimeoutExpired:
        return None, "took more than 15 minutes"
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        return None, lines[-1]
    return json.loads(done.stdout)["seconds_per_step"], ""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--among", default=",".join(ALL), metavar="LIST",
                        help="the settings to try (default: all)")
    parser.add_argument("--share", type=float, default=0.7,
                        help="of the fastest's speed, that a setting must "
                        "reach to be kept (default 0.7)")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--script", type=pathlib.Path,
                        default=FOLDER / "torch_wrn.py")
    parser.add_argument("--unit", default="images", help="of the batch")
    parser.add_argument("--out", type=pathlib.Path, required=True,
                        help="where to write {name: speed or a message}")
    args, options = parser.parse_known_args()
    options += ["--batch", str(args.batch)]
    seconds, found = {}, {}
    for name in args.among.split(","):
        try:
            parse(name)
        except ValueError as error:
            parser.error(str(error))
        best = min((s for s in seconds.values() if s is not None), default=None)
        # A hopeless one is ended early, one that is merely slow is not.
        seconds[name], why = probe(args.script, name, options,
                                   best and 2 * best / args.share)
        found[name] = why if seconds[name] is None else (
            args.batch / seconds[name])
        print(f"   {name:<34}", why or f"{found[name]:.1f} {args.unit}/s",
              file=sys.stderr)
    args.out.write_text(json.dumps(found) + "\n")
    kept = close_to_best(seconds, args.share)
    if not kept:
        sys.exit("torch_settings: PyTorch works in none of its settings here")
    print("\n".join(kept))


if __name__ == "__main__":
    main()
