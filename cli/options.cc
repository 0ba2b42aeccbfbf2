// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <algorithm>

#include "thimble/cpus.h"
#include "thimble/model.h"
#include "thimble/precision.h"
#include "thimble/size.h"

namespace thimble::cli {
namespace {

std::string ModelList() {
  std::string text;
  for (const ModelName& m : ModelNames()) {
    text += (text.empty() ? "" : "; ") + std::string(m.name) + ": " +
            std::string(m.what);
  }
  return text;
}

std::string CheckFloatType(const std::string& text) {
  if (text.empty()) return CheckNotEmpty(text);
  const auto dtype = ParseFloatType(text);
  return dtype.ok() ? std::string() : dtype.status().message();
}

// REQUIRES: CheckFloatType is content.
DType FloatType(const std::string& text, const std::string& otherwise) {
  return *ParseFloatType(text.empty() ? otherwise : text);
}

void AddPrecisionFlags(CLI::App& app, PlanFlags& flags) {
  constexpr const char* kTypes = "f32|f16|bf16";
  app.add_option("--precision", flags.precision,
                 "What tensors are stored in (default f32). Arithmetic is f32 "
                 "in any case; biases, batch norms' parameters and statistics "
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
        return text == "u8" || text == "none" ? std::string()
                                              : CheckFloatType(text);
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
      ->check([](const std::string& text) {
        return text == "u8" ? std::string() : CheckFloatType(text);
      });
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
                 "sgd (default), adam, or adamw, whose weight decay is not "
                 "part of the gradient")
      ->type_name("NAME")
      ->check(CLI::IsMember({"sgd", "adam", "adamw"}));
  AddDecimal(app, "--momentum", flags.sgd.momentum, kShare,
             "SGD's momentum, in [0, 1); 0 stores none (default 0.9)");
  AddDecimal(app, "--weight-decay", flags.sgd.weight_decay, kNotNegative,
             "L2 penalty on all parameters (default 5e-4)");
  app.add_flag_callback(
      "--no-nesterov", [&flags] { flags.nesterov = false; },
      "Plain momentum instead of Nesterov's form of SGD's step");
  app.add_flag_callback(
      "--nesterov", [&flags] { flags.nesterov = true; },
      "Nesterov's form (default, but for --gradients none with --microbatch or "
      "--allow microbatch, which have no gradient to make it from)");
  AddDecimal(app, "--beta1", flags.adam.beta1, kShare,
             "How much of Adam's first moment stays, in [0, 1) (default 0.9)");
  AddDecimal(app, "--beta2", flags.adam.beta2, kShare,
             "Of its second moment (default 0.999)");
}

// REQUIRES: the flags were checked as they were read.
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
    adam.weight_decay = static_cast<double>(flags.sgd.weight_decay);
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

// A list of what --budget may change.
std::string CheckAllowed(const std::string& text) {
  if (text.empty()) return CheckNotEmpty(text);
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (word == "f16" || word == "sparse") {
      return "'" + word + "' is not available yet";
    }
    if (word != "exact" && word != "microbatch") {
      return "'" + word +
             "' is none of exact, microbatch, f16, sparse; separate them by "
             "commas";
    }
  }
  return {};
}

void AddAllowFlags(CLI::App& app, PlanFlags& flags) {
  app.add_option_function<std::string>(
         "--allow",
         [&flags](const std::string& text) {
           flags.allow_microbatch = text.find("microbatch") != text.npos;
         },
         "What --budget may change, separated by commas: exact (default, "
         "always part of it), what to compute again, which costs time only; "
         "microbatch, where that is not enough, the largest --microbatch that "
         "fits; f16 and sparse are not available yet. What is given as an "
         "option of its own is not changed")
      ->type_name("LIST")
      ->check(CheckAllowed);
  AddWhole(app, "--min-microbatch", flags.min_microbatch, kImages,
           "The least that --allow microbatch may go down to (default: "
           "the --ghost-batch, where it is given; else 8 where there are "
           "batch norms, and 1 without)");
}

// `--name on|off`.
void AddSwitch(CLI::App& app, const char* name, bool& is_on, const char* what) {
  app.add_option_function<std::string>(
         name, [&is_on](const std::string& text) { is_on = text == "on"; },
         what)
      ->type_name("on|off")
      ->check([](const std::string& text) {
        return text == "on" || text == "off"
                   ? std::string()
                   : "'" + text + "' is neither on nor off";
      });
}

}  // namespace

std::string CheckNotEmpty(const std::string& text) {
  if (!text.empty()) return {};
  return "its value is empty; is a shell variable not set?";
}

std::string CheckWhole(const std::string& text, const WholeLimits& limits) {
  if (text.empty()) return CheckNotEmpty(text);
  const std::optional<uint64_t> number = ParseWhole(text);
  return number.has_value() && *number >= limits.least && *number <= limits.most
             ? std::string()
             : "'" + text + "' is no whole number from " +
                   std::to_string(limits.least) + " to " +
                   std::to_string(limits.most);
}

void AddThreadsFlag(CLI::App& app, int& threads) {
  AddWhole(app, "--threads", threads, kThreads,
           "Threads to run on (default: one per CPU that the process may "
           "use). Results do not depend on it; workspace does");
}

void AddBudgetFlag(CLI::App& app, std::string& budget) {
  app.add_option("--budget", budget,
                 "Take no more than this, e.g. 6.7MB, 8MiB, 500kB; what cannot "
                 "fit is refused")
      ->check(CheckNotEmpty);
}

