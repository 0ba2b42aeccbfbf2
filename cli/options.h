// SPDX-License-Identifier: Apache-2.0
//
// Options that several commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "thimble/data.h"
#include "thimble/graph.h"
#include "thimble/plan.h"
#include "thimble/status.h"

namespace thimble::cli {

struct PlanFlags {
  std::string model;
  int64_t batch = 100;
  int64_t microbatch = 0;   // 0: the batch
  int64_t ghost_batch = 0;  // 0: none
  std::string precision = "f32";
  int threads = 0;  // 0: one per CPU
  std::string budget;
  std::string checkpoint;  // empty: auto with a budget, else none
  bool allow_microbatch = false;
  int64_t min_microbatch = 0;  // 0: the model's own
  OptimizerSpec optimizer{
      .momentum = 0.9f, .weight_decay = 5e-4f, .nesterov = true};
};

struct DataFlags {
  std::string data;
  std::string data_dir;
  int64_t validation = 0;  // images held out of training
};

// Checks of an option's text: empty, or what is wrong with it. An empty value
// is mostly a shell variable that is not set, and must not mean "not given".
std::string CheckNotEmpty(const std::string& text);
// Whole numbers from 0 on.
std::string CheckCount(const std::string& text);

void AddPlanFlags(CLI::App& app, PlanFlags& flags);
void AddThreadsFlag(CLI::App& app, int& threads);
void AddBudgetFlag(CLI::App& app, std::string& budget);
void AddDataFlags(CLI::App& app, DataFlags& flags, bool required);
void AddValidationFlag(CLI::App& app, DataFlags& flags);

int ThreadsOrDefault(int threads);

Result<std::unique_ptr<Dataset>> OpenData(const DataFlags& flags);

// For the data set's images, or those that the model is meant for without one.
Result<Model> MakeModel(const PlanFlags& flags, const Dataset* data);

PlanOptions MakePlanOptions(const PlanFlags& flags,
                            std::optional<uint64_t> budget);

// Empty text: no budget.
Result<std::optional<uint64_t>> ParseBudget(const std::string& text);

}  // namespace thimble::cli
