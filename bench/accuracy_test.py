# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import tempfile
import unittest

import accuracy_table


class TableTest(unittest.TestCase):
    def test_an_interval_is_students(self):
        # Mean 2, deviation 1, t of two degrees of freedom 4.303.
        mean, half = accuracy_table.interval([1.0, 2.0, 3.0])
        self.assertEqual(mean, 2.0)
        self.assertAlmostEqual(half, 4.303 / 3**0.5, places=6)
        self.assertEqual(accuracy_table.interval([1.5]), (1.5, None))

    def test_differences_are_paired_by_seed(self):
        base = {1: 70.0, 2: 72.0}
        cells = accuracy_table.row("f16", {2: 73.0, 1: 70.5, 3: 99.0}, base)
        self.assertEqual(cells[1:4], ["3", "80.83", "+0.75"])
        self.assertEqual(cells[4], "[-2.43, +3.93]")
        self.assertEqual(accuracy_table.row("f32", base, base)[3:], ["", ""])

    def test_a_setting_stands_beside_f32_trained_alike(self):
        runs = {"f16-no-gradients": {1: 61.0, 2: 62.0},
                "f32": {1: 64.0, 2: 64.0}}
        self.assertIsNone(accuracy_table.row_beside("f16-no-gradients", runs))
        runs["f32-plain-momentum"] = {1: 61.5, 2: 63.0}
        cells = accuracy_table.row_beside("f16-no-gradients", runs)
        self.assertEqual(cells[0],
                         "f16-no-gradients, minus f32-plain-momentum")
        self.assertEqual(cells[3], "-0.75")
        self.assertIsNone(accuracy_table.row_beside("f16-nearest", runs))

    def test_blocks_stand_beside_single_weights(self):
        runs = {"sparse-dsr-2x2": {1: 80.0, 2: 81.0},
                "sparse-dsr": {1: 79.0, 2: 81.0}, "sparse-fixed": {1: 1.0}}
        cells = accuracy_table.row_beside("sparse-dsr-2x2", runs)
        self.assertEqual(cells[0], "sparse-dsr-2x2, minus sparse-dsr")
        self.assertEqual(cells[3], "+0.50")

    def test_a_training_that_has_not_ended_does_not_count(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "f32-1.jsonl"
            self.assertIsNone(accuracy_table.summary(log))
            log.write_text(json.dumps({"event": "epoch"}) + "\n")
            self.assertIsNone(accuracy_table.summary(log))
            with log.open("a") as file:
                file.write(json.dumps({"event": "summary", "stopped": True,
                                       "best_test_accuracy": 0.5}) + "\n")
            self.assertIsNone(accuracy_table.summary(log))
            with log.open("a") as file:
                file.write(json.dumps({"event": "summary", "stopped": False,
                                       "best_test_accuracy": 0.625}) + "\n")
            self.assertEqual(
                accuracy_table.summary(log)["best_test_accuracy"], 0.625)

    def test_what_is_recorded_is_read_again(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "accuracy.jsonl"
            self.assertEqual(accuracy_table.recorded(file), {})
            summaries = {("f16", 2): {"best_test_accuracy": 0.5, "steps": 3,
                                      "images_per_second": 7},
                         ("f16", 1): {"best_test_accuracy": 0.25, "steps": 3}}
            accuracy_table.record(file, summaries)
            self.assertEqual(
                [json.loads(line) for line in file.read_text().splitlines()],
                [{"setting": "f16", "seed": 1, "best_test_accuracy": 0.25,
                  "steps": 3},
                 {"setting": "f16", "seed": 2, "best_test_accuracy": 0.5,
                  "steps": 3}])
            again = accuracy_table.recorded(file)
            self.assertEqual(again["f16", 2]["best_test_accuracy"], 0.5)


if __name__ == "__main__":
    unittest.main()
