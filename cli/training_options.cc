// SPDX-License-Identifier: Apache-2.0
#include "training_options.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "sparse_options.h"
#include "thimble/model.h"

namespace thimble::cli {
namespace {

std::string CheckFloatType(const std::string& text) {
  if (text.empty()) return CheckNotEmpty(text);
  const auto dtype = ParseFloatType(text);
  return dtype.ok() ? std::string() : dtype.status().message();
}

// The same for a role that takes `others` too.
std::string CheckTypeOr(std::initializer_list<std::string_view> others,
                        const std::string& text) {
  if (std::ranges::find(others, text) != others.end()) return {};
  std::string wrong = CheckFloatType(text);
  if (wrong.empty() || text.empty()) return wrong;
  wrong += "; here also";
  for (const std::string_view other : others) {
    wrong += (other == *others.begin() ? " " : " and ") + std::string(other);
  }
  return wrong;
}

void RefuseWithout(const CLI::App& app, const char* option, const char* why) {
  if (app.count(option) > 0) throw CLI::ValidationError(option, why);
}

void CheckMomentum(const CLI::App& app, const PlanFlags& flags) {
  if (flags.sgd.momentum > 0.0f) return;
  for (const char* option : {"--nesterov", "--no-nesterov"}) {
    RefuseWithout(app, option,
                  "is a form of momentum, and --momentum 0 has none; leave one "
                  "of them out");
  }
  RefuseWithout(app, "--optimizer-state",
                "is for what the optimizer keeps of each weight, and SGD with "
                "--momentum 0 keeps nothing; leave one of them out");
  // Of train alone.
  if (app.get_option_no_throw("--reset") == nullptr) return;
  RefuseWithout(app, "--reset",
                "is for momentum, and --momentum 0 keeps none; leave one of "
                "them out");
}

// What a budget may change, and by what it chooses.
void CheckChoices(const CLI::App& app, const PlanFlags& flags) {
  if (flags.budget.empty()) {
    RefuseWithout(app, "--allow",
                  "says what --budget may change, and there is none; give a "
                  "--budget, or leave it out");
  }
  if (!flags.allow_f16 || !flags.allow_bf16) {
    RefuseWithout(app, "--target-class",
                  "decides between f16 and bf16 where --budget may choose; add "
                  "--allow f16,bf16, or leave it out");
  }
}

bool IsHalf(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}

void FillFromPreset(PlanFlags& flags) {
  const TrainingPreset preset = PresetOf(flags.model);
  if (flags.batch == 0) flags.batch = preset.batch;
  if (flags.optimizer.empty()) flags.optimizer = preset.optimizer;
  flags.sgd.weight_decay =
      static_cast<float>(flags.weight_decay.value_or(preset.weight_decay));
  flags.adam.weight_decay = flags.weight_decay.value_or(preset.weight_decay);
  flags.adam.beta2 = flags.beta2.value_or(preset.beta2);
}

// What would have no effect is a mistake.
void CheckEffects(const CLI::App& app, const PlanFlags& flags) {
  CheckChoices(app, flags);
  CheckSparseEffects(app, flags);
  if (flags.two_pass && !flags.fuse) {
    RefuseWithout(app, "--two-pass",
                  "is for fused convolutions, and with --fuse off there are "
                  "none; leave one of them out");
  }
  if (flags.optimizer == "sgd") {
    for (const char* option : {"--beta1", "--beta2"}) {
      RefuseWithout(app, option,
                    "is for --optimizer adam and adamw; SGD has --momentum");
    }
    CheckMomentum(app, flags);
  } else {
    for (const char* option : {"--momentum", "--nesterov", "--no-nesterov"}) {
      RefuseWithout(app, option,
                    "is for --optimizer sgd; Adam has --beta1 and --beta2");
    }
  }
  const Precision precision =
      PrecisionOf(flags, FloatType(flags.precision, DType::kF32));
  const bool may_be_16_bits = flags.allow_f16 || flags.allow_bf16;
  if (!IsHalf(precision.parameters) && !may_be_16_bits &&
      flags.state != "f16" && flags.state != "bf16") {
    RefuseWithout(app, "--rounding",
                  "is for weights or state in 16 bits, and there are none; "
                  "--precision f16 or bf16 makes them");
  }
  // Of train alone.
  const bool is_scaled = IsHalf(precision.activations) ||
                         IsHalf(precision.gradients.dtype) || may_be_16_bits;
  if (app.get_option_no_throw("--loss-scale") != nullptr && !is_scaled) {
    RefuseWithout(app, "--loss-scale",
                  "is for activations or gradients in 16 bits, and there are "
                  "none; --precision f16 makes them");
  }
}

}  // namespace

DType FloatType(const std::string& text, DType otherwise) {
  return text.empty() ? otherwise : *ParseFloatType(text);
}

Precision PrecisionOf(const PlanFlags& flags, DType dtype) {
  Precision precision = {.parameters = FloatType(flags.parameters, dtype),
                         .activations = FloatType(flags.activations, dtype),
                         .keeps_gradients = flags.gradients != "none"};
  if (flags.gradients == "u8") {
    precision.gradients = U8InBlocks();
  } else if (precision.keeps_gradients) {
    precision.gradients = FloatType(flags.gradients, dtype);
  }
  return precision;
}

void AddPrecisionFlags(CLI::App& app, PlanFlags& flags) {
  constexpr const char* kTypes = "f32|f16|bf16";
  app.add_option("--precision", flags.precision,
                 "What tensors are stored in (default f32, unless --allow lets "
                 "--budget choose). Sums are f32 in any case; biases, "
                 "batch norms' parameters and statistics "
                 "are f32 always")
      ->type_name(kTypes)
      ->check(CheckFloatType);
  app.add_option("--parameters", flags.parameters,
                 "The same for weights alone (default: --precision)")
      ->type_name(kTypes)
      ->check(CheckFloatType);
  app.add_option(
         "--gradients", flags.gradients,
         "The same for weights' gradients alone (default: --precision); "
         "or u8: blocks of 64 bytes with a scale, rounded "
         "stochastically; or none: they are not stored, but added to "
         "the momentum as they are made")
      ->type_name("f32|f16|bf16|u8|none")
      ->check([](const std::string& text) {
        return CheckTypeOr({"u8", "none"}, text);
      });
  app.add_option("--activations", flags.activations,
                 "The same for activations and their gradients alone (default: "
                 "--precision)")
      ->type_name(kTypes)
      ->check(CheckFloatType);
  app.add_option("--optimizer-state", flags.state,
                 "The same for what the optimizer keeps of each weight, or u8: "
                 "blocks of 64 bytes with a scale, rounded stochastically "
                 "(default: as the weight is)")
      ->type_name("f32|f16|bf16|u8")
      ->check(
          [](const std::string& text) { return CheckTypeOr({"u8"}, text); });
  app.add_option("--rounding", flags.rounding,
                 "How an update rounds weights and state of 16 bits: nearest; "
                 "stochastic, up or down by chance, from the seed; feedback, "
                 "to nearest, and what was lost is handed on to the momentum "
                 "(default: stochastic for bf16 weights, else nearest)")
      ->type_name("MODE")
      ->check([](const std::string& text) {
        if (text.empty()) return CheckNotEmpty(text);
        const auto rounding = ParseRounding(text);
        return rounding.ok() ? std::string() : rounding.status().message();
      });
}

void AddOptimizerFlags(CLI::App& app, PlanFlags& flags) {
  app.add_option("--optimizer", flags.optimizer,
                 "sgd, adam, or adamw, whose weight decay is not part of the "
                 "gradient (default: the model's own, sgd for images and adamw "
                 "for text)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"sgd", "adam", "adamw"}));
  AddDecimal(app, "--momentum", flags.sgd.momentum, kShare,
             "SGD's momentum, in [0, 1); 0 stores none (default 0.9)");
  AddDecimal(app, "--weight-decay", flags.weight_decay, kNotNegative,
             "L2 penalty on all parameters (default: the model's own, 5e-4 for "
             "images and 1e-4 for text)");
  CLI::Option* plain = app.add_flag_callback(
      "--no-nesterov", [&flags] { flags.nesterov = false; },
      "Plain momentum instead of Nesterov's form of SGD's step");
  CLI::Option* nesterov = app.add_flag_callback(
      "--nesterov", [&flags] { flags.nesterov = true; },
      "Nesterov's form (default, but for --gradients none with --microbatch or "
      "--allow microbatch, which have no gradient to make it from)");
  nesterov->excludes(plain);
  AddDecimal(app, "--beta1", flags.adam.beta1, kShare,
             "How much of Adam's first moment stays, in [0, 1) (default 0.9)");
  AddDecimal(app, "--beta2", flags.beta2, kShare,
             "Of its second moment (default 0.999; 0.98 for models of text)");
  app.parse_complete_callback([&app, &flags] {
    FillFromPreset(flags);
    CheckEffects(app, flags);
  });
}

std::shared_ptr<const Optimizer> MakeOptimizer(const PlanFlags& flags,
                                               const Precision& precision) {
  Rounding rounding = precision.parameters == DType::kBF16
                          ? Rounding::kStochastic
                          : Rounding::kNearest;
  if (!flags.rounding.empty()) rounding = *ParseRounding(flags.rounding);
  std::optional<Storage> state;
  if (flags.state == "u8") {
    state = U8InBlocks();
  } else if (!flags.state.empty()) {
    state = *ParseFloatType(flags.state);
  }
  if (flags.optimizer != "sgd") {
    AdamOptions adam = flags.adam;
    adam.decoupled = flags.optimizer == "adamw";
    adam.rounding = rounding;
    adam.state = state;
    return Adam(adam);
  }
  SgdOptions sgd = flags.sgd;
  const bool in_parts =
      flags.allow_microbatch ||
      (flags.microbatch > 0 && flags.microbatch < flags.batch);
  sgd.nesterov =
      flags.nesterov.value_or(precision.keeps_gradients || !in_parts) &&
      sgd.momentum > 0.0f;
  sgd.rounding = rounding;
  sgd.state = state;
  return Sgd(sgd);
}

}  // namespace thimble::cli
