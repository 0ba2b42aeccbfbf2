// SPDX-License-Identifier: Apache-2.0
#include "report/plan_picture.h"

#include <string>

#include "planner/lives.h"
#include "report/markup.h"
#include "thimble/size.h"

namespace thimble::report {
namespace {

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
      id, canvas.ops, canvas.height, Escaped(label), canvas.height);
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
  planner::LiveBytesOverTime over_time(canvas.ops);
  for (const Buffer& b : plan.buffers()) over_time.Add(b.live, b.bytes);
  const std::vector<size_t> live = over_time.Sum();
  page.Add("<div class=\"box curve\">\n");
  AddPictureStart(page, "curve", canvas, "Live bytes over time");
  page.Add("<path id=\"again\" d=\"");
  for (const Interval& run : RecomputationOf(plan)) {
    page.Add("M{} 0H{}V{}H{}Z", run.begin, run.end, canvas.height, run.begin);
  }
  page.Add("\"/>\n<path id=\"live\" d=\"M0 0");
  size_t before = 0;
  for (uint32_t t = 0; t < canvas.ops; ++t) {
    if (live[t] == before) continue;
    page.Add("H{}V{}", t, canvas.Units(live[t]));
    before = live[t];
  }
  page.Add("H{}V0Z\"/>\n", canvas.ops);
  AddPictureEnd(page, plan, canvas);
  const double at = Percent(plan.peak_time() + 0.5, canvas.ops);
  // On the side that has room for it.
  page.Add("<span id=\"peak-label\" style=\"{}: {:.3f}%\">peak {} at op {}",
           at < 50.0 ? "left" : "right", at < 50.0 ? at : 100.0 - at,
           FormatBytesUp(plan.lower_bound()), Escaped(plan.peak_op().name));
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
          canvas.Units(b.bytes), Escaped(b.name));
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

}  // namespace

Canvas CanvasOf(const Plan& plan) {
  constexpr uint64_t kTallest = uint64_t{1} << 24;
  Canvas canvas{static_cast<uint32_t>(plan.schedule().size()), 64, 0.0};
  while (plan.arena_bytes() / canvas.unit > kTallest) canvas.unit *= 2;
  canvas.height = canvas.Units(plan.arena_bytes());
  return canvas;
}

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

}  // namespace thimble::report