void AddPlanFlags(CLI::App& app, PlanFlags& flags) {
  app.add_option("MODEL", flags.model, ModelList())
      ->required()
      ->check(CheckNotEmpty);
  AddWhole(app, "--batch", flags.batch, kImages,
           "Images per step (default 100)");
  AddWhole(app, "--microbatch", flags.microbatch, kImages,
           "Images at a time, a divisor of --batch (default: all). A step "
           "sums the gradients of its microbatches and updates once, so "
           "less takes less memory; batch norms see one microbatch");
  AddWhole(app, "--ghost-batch", flags.ghost_batch, kImages,
           "Batch norms see groups of this many images, as with "
           "--microbatch, but all in one pass; a divisor of it (default: "
           "no groups)");
  AddDecimal(app, "--dropout", flags.dropout, kShare,
             "Drops this share of values by chance in training, in [0, 1): "
             "before the last layer of mlp and cnn, between the "
             "convolutions of each block of wrn-D-K (default 0)");
  AddPrecisionFlags(app, flags);
  AddThreadsFlag(app, flags.threads);
  AddBudgetFlag(app, flags.budget);
  AddAllowFlags(app, flags);
  app.add_option("--checkpoint", flags.recompute,
                 "What to drop in the forward pass and compute again in the "
                 "backward pass: none (default), no-bn, every-M, residual-M, "
                 "residual-M* (or residual-Ms), sqrt, recursive-K, revolve, "
                 "revolve-S, or auto (default with --budget): the least work "
                 "that fits. Results do not depend on it; memory and time do")
      ->check(CheckNotEmpty);
  AddSwitch(app, "--inplace", flags.inplace,
            "Ops write over inputs that nobody reads later (default on); off "
            "for comparison: same results, more memory");
  AddSwitch(app, "--sharing", flags.sharing,
            "Buffers take the bytes of those that are no longer needed "
            "(default on); off for comparison: same results, more memory");
  AddSwitch(app, "--fuse", flags.fuse,
            "Batch norm, ReLU and sums are part of the convolutions (default "
            "on); off for comparison: results agree within rounding");
  AddSwitch(app, "--two-pass", flags.two_pass,
            "Compute gradients inside fused convolutions twice where storing "
            "them would raise the peak; with --checkpoint auto, where the "
            "budget asks for it (default off). Results do not depend on it; "
            "memory and time do");
  AddOptimizerFlags(app, flags);
}

void AddDataFlags(CLI::App& app, DataFlags& flags, bool required) {
  std::string names;
  for (const DatasetSummary& d : KnownDatasets()) {
    names += (names.empty() ? "" : ", ") + std::string(d.name);
  }
  app.add_option("--data", flags.data,
                 "A data set's name (" + names +
                     "), or a folder with MNIST-like IDX files or the six "
                     ".bin files of CIFAR-10")
      ->required(required)
      ->check(CheckNotEmpty);
  app.add_option("--data-dir", flags.data_dir,
                 "Where the files of a named data set are")
      ->check(CheckNotEmpty);
}

void AddValidationFlag(CLI::App& app, DataFlags& flags) {
  AddWhole(app, "--validation", flags.validation, kCount,
           "Hold out this many training images, always the same, and "
           "test on them instead of the test images (default 0)");
}

int ThreadsOrDefault(int threads) {
  return threads > 0 ? threads : std::min(UsableCpus(), 256);
}

Result<std::unique_ptr<Dataset>> OpenData(const DataFlags& flags) {
  auto data =
      OpenDataset(flags.data, {.data_dir = flags.data_dir, .cache_dir = {}});
  if (!data.ok() || flags.validation == 0) return data;
  return HoldOut(*std::move(data), flags.validation);
}

Result<Model> MakeModel(const PlanFlags& flags, const Dataset* data) {
  ModelOptions options;
  options.batch = flags.batch;
  options.dropout = flags.dropout;
  const TrainingPreset preset = PresetOf(flags.model);
  options.images = preset.images;
  options.classes = preset.classes;
  if (data != nullptr) {
    const ImageSpec& spec = data->spec();
    options.images = {spec.channels,
                      spec.height,
                      spec.width,
                      {data->mean().begin(), data->mean().end()},
                      {data->stddev().begin(), data->stddev().end()}};
    options.classes = spec.classes;
  }
  return BuildModel(flags.model, options);
}

PlanOptions MakePlanOptions(const PlanFlags& flags,
                            std::optional<uint64_t> budget) {
  PlanOptions options;
  options.precision = {
      .parameters = FloatType(flags.parameters, flags.precision),
      .activations = FloatType(flags.activations, flags.precision),
      .keeps_gradients = flags.gradients != "none"};
  if (flags.gradients == "u8") {
    options.precision.gradients = U8InBlocks();
  } else if (options.precision.keeps_gradients) {
    options.precision.gradients = FloatType(flags.gradients, flags.precision);
  }
  options.optimizer = MakeOptimizer(flags, options.precision);
  options.threads = ThreadsOrDefault(flags.threads);
  options.budget = budget;
  options.recompute = flags.recompute;
  if (options.recompute.empty()) {
    options.recompute = budget.has_value() ? "auto" : "none";
  }
  options.two_pass = flags.two_pass;
  options.microbatch = flags.microbatch;
  options.ghost_batch = flags.ghost_batch;
  options.allow_microbatch = flags.allow_microbatch;
  options.min_microbatch = flags.min_microbatch;
  options.inplace = flags.inplace;
  options.sharing = flags.sharing;
  options.fuse = flags.fuse;
  return options;
}

Result<std::optional<uint64_t>> ParseBudget(const std::string& text) {
  if (text.empty()) return std::optional<uint64_t>();
  auto bytes = ParseSize(text);
  if (!bytes.ok()) {
    return Status::Usage("--budget: " + bytes.status().message());
  }
  return std::optional<uint64_t>(*bytes);
}

}  // namespace thimble::cli
