// SPDX-License-Identifier: Apache-2.0
//
// The pictures on a plan's page: live bytes over time, and where every buffer
// lies. Functions of the plan alone; the writer belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "report/page_writer.h"
#include "thimble/plan.h"

namespace thimble::report {

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

Canvas CanvasOf(const Plan& plan);

struct PhaseSpan {
  Phase phase;
  Interval ops;
};

std::vector<PhaseSpan> PhasesOf(const Plan& plan);

// The times at which the forward pass is repeated, as runs.
std::vector<Interval> RecomputationOf(const Plan& plan);

// In percent; 0 of nothing.
double Percent(double part, double whole);

// Both pictures, with their scales and phases and what to do with them.
void AddChart(PageWriter& page, const Plan& plan, const Canvas& canvas);

}  // namespace thimble::report
