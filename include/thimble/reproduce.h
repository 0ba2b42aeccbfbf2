// SPDX-License-Identifier: Apache-2.0
//
// Figures and tables of the two papers that Thimble builds on, beside ours:
// what the papers print, what their rule counts for our networks, and what our
// plans really allocate. Nothing is trained. The papers' numbers are constants;
// ours are computed at each call.
// Pure functions, safe from every thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "thimble/status.h"

namespace thimble {

struct ReproduceOptions {
  // Smaller networks than the paper's, where planning those takes long.
  bool quick = false;
  // Leave out what only training can tell. Tables with accuracies need it.
  bool memory_only = false;
  int threads = 2;  // workspace is planned for each
  // Told what is planned next; may be empty.
  std::function<void(const std::string&)> progress;
};

struct ReproductionColumn {
  std::string head;      // with its unit
  int decimals = 2;      // in text; CSV has six, for MB that is every byte
  bool is_drawn = true;  // as bars, where the drawing has bars
};

struct ReproductionRow {
  std::string label;
  // One per column; none where the paper prints nothing or nothing can be
  // computed. Notes say why.
  std::vector<std::optional<double>> cells;
  std::vector<size_t> notes;  // indices into Reproduction::notes
};

// A line of a drawing with two axes.
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
  // Without lines, the drawing has a group of bars for each row.
  std::string x_axis, y_axis;
  std::vector<ReproductionLine> lines;
};

struct ReproductionName {
  std::string_view name;
  std::string_view what;
};
std::vector<ReproductionName> ReproductionNames();

// Unknown names are refused with the list.
Result<Reproduction> Reproduce(const std::string& name,
                               const ReproduceOptions& options);

// A table with its notes below.
std::string ReproductionText(const Reproduction& reproduction);
// A line of heads, then one per row; the notes' numbers in the last field.
std::string ReproductionCsv(const Reproduction& reproduction);
// One self-contained SVG document.
std::string ReproductionSvg(const Reproduction& reproduction);
// The same into a file, whole or not at all. A name that stands for a link, a
// folder or a device is refused.
Status WriteReproductionSvg(const Reproduction& reproduction,
                            const std::string& path);

}  // namespace thimble
