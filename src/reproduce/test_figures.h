// SPDX-License-Identifier: Apache-2.0
//
// For tests of figures and tables: they, and the plans that they are made of.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "reproduce/figures.h"
#include "thimble/model.h"
#include "thimble/plan.h"
#include "thimble/reproduce.h"

namespace thimble::reproduce {

inline Reproduction Quick(const std::string& name) {
  auto made = Reproduce(name, {.quick = true, .memory_only = true});
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? *made : Reproduction();
}

inline const ReproductionRow& RowOf(const Reproduction& r,
                                    const std::string& label) {
  for (const ReproductionRow& row : r.rows) {
    if (row.label == label) return row;
  }
  ADD_FAILURE() << "no row " << label;
  static const ReproductionRow none{
      {}, std::vector<std::optional<double>>(9), {}};
  return none;
}

// The cell as the paper would print it.
inline double Rounded(std::optional<double> cell, int decimals) {
  const double scale = std::pow(10, decimals);
  return cell.has_value() ? std::round(*cell * scale) / scale : -1;
}

inline size_t ArenaOf(const std::string& name,
                      const ModelOptions& model_options,
                      const PlanOptions& options) {
  auto model = BuildModel(name, model_options);
  EXPECT_TRUE(model.ok());
  auto plan = MakePlan(*model, options);
  EXPECT_TRUE(plan.ok());
  return plan->arena_bytes();
}

inline size_t WrnArena(const std::string& strategy, int64_t microbatch) {
  return ArenaOf("wrn-28-2",
                 {.batch = 100, .images = PresetOf("wrn-28-2").images},
                 {.optimizer = SohoniOptimizer(),
                  .threads = 2,
                  .microbatch = microbatch,
                  .recompute = strategy});
}

}  // namespace thimble::reproduce
