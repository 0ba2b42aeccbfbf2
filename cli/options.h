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
#include "thimble/number.h"
#include "thimble/plan.h"
#include "thimble/status.h"
#include "thimble/text_data.h"
#include "thimble/translate.h"

namespace thimble::cli {

struct PlanFlags {
  std::string model;
  int64_t batch = 0;              // 0: the model's own, once all is parsed
  int64_t microbatch = 0;         // 0: the batch
  int64_t ghost_batch = 0;        // 0: none
  std::optional<double> dropout;  // unset: the model's own
  std::string precision;          // empty: f32, or what the budget may choose
  // Empty: as `precision` says.
  std::string parameters, gradients, activations, state;
  SparseWeights sparse;
  bool is_nonzero_given = false;
  std::string rounding;  // empty: stochastic for bf16 weights, else nearest
  int threads = 0;       // 0: one per CPU
  std::string budget;
  std::string recompute;  // empty: auto with a budget, else none
  bool two_pass = false;
  bool allow_microbatch = false;
  bool allow_f16 = false, allow_bf16 = false, allow_sparse = false;
  std::string target_class;    // empty: that of this machine's kernels
  int64_t min_microbatch = 0;  // 0: the model's own
  bool inplace = true;
  bool sharing = true;
  bool fuse = true;
  std::string optimizer;  // empty: the model's own, once all is parsed
  std::optional<double> weight_decay;  // the same
  SgdOptions sgd{.momentum = 0.9f};
  // Unset: yes, where there is momentum and a gradient to make it from.
  std::optional<bool> nesterov;
  AdamOptions adam;
  std::optional<double> beta2;  // the model's own, as above
};

struct DataFlags {
  std::string data;
  std::string data_dir;
  int64_t validation = 0;  // images held out of training
};

// Checks of an option's text: empty, or what is wrong with it. An empty value
// is mostly a shell variable that is not set, and must not mean "not given".
std::string CheckNotEmpty(const std::string& text);

// Both are allowed.
struct WholeLimits {
  uint64_t least = 0;
  uint64_t most = 0;
};
inline constexpr WholeLimits kImages = {1, uint64_t{1} << 24};
inline constexpr WholeLimits kThreads = {1, 256};
inline constexpr WholeLimits kCount = {0, 1'000'000'000'000'000'000};

struct DecimalLimits {
  const char* text;  // "above 0"
  bool (*hold)(double number);
};
inline constexpr DecimalLimits kShare = {
    "in [0, 1)", [](double number) { return number >= 0 && number < 1; }};
inline constexpr DecimalLimits kPositive = {
    "above 0", [](double number) { return number > 0; }};
inline constexpr DecimalLimits kNotNegative = {
    "from 0 on", [](double number) { return number >= 0; }};

std::string CheckWhole(const std::string& text, const WholeLimits& limits);

// An option whose value is a number as thimble/number.h reads it, which the
// parser of options does not: for that, 0100 is octal, and an empty text 0.
template <typename T>
CLI::Option* AddWhole(CLI::App& app, const char* name, T& value,
                      const WholeLimits& limits, const std::string& what) {
  return app
      .add_option_function<std::string>(
          name,
          [&value](const std::string& text) {
            value = static_cast<T>(*ParseWhole(text));
          },
          what)
      ->type_name("INT")
      ->check([limits](const std::string& text) {
        return CheckWhole(text, limits);
      });
}

// The same for float and double. `set` gets the number.
template <typename T, typename F>
CLI::Option* AddDecimalFor(CLI::App& app, const char* name, const F& set,
                           const DecimalLimits& limits,
                           const std::string& what) {
  return app
      .add_option_function<std::string>(
          name, [set](const std::string& text) { set(*ParseDecimal<T>(text)); },
          what)
      ->type_name("FLOAT")
      ->check([limits](const std::string& text) {
        const std::optional<T> number = ParseDecimal<T>(text);
        if (text.empty()) return CheckNotEmpty(text);
        return number.has_value() && limits.hold(*number)
                   ? std::string()
                   : "'" + text + "' is no number " + limits.text;
      });
}
template <typename T>
CLI::Option* AddDecimal(CLI::App& app, const char* name, T& value,
                        const DecimalLimits& limits, const std::string& what) {
  return AddDecimalFor<T>(
      app, name, [&value](T number) { value = number; }, limits, what);
}
template <typename T>
CLI::Option* AddDecimal(CLI::App& app, const char* name,
                        std::optional<T>& value, const DecimalLimits& limits,
                        const std::string& what) {
  return AddDecimalFor<T>(
      app, name, [&value](T number) { value = number; }, limits, what);
}

void AddPlanFlags(CLI::App& app, PlanFlags& flags);
void AddThreadsFlag(CLI::App& app, int& threads);
void AddBudgetFlag(CLI::App& app, std::string& budget);
void AddDataFlags(CLI::App& app, DataFlags& flags, bool required);
void AddValidationFlag(CLI::App& app, DataFlags& flags);

// How translations are searched; `beam` says the default of --beam.
void AddSearchFlags(CLI::App& app, TranslateOptions& options,
                    const std::string& beam);

int ThreadsOrDefault(int threads);

// Whether `data` is a folder that `data prepare` has written.
bool IsPreparedText(const std::string& data);

Result<std::unique_ptr<Dataset>> OpenData(const DataFlags& flags);

// What --data names: one of both, or neither where it is not given.
struct TrainingData {
  std::unique_ptr<Dataset> images;
  std::unique_ptr<TextData> text;  // for models of text
};
Result<TrainingData> OpenTrainingData(const std::string& model,
                                      const DataFlags& flags);

// For what the data has, or what the model is meant for without any.
Result<Model> MakeModel(const PlanFlags& flags, const TrainingData& data);

PlanOptions MakePlanOptions(const PlanFlags& flags,
                            std::optional<uint64_t> budget);

// Empty text: no budget.
Result<std::optional<uint64_t>> ParseBudget(const std::string& text);

}  // namespace thimble::cli
