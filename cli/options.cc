// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "sparse_options.h"
#include "thimble/cpus.h"
#include "thimble/model.h"
#include "thimble/plan_search.h"
#include "thimble/precision.h"
#include "thimble/session.h"
#include "thimble/size.h"
#include "thimble/target_class.h"
#include "training_options.h"

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

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// A list of what --budget may change.
std::string CheckAllowed(const std::string& text) {
  if (text.empty()) return CheckNotEmpty(text);
  for (const std::string& word : SplitAtCommas(text)) {
    if (word != "exact" && word != "microbatch" && word != "f16" &&
        word != "bf16" && word != "sparse") {
      return "'" + word +
             "' is none of exact, microbatch, f16, bf16, sparse; separate "
             "them by commas";
    }
  }
  return {};
}

void AddAllowFlags(CLI::App& app, PlanFlags& flags) {
  app.add_option_function<std::string>(
         "--allow",
         [&flags](const std::string& text) {
           for (const std::string& word : SplitAtCommas(text)) {
             flags.allow_microbatch |= word == "microbatch";
             flags.allow_f16 |= word == "f16";
             flags.allow_bf16 |= word == "bf16";
             flags.allow_sparse |= word == "sparse";
           }
         },
         "What --budget may change, separated by commas: exact (default, "
         "always part of it), what to compute again, which costs time only; "
         "microbatch, where that is not enough, the largest --microbatch that "
         "fits; f16 and bf16, where even that is not enough, this "
         "--precision, or of both the one whose step costs less; sparse, "
         "where nothing else is enough, the largest --nonzero of 0.5, 0.3, 0.2 "
         "and 0.1 that fits. What is given as an option of its own is not "
         "changed")
      ->type_name("LIST")
      ->check(CheckAllowed);
  app.add_option("--target-class", flags.target_class,
                 "CPUs to choose between f16 and bf16 for: generic, or "
                 "avx512bf16, where products of bf16 cost less (default: that "
                 "of this machine). Nothing else depends on it")
      ->type_name("CLASS")
      ->check([](const std::string& text) {
        if (text.empty()) return CheckNotEmpty(text);
        const auto target = ParseTargetClass(text);
        return target.ok() ? std::string() : target.status().message();
      });
  AddWhole(app, "--min-microbatch", flags.min_microbatch, kImages,
           "The least that --allow microbatch may go down to (default: "
           "the --ghost-batch, where it is given; else 8 where there are "
           "batch norms, and 1 without)");
}

// f16 comes first: where both cost the same, it loses less.
std::vector<PrecisionChoice> AllowedPrecisions(const PlanFlags& flags) {
  std::vector<PrecisionChoice> allowed;
  if (!flags.precision.empty()) return allowed;
  for (const auto& [is_allowed, dtype] :
       {std::pair(flags.allow_f16, DType::kF16),
        std::pair(flags.allow_bf16, DType::kBF16)}) {
    if (!is_allowed) continue;
    const Precision precision = PrecisionOf(flags, dtype);
    allowed.push_back({precision, MakeOptimizer(flags, precision)});
  }
  return allowed;
}

// A data set that is computed, or a folder, has no other place to look in.
// REQUIRES: flags.data is one that there is.
Status CheckDataDir(const DataFlags& flags) {
  if (flags.data_dir.empty()) return Status::Ok();
  const auto known = KnownDatasets();
  const auto found = std::ranges::find_if(
      known, [&](const DatasetSummary& d) { return flags.data == d.name; });
  if (found != known.end() && !found->computed) return Status::Ok();
  return Status::Usage(
      "--data-dir: is where the files of a named data set are, and '" +
      flags.data +
      (found == known.end() ? "' is a folder itself" : "' is computed") +
      "; leave it out");
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
           "Images per step (default 100); for models of text the tokens, of "
           "the longer side and as if all sentences were as long as the "
           "longest (default 4000)");
  AddWhole(app, "--microbatch", flags.microbatch, kImages,
           "Images or tokens at a time, a divisor of --batch (default: all). A "
           "step sums the gradients of its microbatches and updates once, so "
           "less takes less memory; batch norms see one microbatch");
  AddWhole(app, "--ghost-batch", flags.ghost_batch, kImages,
           "Batch norms see groups of this many images, as with "
           "--microbatch, but all in one pass; a divisor of it (default: "
           "no groups)");
  AddDecimal(app, "--dropout", flags.dropout, kShare,
             "Drops this share of values by chance in training, in [0, 1): "
             "before the last layer of mlp and cnn, between the "
             "convolutions of each block of wrn-D-K, behind each part of "
             "dynamicconv-... (default 0; 0.3 for dynamicconv-...)");
  AddPrecisionFlags(app, flags);
  AddSparseFlags(app, flags);
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
  CLI::Option* data =
      app.add_option(
             "--data", flags.data,
             "A data set's name (" + names +
                 "), or a folder with MNIST-like IDX files, the six .bin "
                 "files of CIFAR-10, or, for models of text, what "
                 "`thimble data prepare` has written")
          ->required(required)
          ->check(CheckNotEmpty);
  app.add_option("--data-dir", flags.data_dir,
                 "Where the files of a named data set are")
      ->needs(data)
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

