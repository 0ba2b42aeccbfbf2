// SPDX-License-Identifier: Apache-2.0
//
// A plan as one self-contained page. It is written as it is made: a plan of
// many thousand buffers takes no more memory here than a small one.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "report/html_page.h"
#include "report/markup.h"
#include "report/output_file.h"
#include "report/plan_report.h"
#include "thimble/report.h"
#include "thimble/size.h"

namespace thimble {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLargestAtPeak = 20;  // rows of the table of buffers

// Appends to a file by pieces. The first error is kept and given by Finish.
class PageWriter {
 public:
  explicit PageWriter(AtomicFileWriter file) : file_(std::move(file)) {}

  template <typename... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format,
                   std::forward<Args>(args)...);
    if (text_.size() >= kPiece) Flush();
  }

  Status Finish() {
    Flush();
    TH_RETURN_IF_ERROR(status_);
    return file_.Commit();
  }

 private:
  static constexpr size_t kPiece = size_t{64} * 1024;

  void Flush() {
    if (status_.ok()) {
      status_ = file_.Write(std::as_bytes(std::span(text_)));
    }
    text_.clear();
  }

  AtomicFileWriter file_;
  std::string text_;
  Status status_ = Status::Ok();
};

// A string of a <script>, where nothing may look like a tag.
std::string ScriptString(const std::string& text) {
  const std::string json = Json(text).dump(-1, ' ', /*ensure_ascii=*/true,
                                           Json::error_handler_t::replace);
  std::string escaped;
  for (const char c : json) {
    if (c == '<' || c == '>' || c == '&') {
      escaped += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      escaped += c;
    }
  }
  return escaped;
}

// Where the pictures' figures come from.
struct Canvas {
  uint32_t ops;  // width
  // Bytes per unit of height: a power of two, so that a coordinate times the
  // unit is the exact number of bytes, and large enough that browsers, which
  // lay out in 32 bits with 6 of them for fractions, hold the tallest arena.
  uint64_t unit;
  double height;

  double Units(size_t bytes) const {
    return static_cast<double>(bytes) / static_cast<double>(unit);
  }
};

Canvas CanvasOf(const Plan& plan) {
  constexpr uint64_t kTallest = uint64_t{1} << 24;
  Canvas canvas{static_cast<uint32_t>(plan.schedule().size()), 64, 0.0};
  while (plan.arena_bytes() / canvas.unit > kTallest) canvas.unit *= 2;
  canvas.height = canvas.Units(plan.arena_bytes());
  return canvas;
}

struct PhaseSpan {
  Phase phase;
  Interval ops;
};

std::vector<PhaseSpan> PhasesOf(const Plan& plan) {
  std::vector<PhaseSpan> phases;
  for (uint32_t t = 0; t < plan.schedule().size(); ++t) {
    const Phase phase = plan.schedule()[t].phase;
    if (phases.empty() || phases.back().phase != phase) {
      phases.push_back({phase, {t, t}});
    }
    phases.back().ops.end = t + 1;
  }
  return phases;
}

// The times at which the forward pass is repeated, as runs.
std::vector<Interval> RecomputationOf(const Plan& plan) {
  std::vector<Interval> runs;
  for (uint32_t t = 0; t < plan.schedule().size(); ++t) {
    if (!plan.schedule()[t].recompute) continue;
    if (runs.empty() || runs.back().end != t) runs.push_back({t, t});
    runs.back().end = t + 1;
  }
  return runs;
}

double Percent(double part, double whole) {
  return whole > 0.0 ? 100.0 * part / whole : 0.0;
}

double PercentAtPeak(const Plan& plan, size_t bytes) {
  return Percent(static_cast<double>(bytes),
                 static_cast<double>(plan.lower_bound()));
}

