# SPDX-License-Identifier: Apache-2.0
"""Reads sparse weights as docs/reference/files.md says, and compares them with
what `thimble export` writes.

usage: sparse_file.py THIMBLE PAGE
Exits 1 and names the weights that differ.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

SETTINGS = (["--sparse-index", "packed"],
            ["--sparse-index", "bitmap", "--precision", "f16"],
            ["--sparse-index", "packed", "--pattern", "2x4", "--precision", "bf16"],
            ["--sparse-index", "bitmap", "--pattern", "4x2"])


def differences(tool, page, folder, settings):
    run, dense = folder / "run", folder / "dense"
    subprocess.run([tool, "train", "cnn", "--data", "synthetic", "--steps", "3", "--nonzero",
                    "0.2", "--rewire-every", "1", "--batch", "16", "--out", run, "--overwrite",
                    *settings], check=True, capture_output=True)
    subprocess.run([tool, "export", run, "--dense", dense, "--overwrite"],
                   check=True, capture_output=True)
    code = {}
    exec(re.search(r"```python\n(.*?)```", page, re.S)[1], code)
    exported = code["read"](dense)[1]
    weights = dict(code["dense_weights"](run / "weights.safetensors"))
    if len(weights) != 3:
        yield f"{len(weights)} weights instead of 3"
    for name, weight in weights.items():
        if weight != exported[name][2] or not any(weight):
            yield f"{' '.join(settings)}: {name} is another"


def main(tool, page):
    text = pathlib.Path(page).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        wrong = [line for settings in SETTINGS
                 for line in differences(tool, text, pathlib.Path(folder), settings)]
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


sys.exit(main(*sys.argv[1:]))
