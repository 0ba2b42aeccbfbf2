// SPDX-License-Identifier: Apache-2.0
//
// A reproduction as a table for people, and as CSV and JSON for programs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

#include "report/json_object.h"
#include "thimble/reproduce.h"
#include "thimble/text.h"

namespace thimble {
namespace {

constexpr int kDecimals = 6;

std::string NoteMarks(const ReproductionRow& row, const char* between) {
  std::string text;
  for (size_t note : row.notes) {
    text += fmt::format("{}{}", text.empty() ? "" : between, note + 1);
  }
  return text;
}

// A field in quotes, which are doubled inside (RFC 4180).
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text)
    quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

// A JSON array of what `text` makes of each item.
template <typename T, typename Text>
std::string ArrayOf(std::span<const T> items, const Text& text) {
  std::string array;
  for (const T& item : items) {
    array += (array.empty() ? "" : ",") + std::string(text(item));
  }
  return "[" + array + "]";
}

// The grid of a table: heads first, then rows.
std::vector<std::vector<std::string>> TextGrid(const Reproduction& r) {
  std::vector<std::vector<std::string>> grid(1);
  grid[0].emplace_back();
  for (const ReproductionColumn& c : r.columns) grid[0].push_back(c.head);
  for (const ReproductionRow& row : r.rows) {
    std::string label = row.label;
    if (!row.notes.empty()) label += fmt::format(" [{}]", NoteMarks(row, ","));
    grid.push_back({label});
    for (size_t c = 0; c < row.cells.size(); ++c) {
      grid.back().push_back(CellText(r.columns[c], row.cells[c]));
    }
  }
  return grid;
}

}  // namespace

std::string CellText(const ReproductionColumn& column,
                     std::optional<double> cell) {
  if (!cell.has_value()) return "-";
  double number = *cell;
  if (column.rounds_up) {
    const double unit = std::pow(10.0, column.decimals);
    // A byte is more than this of a digit, and what doubles round is less.
    constexpr double kLess = 1e-7;
    number = std::max(0.0, std::ceil(number * unit - kLess) / unit);
  }
  return fmt::format("{:.{}f}", number, column.decimals);
}

std::string ReproductionText(const Reproduction& reproduction) {
  const auto grid = TextGrid(reproduction);
  std::vector<size_t> widths(grid[0].size(), 0);
  for (const auto& line : grid) {
    for (size_t c = 0; c < line.size(); ++c) {
      widths[c] = std::max(widths[c], line[c].size());
    }
  }
  std::string text = reproduction.title + "\n\n";
  for (const auto& line : grid) {
    text += fmt::format("  {:<{}}", line[0], widths[0]);
    for (size_t c = 1; c < line.size(); ++c) {
      text += fmt::format("  {:>{}}", line[c], widths[c]);
    }
    text += "\n";
  }
  if (!reproduction.notes.empty()) text += "\n";
  for (size_t i = 0; i < reproduction.notes.size(); ++i) {
    text += fmt::format("  [{}] {}\n", i + 1, reproduction.notes[i]);
  }
  return text;
}

std::string ReproductionCsv(const Reproduction& reproduction) {
  std::string text = "row";
  for (const ReproductionColumn& c : reproduction.columns) {
    text += "," + Quoted(c.head);
  }
  text += ",notes\n";
  for (const ReproductionRow& row : reproduction.rows) {
    text += Quoted(row.label);
    for (const auto& cell : row.cells) {
      text += "," + (cell.has_value() ? fmt::format("{:.{}f}", *cell, kDecimals)
                                      : "");
    }
    text += "," + Quoted(NoteMarks(row, " ")) + "\n";
  }
  return text;
}

std::string ReproductionJson(const Reproduction& reproduction) {
  using report::JsonObject;
  JsonObject json;
  json.Add("name", reproduction.name);
  json.Add("title", reproduction.title);
  json.AddRaw("columns", ArrayOf<ReproductionColumn>(
                             reproduction.columns,
                             [](const auto& c) { return JsonText(c.head); }));
  const auto number = [](const std::optional<double>& cell) {
    return cell.has_value() ? fmt::format("{:.{}f}", *cell, kDecimals)
                            : std::string("null");
  };
  json.AddRaw(
      "rows", ArrayOf<ReproductionRow>(reproduction.rows, [&](const auto& row) {
        JsonObject one;
        one.Add("label", row.label);
        one.AddRaw("cells", ArrayOf<std::optional<double>>(row.cells, number));
        one.AddRaw("notes", ArrayOf<size_t>(row.notes, [](size_t n) {
                     return std::to_string(n + 1);
                   }));
        return one.Text();
      }));
  json.AddRaw("notes",
              ArrayOf<std::string>(reproduction.notes, [](const auto& note) {
                return JsonText(note);
              }));
  return json.Text();
}

}  // namespace thimble
