#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bench/compare-pytorch makes of its runs, without running PyTorch."""
import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import compare_table
import torch_settings

MB = 1_000_000


def peer_run(folder, threads, number, setting, seconds, over=100):
    (folder / f"pytorch-{threads}-{number}-{setting}.json").write_text(
        json.dumps({"torch": "2.15.0", "setting": "as " + setting,
                    "seconds_per_step": seconds, "rss_base_bytes": 500 * MB,
                    "rss_peak_bytes": (500 + over) * MB}))


def our_run(folder, threads, number, speed):
    name = folder / f"thimble-{threads}-{number}"
    name.with_suffix(".json").write_text(json.dumps(
        {"arena_bytes": 20 * MB, "rss_base_bytes": 3 * MB,
         "rss_peak_bytes": 24 * MB}))
    name.with_suffix(".jsonl").write_text("".join(
        json.dumps({"event": "step", "epoch": 0,
                    "images_per_second": speed}) + "\n" for _ in range(4)))


class Settings(unittest.TestCase):
    def test_those_near_the_fastest_are_kept_in_order_of_speed(self):
        seconds = {"slow": 1.5, "near": 1.4, "best": 1.0, "broken": None}
        self.assertEqual(torch_settings.close_to_best(seconds, 0.7),
                         ["best", "near"])

    def test_where_none_works_none_is_kept(self):
        self.assertEqual(torch_settings.close_to_best({"broken": None}, 0.7), [])

    def test_every_name_says_precision_layout_and_compiler(self):
        parsed = [torch_settings.parse(name) for name in torch_settings.ALL]
        self.assertEqual(len(set(parsed)), 3 * 2 * 2)
        self.assertEqual(
            torch_settings.parse("bf16+channels_last+compiled"),
            ("bf16", "channels_last", True))
        with self.assertRaisesRegex(ValueError, "no setting 'f8'"):
            torch_settings.parse("f8")


class Table(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for number, bf16 in ((1, 0.5), (2, 0.5), (10, 4.0)):
            our_run(self.folder, 2, number, 300)
            peer_run(self.folder, 2, number, "f32+channels_last", 1.0)
            peer_run(self.folder, 2, number, "bf16+channels_last", bf16, 60)
        (self.folder / "settings-2.json").write_text(json.dumps(
            {"f32+channels_last": 100, "bf16+channels_last": 200,
             "f32+contiguous": 41.5, "f32+contiguous+compiled": "no g++"}))
        self.runs = compare_table.read_runs(self.folder, 100, 1, "images")

    def test_the_best_median_is_compared_with_whatever_its_precision(self):
        self.assertEqual(compare_table.fastest(self.runs[2]),
                         "bf16+channels_last")

    def test_rounds_are_in_order_of_their_numbers(self):
        speeds = [r["speed"] for r in self.runs[2]["bf16+channels_last"]]
        self.assertEqual(speeds, [200, 200, 25])

    def test_it_prints_both_memories_and_each_setting(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            compare_table.print_table(self.runs, 100, "wrn-28-2 in bf16",
                                      "images")
            compare_table.print_peer(self.runs, self.folder, "images")
        for line in (r"wrn-28-2 in bf16; 100 images per step; medians of 3 round",
                     r"2  images/s +300\.0 +200\.0 +1\.500",
                     r"RSS over base, MB +21\.0 +60\.0 +0\.350",
                     r"base, MB +3\.0 +500\.0",
                     r"f32\+contiguous +41\.5 +a few steps only",
                     r"f32\+contiguous\+compiled +- +no g\+\+",
                     r"PyTorch 2\.15\.0: as bf16\+channels_last"):
            self.assertRegex(out.getvalue(), line)

    def test_it_names_the_cpu_and_its_instructions(self):
        text = "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu avx512f\n"
        self.assertEqual(
            compare_table.cpu(text),
            "Some CPU, avx512f: yes, avx512_bf16: no, amx_bf16: no")


if __name__ == "__main__":
    unittest.main()
