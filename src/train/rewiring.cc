// SPDX-License-Identifier: Apache-2.0
#include "train/rewiring.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace thimble::train {
namespace {

constexpr double kPrunedFraction = 0.01377866;

// Both networks' parts are the same shares of a run, in 200ths.
struct Part {
  int64_t end;
  int64_t period;
};
constexpr std::array<Part, 4> kParts = {
    {{25, 100}, {80, 200}, {140, 400}, {190, 800}}};

// The period where `done` of `all` is over; 0 where nothing is rewired anymore.
int64_t Period(int64_t done, int64_t all, double frequency) {
  for (const Part& part : kParts) {
    if (200 * done >= part.end * all) continue;
    return std::max<int64_t>(
        1, std::llround(static_cast<double>(part.period) / frequency));
  }
  return 0;
}

struct Row {
  double density;
  RewiringScale scale;
};
constexpr std::array<Row, 6> kWrn = {{{0.05, {1, 0.25}},
                                      {0.1, {1, 0.5}},
                                      {0.2, {2, 1}},
                                      {0.3, {2, 0.5}},
                                      {0.4, {1, 2}},
                                      {0.5, {4, 0.5}}}};
constexpr std::array<Row, 6> kDct = {{{0.05, {0.5, 0.5}},
                                      {0.1, {1, 0.5}},
                                      {0.2, {2, 0.25}},
                                      {0.3, {4, 0.125}},
                                      {0.4, {4, 0.125}},
                                      {0.5, {4, 0.125}}}};

RewiringScale Nearest(std::span<const Row> rows, double density) {
  return std::ranges::min_element(
             rows, {},
             [&](const Row& row) { return std::abs(row.density - density); })
      ->scale;
}

}  // namespace

bool IsRewiringDue(const RewiringTimes& times, int64_t step,
                   const RunLength& run) {
  if (step == 0) return false;
  int64_t period = 0;
  switch (times.kind) {
    case RewiringTimes::Kind::kNever:
      break;
    case RewiringTimes::Kind::kWrn:
      period = Period(run.EpochOf(step), run.epochs(), times.frequency);
      break;
    case RewiringTimes::Kind::kDct:
      period = Period(step, run.steps, times.frequency);
      break;
    case RewiringTimes::Kind::kEvery:
      period = times.every;
      break;
  }
  return period > 0 && step % period == 0;
}

RewiringScale WrnRewiringScale(double density) {
  return Nearest(kWrn, density);
}

RewiringScale DctRewiringScale(double density) {
  return Nearest(kDct, density);
}

int64_t RewiringTarget(double fraction_scale, int64_t blocks) {
  return std::llround(kPrunedFraction * fraction_scale *
                      static_cast<double>(blocks));
}

}  // namespace thimble::train
