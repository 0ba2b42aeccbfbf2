# SPDX-License-Identifier: Apache-2.0
"""Compares what scripts/plot-log draws of sparse weights with the log.

usage: plot_log.py THIMBLE PLOT_LOG
Exits 1 and says what differs.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

SVG = "{http://www.w3.org/2000/svg}"
RUN = "train mlp --data synthetic --batch 20 --steps 9 --threads 1 --json --log".split()
SPARSE = "--nonzero 0.2 --sparsify *.weight --rewire-every 2 --prune 0.3".split()


def drawn(thimble, plot, log, *options):
    """The events of a run, and the lines of sparse weights in its picture."""
    subprocess.run([thimble, *RUN, log, *options], check=True, capture_output=True)
    svg = subprocess.run([plot, log], check=True, capture_output=True, text=True).stdout
    events = [json.loads(line) for line in
              pathlib.Path(log).read_text(encoding="utf-8").splitlines()]
    lines = [line for line in ElementTree.fromstring(svg).iter(f"{SVG}polyline")
             if line.get("class") == "sparse"]
    return events, lines


def differences(thimble, plot, folder):
    events, lines = drawn(thimble, plot, f"{folder}/log", *SPARSE)
    first = events[0]["plan"]["sparse"]["weights"]
    rewired = [event for event in events if event["event"] == "rewire"]
    if len(rewired) < 3:
        yield f"the run was rewired {len(rewired)} times"
    expected = [f"{name}: {kept} to {rewired[-1]['kept'][m]}"
                for m, (name, kept) in enumerate(first.items())]
    titles = [line.find(f"{SVG}title").text for line in lines]
    if titles != expected:
        yield f"{titles} instead of {expected}"
    for line in lines:
        # Two corners for each rewiring, and both ends.
        corners = line.get("points").split()
        if len(corners) != 2 * len(rewired) + 2:
            yield f"{len(corners)} corners for {len(rewired)} rewirings"
    if not any(len({corner.split(",")[1] for corner in line.get("points").split()}) > 1
               for line in lines):
        yield "no line rises or falls"
    if drawn(thimble, plot, f"{folder}/dense")[1]:
        yield "a dense run has sparse weights"


def main(thimble, plot):
    with tempfile.TemporaryDirectory() as folder:
        wrong = list(differences(thimble, plot, folder))
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


sys.exit(main(*sys.argv[1:]))
