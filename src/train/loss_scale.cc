// SPDX-License-Identifier: Apache-2.0
#include "train/loss_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "thimble/number.h"

namespace thimble::train {
namespace {

struct NamedRule {
  std::string_view name;
  double initial, least, most;
  int64_t window;
};

// What three programs do that the field knows. All halve and skip on overflow,
// and double when the steps since then are a multiple of the window.
constexpr NamedRule kRules[] = {
    {"dynamic", 0x1p16, 1, 0x1p24, 2000},     // apex amp of 2019
    {"apex-2018", 0x1p32, 1, 0x1p64, 1000},   // apex FP16_Optimizer
    {"fairseq", 0x1p7, 1e-4, 0x1p64, 16384},  // one worker
};

bool IsPowerOfTwo(double x) {
  int exponent = 0;
  return std::frexp(x, &exponent) == 0.5;
}

}  // namespace

std::string_view LossScaler::RuleOf(std::string_view text,
                                    const Precision& precision) {
  if (!text.empty()) return text;
  const bool is_f16 = precision.activations == DType::kF16 ||
                      precision.gradients == DType::kF16;
  return is_f16 ? "dynamic" : "none";
}

Result<LossScaler> LossScaler::Parse(std::string_view text,
                                     const Precision& precision) {
  LossScaler scaler;
  text = RuleOf(text, precision);
  if (text == "none") return scaler;
  scaler.is_on_ = true;
  for (const NamedRule& rule : kRules) {
    if (text != rule.name) continue;
    scaler.initial_ = rule.initial;
    scaler.least_ = rule.least;
    scaler.most_ = rule.most;
    scaler.window_ = rule.window;
    return scaler;
  }
  const auto number = ParseDecimal<double>(text);
  if (!number.has_value() || !(*number >= 0x1p-24 && *number <= 0x1p64) ||
      !IsPowerOfTwo(*number)) {
    return Status::Usage(fmt::format(
        "TrainOptions::loss_scale is dynamic, apex-2018, fairseq, none or a "
        "power of two like 1024, got '{}'",
        text));
  }
  scaler.initial_ = *number;
  scaler.is_fixed_ = true;
  return scaler;
}

void LossScaler::Applied(LossScaleState* state) const {
  ++state->clean;
  if (window_ > 0 && state->clean % window_ == 0) {
    state->scale = std::min(state->scale * 2, most_);
  }
}

Status LossScaler::Skipped(LossScaleState* state) const {
  state->clean = 0;
  ++state->skipped;
  if (is_fixed_) {
    return Status::Failed(fmt::format(
        "a gradient is infinite or no number at the fixed loss scale {}; a "
        "smaller TrainOptions::loss_scale, or 'dynamic', may do",
        state->scale));
  }
  state->scale /= 2;
  if (state->scale >= least_) return Status::Ok();
  return Status::Failed(fmt::format(
      "gradients are infinite or no numbers even at the smallest loss scale, "
      "{:g}; {} steps were skipped in all",
      state->scale * 2, state->skipped));
}

}  // namespace thimble::train