// "1,456,858".
std::string Grouped(uint64_t number) {
  std::string text = fmt::format("{}", number);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

std::string WithExactBytes(size_t bytes) {
  return fmt::format("{} ({} bytes)", FormatBytesUp(bytes), Grouped(bytes));
}

void AddHead(PageWriter& page, const Plan& plan) {
  // The policy holds the page to its promise: it loads nothing.
  page.Add(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n"
      "<meta charset=\"utf-8\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
      "'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width\"/>\n"
      "<title>Plan of {}</title>\n<style>{}</style>\n</head>\n<body>\n"
      "<h1>Plan of {}</h1>\n",
      report::Escaped(plan.model()), report::kPageStyle,
      report::Escaped(plan.model()));
}

void AddFigure(PageWriter& page, const char* term, std::string_view text) {
  page.Add("<div><dt>{}</dt><dd>{}</dd></div>\n", term, report::Escaped(text));
}

// The same figures as --json, so that neither can tell another story.
void AddFigures(PageWriter& page, const Plan& plan,
                std::optional<uint64_t> budget) {
  const Json json = Json::parse(PlanJson(plan, budget));
  const auto text = [&](const char* key) {
    return json[key].is_string() ? json[key].get<std::string>()
                                 : json[key].dump();
  };
  const double gap = Percent(static_cast<double>(plan.arena_bytes()),
                             static_cast<double>(plan.lower_bound())) -
                     100.0;
  page.Add("<dl id=\"figures\">\n");
  AddFigure(page, "arena (all that is allocated)",
            WithExactBytes(plan.arena_bytes()));
  AddFigure(page, "lower bound (most live)",
            WithExactBytes(plan.lower_bound()));
  AddFigure(page, "arena over the bound", fmt::format("{:.2f}%", gap));
  AddFigure(page, "peak at op", plan.peak_op().name);
  if (budget.has_value()) {
    AddFigure(page, "budget",
              fmt::format("{} ({})", FormatBytes(*budget),
                          json["fits"].get<bool>() ? "kept" : "exceeded"));
  }
  AddFigure(page, "parameters", Grouped(json["parameters"].get<uint64_t>()));
  AddFigure(page, "batch, microbatch",
            fmt::format("{}, {}", text("batch"), text("microbatch")));
  AddFigure(page, "precision", text("precision"));
  AddFigure(page, "checkpoint", text("checkpoint"));
  AddFigure(page, "threads", text("threads"));
  AddFigure(page, "forward and backward", report::FlopsText(plan));
  AddFigure(page, "FLOPs over those without recomputation",
            fmt::format("{:.3f}", json["flops"]["ratio"].get<double>()));
  AddFigure(
      page, "ops, buffers",
      fmt::format("{}, {}", plan.schedule().size(), plan.buffers().size()));
  page.Add("</dl>\n");
}

// Labels from the arena's top down to address 0.
void AddScale(PageWriter& page, const char* which, const Plan& plan,
              size_t steps) {
  page.Add("<div class=\"scale {}\" aria-hidden=\"true\">", which);
  for (size_t i = steps + 1; i-- > 0;) {
    page.Add("<span>{}</span>", FormatBytesUp(plan.arena_bytes() * i / steps));
  }
  page.Add("</div>\n");
}

// Opens a picture of the arena's height over time; addresses grow upwards. The
// group's coordinates are the plan's own: time, and bytes in units.
void AddPictureStart(PageWriter& page, const char* id, const Canvas& canvas,
                     const std::string& label) {
  page.Add(
      "<svg id=\"{}\" viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" "
      "role=\"img\" aria-label=\"{}\">\n"
      "<g transform=\"matrix(1 0 0 -1 0 {})\">\n",
      id, canvas.ops, canvas.height, report::Escaped(label), canvas.height);
}

void AddUpright(PageWriter& page, const char* kind, double x,
                const Canvas& canvas) {
  page.Add("<line class=\"{}\" x1=\"{}\" x2=\"{}\" y1=\"0\" y2=\"{}\"/>\n",
           kind, x, x, canvas.height);
}

void AddPictureEnd(PageWriter& page, const Plan& plan, const Canvas& canvas) {
  for (const PhaseSpan& p : PhasesOf(plan)) {
    AddUpright(page, "phase", p.ops.begin, canvas);
  }
  AddUpright(page, "cursor", plan.peak_time() + 0.5, canvas);
  AddUpright(page, "peak", plan.peak_time() + 0.5, canvas);
  page.Add("</g>\n</svg>\n");
}

void AddCurve(PageWriter& page, const Plan& plan, const Canvas& canvas) {
  std::vector<int64_t> change(canvas.ops + 1, 0);
  for (const Buffer& b : plan.buffers()) {
    change[b.live.begin] += static_cast<int64_t>(b.bytes);
    change[b.live.end] -= static_cast<int64_t>(b.bytes);
  }
  page.Add("<div class=\"box curve\">\n");
  AddPictureStart(page, "curve", canvas, "Live bytes over time");
  page.Add("<path id=\"again\" d=\"");
  for (const Interval& run : RecomputationOf(plan)) {
    page.Add("M{} 0H{}V{}H{}Z", run.begin, run.end, canvas.height, run.begin);
  }
  page.Add("\"/>\n<path id=\"live\" d=\"M0 0");
  int64_t live = 0;
  for (uint32_t t = 0; t < canvas.ops; ++t) {
    if (change[t] == 0) continue;
    live += change[t];
    page.Add("H{}V{}", t, canvas.Units(static_cast<size_t>(live)));
  }
  page.Add("H{}V0Z\"/>\n", canvas.ops);
  AddPictureEnd(page, plan, canvas);
  const double at = Percent(plan.peak_time() + 0.5, canvas.ops);
  // On the side that has room for it.
  page.Add("<span id=\"peak-label\" style=\"{}: {:.3f}%\">peak {} at op {}",
           at < 50.0 ? "left" : "right", at < 50.0 ? at : 100.0 - at,
           FormatBytesUp(plan.lower_bound()),
           report::Escaped(plan.peak_op().name));
  page.Add("</span>\n</div>\n");
}

void AddBuffers(PageWriter& page, const Plan& plan, const Canvas& canvas) {
  AddPictureStart(page, "picture", canvas,
                  "Buffers of the arena: addresses upwards over time");
  // A line around a buffer that is itself no taller than a line would make it
  // look larger than it is, and a thousand of them as large as the arena.
  const size_t outlined = plan.arena_bytes() / 200;
  for (size_t i = 0; i < kRoles; ++i) {
    const Role role = static_cast<Role>(i);
    page.Add("<g class=\"{}\" data-role=\"{}\">\n", RoleName(role),
             RoleName(role));
    for (const Buffer& b : plan.buffers()) {
      if (b.role != role) continue;
      page.Add(
          "<rect{} x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\">"
          "<title>{}</title></rect>\n",
          b.bytes >= outlined ? " class=\"tall\"" : "", b.live.begin,
          canvas.Units(b.offset), b.live.end - b.live.begin,
          canvas.Units(b.bytes), report::Escaped(b.name));
    }
    page.Add("</g>\n");
  }
  AddPictureEnd(page, plan, canvas);
}

void AddPhases(PageWriter& page, const Plan& plan, const Canvas& canvas) {
  page.Add("<div class=\"phases\">");
  for (const PhaseSpan& p : PhasesOf(plan)) {
    page.Add("<span style=\"left: {:.3f}%; width: {:.3f}%\">{}</span>",
             Percent(p.ops.begin, canvas.ops),
             Percent(p.ops.end - p.ops.begin, canvas.ops), PhaseName(p.phase));
  }
  page.Add("</div>\n");
}

void AddChart(PageWriter& page, const Plan& plan, const Canvas& canvas) {
  page.Add(
      "<h2>Live bytes, and where they lie</h2>\n"
      "<p>Time runs to the right, op by op; addresses run upwards. Point at a "
      "buffer, or focus the picture: <kbd>←</kbd> <kbd>→</kbd> move in time "
      "(with <kbd>Shift</kbd> by ten), <kbd>↑</kbd> <kbd>↓</kbd> from buffer "
      "to buffer, <kbd>Home</kbd> <kbd>End</kbd> to the ends, <kbd>p</kbd> to "
      "the peak. Stripes in the curve: forward ops that run again. "
      "<label>Stretch time <input id=\"zoom\" type=\"range\" "
      "min=\"1\" max=\"100\" value=\"1\"/></label></p>\n"
      "<div class=\"chart\">\n<div>\n");
  AddScale(page, "curve", plan, 2);
  AddScale(page, "arena", plan, 4);
  page.Add(
      "</div>\n<div id=\"plots\" class=\"plots\" tabindex=\"0\" role=\"group\" "
      "aria-label=\"Buffers over time; use the arrow keys\" "
      "aria-describedby=\"detail\">\n<div class=\"inner\">\n");
  AddCurve(page, plan, canvas);
  AddBuffers(page, plan, canvas);
  AddPhases(page, plan, canvas);
  page.Add(
      "</div>\n</div>\n</div>\n<output id=\"detail\" "
      "aria-live=\"polite\"></output>\n");
}

// Also the legend, and what switches a role's buffers off in the picture.
void AddRoles(PageWriter& page, const Plan& plan) {
  std::array<size_t, kRoles> buffers{};
  for (const Buffer& b : plan.buffers()) ++buffers[static_cast<size_t>(b.role)];
  page.Add(
      "<div>\n<h2>By role, at the peak</h2>\n<table id=\"roles\">\n<tr>"
      "<th>role</th><th class=\"number\">bytes</th>"
      "<th class=\"number\">share</th>"
      "<th class=\"number\">buffers in all</th></tr>\n");
  for (size_t i = 0; i < kRoles; ++i) {
    const Role role = static_cast<Role>(i);
    const size_t bytes = plan.peak_bytes(role);
    page.Add(
        "<tr class=\"{0}\"><td><label><input type=\"checkbox\" "
        "checked=\"checked\" data-role=\"{0}\"/><span class=\"swatch\"></span>"
        "{0}</label></td><td class=\"number\">{1}</td>"
        "<td class=\"number\">{2:.1f}%</td><td class=\"number\">{3}</td>"
        "</tr>\n",
        RoleName(role), Grouped(bytes), PercentAtPeak(plan, bytes), buffers[i]);
  }
  page.Add(
      "<tr><th>all</th><td class=\"number\">{}</td><td class=\"number\">100.0%"
      "</td><td class=\"number\">{}</td></tr>\n</table>\n</div>\n",
      Grouped(plan.lower_bound()), plan.buffers().size());
}

void AddLargest(PageWriter& page, const Plan& plan) {
  const std::vector<const Buffer*> live = report::LiveAtPeak(plan);
  const size_t rows = std::min(kLargestAtPeak, live.size());
  page.Add(
      "<div>\n<h2>Largest at the peak ({} of {})</h2>\n<table id=\"largest\">\n"
      "<tr><th>buffer</th><th>role</th><th class=\"number\">bytes</th></tr>\n",
      rows, live.size());
  for (const Buffer* b : std::span(live).first(rows)) {
    page.Add(
        "<tr class=\"{0}\"><td>{1}</td><td><span class=\"swatch\"></span>{0}"
        "</td><td class=\"number\">{2}</td></tr>\n",
        RoleName(b->role), report::Escaped(b->name), Grouped(b->bytes));
  }
  page.Add("</table>\n</div>\n");
}

// What the script needs and the picture does not show.
void AddData(PageWriter& page, const Plan& plan, const Canvas& canvas) {
  page.Add(
      "<script id=\"plan\" type=\"application/json\">{{\"unit\":{},"
      "\"peak\":{},\"phases\":[",
      canvas.unit, plan.peak_time());
  const char* separator = "";
  for (const PhaseSpan& p : PhasesOf(plan)) {
    page.Add("{}[\"{}\",{},{}]", separator, PhaseName(p.phase), p.ops.begin,
             p.ops.end);
    separator = ",";
  }
  page.Add("],\"again\":[");
  separator = "";
  for (const Interval& run : RecomputationOf(plan)) {
    page.Add("{}[{},{}]", separator, run.begin, run.end);
    separator = ",";
  }
  page.Add("],\"ops\":[");
  separator = "\n";
  for (const ScheduledOp& s : plan.schedule()) {
    page.Add("{}{}", separator, ScriptString(plan.graph().op(s.op).name));
    separator = ",\n";
  }
  page.Add("]}}</script>\n");
}

}  // namespace

Status WritePlanHtml(const Plan& plan, std::optional<uint64_t> budget,
                     const std::string& path) {
  auto file = report::CreateOutputFile(path);
  if (!file.ok()) return file.status();
  PageWriter page(*std::move(file));
  const Canvas canvas = CanvasOf(plan);
  AddHead(page, plan);
  AddFigures(page, plan, budget);
  AddChart(page, plan, canvas);
  page.Add("<div class=\"tables\">\n");
  AddRoles(page, plan);
  AddLargest(page, plan);
  page.Add("</div>\n");
  AddData(page, plan, canvas);
  page.Add("<script>{}</script>\n</body>\n</html>\n", report::kPageScript);
  return page.Finish();
}

}  // namespace thimble
