// SPDX-License-Identifier: Apache-2.0
//
// Figures and tables of the two papers that Thimble builds on, with three kinds
// of numbers side by side: what the papers print, what their rule counts for
// our networks, and what our plans really allocate. Nothing is trained here;
// what only training can tell is asked of the caller. The papers' numbers are
// constants; ours are computed at each call. Pure functions but for that and
// the file that WriteReproductionSvg writes; safe from every thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "thimble/dtype.h"
#include "thimble/sparse_weights.h"
#include "thimble/status.h"

namespace thimble {

// A setting to train in, by SGD with Nesterov's momentum.
struct RunToMeasure {
  std::string model;
  int64_t batch = 0;
  int64_t microbatch = 0;
  DType dtype = DType::kF32;
  SparseWeights sparse;
  int threads = 1;
  std::string recompute;
  std::optional<uint64_t> budget;
};

struct MeasuredRun {
  // The most resident bytes of a process that plans and trains this and nothing
  // else, from its start to its end.
  int64_t rss_bytes = 0;
  double images_per_second = 0;
};

struct ReproduceOptions {
  // Smaller networks than the paper's, where planning those takes long.
  bool quick = false;
  // Leave out what only training can tell.
  bool memory_only = false;
  // Trains for a few steps in a process of its own. Must be given where a table
  // has something to measure, unless memory_only is set.
  std::function<Result<MeasuredRun>(const RunToMeasure&)> measure;
  int threads = 2;  // that scratch is planned for
  // Called with what is planned or measured next. May be empty.
  std::function<void(const std::string&)> progress;
};

struct ReproductionColumn {
  std::string head;      // with its unit
  int decimals = 2;      // in text. CSV has six: for MB that is every byte
  bool is_drawn = true;  // as bars, if the drawing has bars
  // In text and drawings, as arenas are everywhere: what is told is enough.
  bool rounds_up = false;
};

struct ReproductionRow {
  std::string label;
  // One per column. None if the paper prints no number there, or none can be
  // computed; a note says why.
  std::vector<std::optional<double>> cells;
  std::vector<size_t> notes;  // indices into Reproduction::notes
};

// A line in a drawing with two axes.
struct ReproductionLine {
  std::string name;
  std::vector<std::pair<double, double>> points;
  bool is_joined = true;  // false: marks alone
};

struct Reproduction {
  std::string name;
  std::string title;
  std::vector<ReproductionColumn> columns;
  std::vector<ReproductionRow> rows;
  std::vector<std::string> notes;
  // The drawing has these lines. If there are none, it has a group of bars for
  // each row.
  std::string x_axis, y_axis;
  std::vector<ReproductionLine> lines;
};

struct ReproductionName {
  std::string_view name;
  std::string_view what;
};
std::vector<ReproductionName> ReproductionNames();

// An unknown name is an error that lists the known ones.
Result<Reproduction> Reproduce(const std::string& name,
                               const ReproduceOptions& options);

// A number of this column as the table and the drawing have it.
std::string CellText(const ReproductionColumn& column,
                     std::optional<double> cell);

// A table with its notes below.
std::string ReproductionText(const Reproduction& reproduction);
// Comma-separated values: a line of heads, then a line per row. The last field
// has the numbers of the row's notes.
std::string ReproductionCsv(const Reproduction& reproduction);
// One object; a cell without a number is null.
std::string ReproductionJson(const Reproduction& reproduction);
// One SVG document that needs nothing else.
std::string ReproductionSvg(const Reproduction& reproduction);
// Writes the drawing into a file, whole or not at all. A name that stands for a
// link, a folder or a device is refused.
Status WriteReproductionSvg(const Reproduction& reproduction,
                            const std::string& path);

}  // namespace thimble
