#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes random sentences as `thimble data prepare` would: the vocabularies and
lengths of bench/torch_dynamic_conv.py, for bench/compare-pytorch.

usage: synthetic_text.py FOLDER PAIRS
"""
import hashlib
import pathlib
import random
import struct
import sys

LENGTH = 25
VOCABULARIES = (8848, 6632)
END, FIRST_WORD = 2, 4


def main():
    folder, pairs = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    body = b""
    for line in range(pairs):
        tokens = []
        for vocabulary in VOCABULARIES:
            tokens += [draw.randrange(FIRST_WORD, vocabulary)
                       for _ in range(LENGTH - 1)] + [END]
        body += struct.pack("<HHI", LENGTH, LENGTH, line)
        body += struct.pack(f"<{len(tokens)}H", *tokens)
    # docs/reference/files.md
    head = b"THTK" + struct.pack(
        "<IQQQIIII", 1, pairs, pairs * LENGTH, pairs * LENGTH, LENGTH, LENGTH,
        *VOCABULARIES) + hashlib.sha256(body).digest()
    (folder / "train.tokens").write_bytes(head.ljust(128, b"\0") + body)
    (folder / "codes").write_text("#version: 0.2\n")
    for side, vocabulary in zip(("source", "target"), VOCABULARIES):
        (folder / f"{side}.dict").write_text("".join(
            f"word{token} 1\n" for token in range(FIRST_WORD, vocabulary)))


if __name__ == "__main__":
    main()
