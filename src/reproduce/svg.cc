// SPDX-License-Identifier: Apache-2.0
//
// A reproduction as a drawing: lines over two axes, or groups of bars.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "report/markup.h"
#include "report/output_file.h"
#include "thimble/reproduce.h"

namespace thimble {
namespace {

constexpr const char* kColours[] = {"#4c72b0", "#dd8452", "#55a868", "#c44e52",
                                    "#8172b3", "#937860", "#da8bc3"};
constexpr double kWidth = 900;
constexpr double kTop = 50;         // below the title
constexpr double kLineHeight = 18;  // of text, and of a bar
constexpr double kCharacter = 7;    // about the width of one

const char* Colour(size_t series) {
  return kColours[series % std::size(kColours)];
}

std::string Label(double x, double y, const char* anchor,
                  const std::string& text) {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y,
      anchor, report::Escaped(text));
}

std::string Rule(double x1, double y1, double x2, double y2) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" "
      "stroke=\"#ccc\"/>\n",
      x1, y1, x2, y2);
}

std::string Document(double height, const std::string& title,
                     const std::string& body) {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" "
             "height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
             "font-family=\"sans-serif\" font-size=\"12\">\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
             kWidth, height) +
         Label(10, 24, "start", title) + body + "</svg>\n";
}

std::string Legend(double y, std::span<const std::string> names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    const double at = y + kLineHeight * static_cast<double>(i);
    text += fmt::format(
        "<rect x=\"20\" y=\"{:.1f}\" width=\"12\" height=\"12\" "
        "fill=\"{}\"/>\n",
        at - 10, Colour(i));
    text += Label(40, at, "start", names[i]);
  }
  return text;
}

// Linear between the ends of the data and those of the picture.
struct Axis {
  double least = 0, most = 1;  // data
  double from = 0, to = 1;     // picture
  double At(double value) const {
    return from + (value - least) / (most - least) * (to - from);
  }
  // 1, 2 or 5 times a power of ten, for four to ten ticks.
  double Step() const {
    const double power = std::pow(10, std::floor(std::log10(most - least)));
    for (double step : {0.1, 0.2, 0.5}) {
      if ((most - least) / (step * power) <= 10) return step * power;
    }
    return power;
  }
};

std::string Ticks(const Axis& x, const Axis& y) {
  std::string text;
  const auto first = [](const Axis& a) {
    // A sum with zero is never −0.
    return std::ceil(a.least / a.Step() - 1e-9) * a.Step() + 0.0;
  };
  for (double v = first(x); v <= x.most; v += x.Step()) {
    text += Rule(x.At(v), y.from, x.At(v), y.to);
    text += Label(x.At(v), y.from + kLineHeight, "middle",
                  fmt::format("{:.4g}", v));
  }
  for (double v = first(y); v <= y.most; v += y.Step()) {
    text += Rule(x.from, y.At(v), x.to, y.At(v));
    text += Label(x.from - 8, y.At(v) + 4, "end", fmt::format("{:.4g}", v));
  }
  return text;
}

// Grows the axis to `value`.
void Include(Axis& axis, double value, bool& is_first) {
  axis.least = is_first ? value : std::min(axis.least, value);
  axis.most = is_first ? value : std::max(axis.most, value);
  is_first = false;
}

std::string LinesSvg(const Reproduction& r) {
  Axis x{.from = 80, .to = kWidth - 30};
  Axis y{.from = 430, .to = kTop};  // up the page
  bool is_first_x = true;
  bool is_first_y = true;
  for (const ReproductionLine& line : r.lines) {
    for (const auto& [px, py] : line.points) {
      Include(x, px, is_first_x);
      Include(y, py, is_first_y);
    }
  }
  // Bytes start at zero, ratios at one; some room above.
  x.least = 0;
  y.least = y.least >= 1 && y.most < 10 ? 1 : 0;
  x.most *= 1.05;
  y.most += std::max(0.05 * (y.most - y.least), 1e-3);
  std::string body = Ticks(x, y);
  std::vector<std::string> names;
  for (size_t i = 0; i < r.lines.size(); ++i) {
    std::string path;
    for (const auto& [px, py] : r.lines[i].points) {
      path += fmt::format("{:.1f},{:.1f} ", x.At(px), y.At(py));
      body += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/>\n",
          x.At(px), y.At(py), Colour(i));
    }
    if (r.lines[i].is_joined) {
      body +=
          fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\"/>\n",
                      path, Colour(i));
    }
    names.push_back(r.lines[i].name);
  }
  body += Label(kWidth / 2, y.from + 2 * kLineHeight, "middle", r.x_axis);
  body += Label(10, kTop - 8, "start", r.y_axis);
  const double legend = y.from + 4 * kLineHeight;
  body += Legend(legend, names);
  return Document(legend + kLineHeight * static_cast<double>(names.size()),
                  r.title, body);
}

std::string BarsSvg(const Reproduction& r) {
  std::vector<size_t> drawn;
  std::vector<std::string> names;
  for (size_t c = 0; c < r.columns.size(); ++c) {
    if (!r.columns[c].is_drawn) continue;
    drawn.push_back(c);
    names.push_back(r.columns[c].head);
  }
  size_t longest = 0;
  double most = 0;
  for (const ReproductionRow& row : r.rows) {
    longest = std::max(longest, row.label.size());
    for (size_t c : drawn) most = std::max(most, row.cells[c].value_or(0));
  }
  const Axis x{.most = std::max(most, 1e-9),
               .from = 20 + kCharacter * static_cast<double>(longest),
               .to = kWidth - 80};
  std::string body;
  double y = kTop;
  for (const ReproductionRow& row : r.rows) {
    body += Label(x.from - 8, y + 13, "end", row.label);
    for (size_t i = 0; i < drawn.size(); ++i) {
      const auto& cell = row.cells[drawn[i]];
      body += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"14\" "
          "fill=\"{}\"/>\n",
          x.from, y + 2, x.At(cell.value_or(0)) - x.from, Colour(i));
      body += Label(x.At(cell.value_or(0)) + 4, y + 13, "start",
                    CellText(r.columns[drawn[i]], cell));
      y += kLineHeight;
    }
    y += kLineHeight / 2;
  }
  body += Legend(y + kLineHeight, names);
  return Document(y + kLineHeight * static_cast<double>(names.size() + 1),
                  r.title, body);
}

}  // namespace

std::string ReproductionSvg(const Reproduction& reproduction) {
  return reproduction.lines.empty() ? BarsSvg(reproduction)
                                    : LinesSvg(reproduction);
}

Status WriteReproductionSvg(const Reproduction& reproduction,
                            const std::string& path) {
  auto file = report::CreateOutputFile(path);
  if (!file.ok()) return file.status();
  const std::string svg = ReproductionSvg(reproduction);
  Status status = file->Write(std::as_bytes(std::span(svg)));
  return status.ok() ? file->Commit() : status;
}

}  // namespace thimble