bool IsPreparedText(const std::string& data) {
  return access((data + "/train.tokens").c_str(), F_OK) == 0;
}

Result<std::unique_ptr<Dataset>> OpenData(const DataFlags& flags) {
  auto data =
      OpenDataset(flags.data, {.data_dir = flags.data_dir, .cache_dir = {}});
  if (!data.ok()) return data;
  const Status place = CheckDataDir(flags);
  if (!place.ok()) return place;
  if (flags.validation == 0) return data;
  return HoldOut(*std::move(data), flags.validation);
}

Result<TrainingData> OpenTrainingData(const std::string& model,
                                      const DataFlags& flags) {
  TrainingData data;
  if (flags.data.empty()) return data;
  if (!PresetOf(model).is_of_text) {
    auto images = OpenData(flags);
    if (!images.ok()) return images.status();
    data.images = *std::move(images);
    return data;
  }
  const char* refused = !flags.data_dir.empty() ? "--data-dir"
                        : flags.validation > 0  ? "--validation"
                                                : nullptr;
  if (refused != nullptr) {
    return Status::Usage(std::string(refused) + ": is for images, and " +
                         model + " reads text; leave it out");
  }
  auto text = TextData::Open(flags.data);
  if (!text.ok()) return text.status();
  data.text = *std::move(text);
  return data;
}

Result<Model> MakeModel(const PlanFlags& flags, const TrainingData& data) {
  ModelOptions options;
  options.batch = flags.batch;
  options.dropout = flags.dropout;
  const TrainingPreset preset = PresetOf(flags.model);
  options.images = preset.images;
  options.classes = preset.classes;
  if (data.images != nullptr) {
    const Dataset& images = *data.images;
    const ImageSpec& spec = images.spec();
    options.images = {spec.channels,
                      spec.height,
                      spec.width,
                      {images.mean().begin(), images.mean().end()},
                      {images.stddev().begin(), images.stddev().end()}};
    options.classes = spec.classes;
  }
  if (data.text != nullptr) {
    options.source_vocabulary = data.text->vocabulary(TextSide::kSource);
    options.target_vocabulary = data.text->vocabulary(TextSide::kTarget);
  }
  auto model = BuildModel(flags.model, options);
  if (model.ok() && flags.two_pass && !HasFusedConvolutions(*model)) {
    return Status::Usage("--two-pass: is for fused convolutions, and " +
                         flags.model + " has none; leave it out");
  }
  return model;
}

PlanOptions MakePlanOptions(const PlanFlags& flags,
                            std::optional<uint64_t> budget) {
  PlanOptions options;
  options.precision =
      PrecisionOf(flags, FloatType(flags.precision, DType::kF32));
  options.optimizer = MakeOptimizer(flags, options.precision);
  options.allow_precision = AllowedPrecisions(flags);
  options.sparse = flags.sparse;
  if (MayBecomeSparse(flags)) options.allow_nonzero = {0.5, 0.3, 0.2, 0.1};
  options.target_class = flags.target_class.empty()
                             ? TargetClassOf(TargetInUse())
                             : *ParseTargetClass(flags.target_class);
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
