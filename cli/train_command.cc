// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "commands.h"
#include "options.h"
#include "progress.h"
#include "sparse_options.h"
#include "stop.h"
#include "thimble/model.h"
#include "thimble/plan_search.h"
#include "thimble/rss.h"
#include "thimble/size.h"
#include "thimble/text.h"
#include "thimble/trainer.h"
#include "words.h"

namespace thimble::cli {
namespace {

struct TrainCommandFlags {
  PlanFlags plan;
  DataFlags data;
  TrainOptions train;
  ImageBatchOptions images;
  // Unset: the model's own, see PresetOf.
  double learning_rate = 0;
  std::string schedule;
  int64_t epochs = 0;
  std::optional<int64_t> warmup_steps;
  std::string augment;  // unset: the data set's usual one
  bool json = false;
};

TrainOptions WithPreset(const TrainCommandFlags& flags) {
  const TrainingPreset preset = PresetOf(flags.plan.model);
  TrainOptions options = flags.train;
  options.learning_rate =
      flags.learning_rate > 0 ? flags.learning_rate : preset.learning_rate;
  options.schedule = flags.schedule.empty() ? preset.schedule : flags.schedule;
  options.epochs = flags.epochs > 0 ? flags.epochs : preset.epochs;
  options.warmup_steps = flags.warmup_steps.value_or(preset.warmup_steps);
  return options;
}

std::string Rate(double per_second) {
  if (std::isnan(per_second)) return "not measured";
  return std::to_string(std::llround(per_second));
}

void PrintTable(const Plan& plan, const TrainSummary& summary) {
  const int64_t over = summary.rss_peak_bytes - summary.rss_base_bytes;
  std::vector<std::pair<std::string, std::string>> rows = {
      {"parameters", std::to_string(plan.ParameterCount())},
      {"planned arena", FormatBytesUp(summary.arena_bytes)},
      {"peak RSS over base",
       FormatBytesUp(static_cast<uint64_t>(over > 0 ? over : 0))},
      {"RSS before the arena",
       FormatBytesUp(static_cast<uint64_t>(summary.rss_base_bytes))},
  };
  for (const TestMetric& metric : summary.metrics) {
    rows.emplace_back("best test " + Printable(metric.name),
                      MetricText(metric.name, metric.best, metric.is_share));
  }
  rows.emplace_back(Printable(summary.axis) + "/s", Rate(summary.per_second));
  rows.emplace_back("steps", std::to_string(summary.steps));
  if (summary.skipped > 0) {
    rows.emplace_back("of them skipped", std::to_string(summary.skipped));
  }
  if (summary.rewirings > 0) {
    rows.emplace_back("rewirings", std::to_string(summary.rewirings));
  }
  rows.emplace_back("weights sha256", summary.weights_sha256.substr(0, 16));
  if (summary.resumed_step > 0) {
    const bool was_finished =
        summary.steps == summary.resumed_step && !summary.stopped;
    std::printf("\n%s after step %lld",
                was_finished ? "nothing was left to train" : "went on",
                static_cast<long long>(summary.resumed_step));
  }
  std::string batch = std::to_string(plan.batch());
  if (plan.microbatches() > 1) {
    batch += " in microbatches of " + std::to_string(plan.microbatch());
  }
  std::printf("\n%s, batch %s, %d thread%s%s\n", plan.model().c_str(),
              batch.c_str(), plan.options().threads,
              plan.options().threads == 1 ? "" : "s",
              summary.stopped ? " (stopped early)" : "");
  for (const auto& [name, value] : rows) {
    std::printf("  %-22s %18s\n", name.c_str(), value.c_str());
  }
  if (!summary.weights_path.empty() && summary.steps > 0) {
    std::printf("  weights in %s\n", Printable(summary.weights_path).c_str());
  }
}

// What has no meaning for models of text.
Status CheckForText(const TrainCommandFlags& flags) {
  if (!PresetOf(flags.plan.model).is_of_text) return Status::Ok();
  const char* refused = !flags.augment.empty()   ? "--augment"
                        : flags.images.keep_last ? "--keep-last"
                                                 : nullptr;
  if (refused == nullptr) return Status::Ok();
  return Status::Usage(std::string(refused) + ": is for images, and " +
                       flags.plan.model + " reads text; leave it out");
}

// The plan to train in. Without one, what is wrong is told, and `exit_code`
// set. What was built to find it is no part of the process in training, and
// neither is the model.
std::optional<Plan> FindPlan(const TrainCommandFlags& flags,
                             const TrainingData& data,
                             const ImageBatchOptions& images,
                             std::optional<uint64_t> budget, int* exit_code) {
  const auto fails = [exit_code](const Status& status) {
    *exit_code = Report(status);
    return std::nullopt;
  };
  const auto model = MakeModel(flags.plan, data);
  if (!model.ok()) return fails(model.status());
  if (data.images != nullptr) {
    const Status batches =
        CheckImageBatches(*data.images, images, flags.plan.batch);
    if (!batches.ok()) return fails(batches);
  }
  auto search = PlanSearch::Create(*model, MakePlanOptions(flags.plan, budget));
  if (!search.ok()) return fails(search.status());
  *exit_code = ReportUnlessFits(*search, !flags.plan.precision.empty());
  if (*exit_code != 0) return std::nullopt;
  return std::move(*search).Take();
}

int Run(const TrainCommandFlags& flags) {
  auto budget = ParseBudget(flags.plan.budget);
  if (!budget.ok()) return Report(budget.status());
  ImageBatchOptions images = flags.images;
  if (!flags.augment.empty()) {
    auto parsed = ParseAugment(flags.augment);
    if (!parsed.ok()) return Report(parsed.status());
    images.augment = *parsed;
  }
  TrainOptions options = WithPreset(flags);
  // Planning may take long: what is wrong with the options, or with the files
  // that they name, comes before it.
  if (const Status status = CheckTrainOptions(options); !status.ok()) {
    return Report(status);
  }
  if (const Status status = CheckForText(flags); !status.ok()) {
    return Report(status);
  }
  if (const Status status = CheckRunFiles(options); !status.ok()) {
    return Report(status);
  }
  auto data = OpenTrainingData(flags.plan.model, flags.data);
  if (!data.ok()) return Report(data.status());
  int exit_code = 0;
  std::optional<Plan> found =
      FindPlan(flags, *data, images, *budget, &exit_code);
  if (!found.has_value()) return exit_code;
  // It lies scattered over the pages on which it was searched for. A copy lies
  // together, on fewer.
  ReturnFreeHeap();
  const Plan plan = *found;
  found.reset();

  options.stop = StopOnSignals();
  if (!flags.json) {
    std::printf("arena %s, process beside it at most %s\n",
                FormatBytesUp(plan.arena_bytes()).c_str(),
                FormatBytesUp(BesideArenaBytes(plan)).c_str());
    std::fflush(stdout);
  }
  const int fd = flags.json ? STDERR_FILENO : STDOUT_FILENO;
  Progress progress(fd, isatty(fd) != 0, plan.arena_bytes());
  const std::unique_ptr<BatchSource> source =
      data->text != nullptr
          ? MakeTextBatches(*data->text, {.max_tokens = flags.plan.batch})
          : MakeImageBatches(*data->images, images);
  auto summary = Train(plan, *source, options, &progress);
  progress.Close();
  if (!summary.ok()) return Report(summary.status());
  if (flags.json) {
    std::printf("%s\n", SummaryJson(*summary).c_str());
  } else {
    PrintTable(plan, *summary);
  }
  return Report(summary->log_status);
}

void AddTrainFlags(CLI::App& command, TrainCommandFlags& flags) {
  TrainOptions& train = flags.train;
  CLI::Option* epochs =
      AddWhole(command, "--epochs", flags.epochs, {1, uint64_t{1} << 32},
               "Passes over the training images (default: the model's own, 10 "
               "for small ones); schedules stretch or shrink with it");
  AddWhole(command, "--steps", train.steps, {1, uint64_t{1} << 40},
           "Steps to train, instead of epochs")
      ->excludes(epochs);
  AddDecimal(command, "--lr", flags.learning_rate, kPositive,
             "Base learning rate (default: the model's own)");
  command
      .add_option(
          "--schedule", flags.schedule,
          "constant, cosine, inverse-sqrt (of the step's number, as "
          "Transformers are trained), or steps:0.5=0.2,0.75=0.04 (from half of "
          "the run on 0.2 of the rate, …; default: the model's own)")
      ->check(CheckNotEmpty);
  AddWhole(command, "--warmup", flags.warmup_steps, kCount,
           "Steps in which the rate rises linearly (default: the model's own, "
           "0 for most)");
  command
      .add_option("--augment", flags.augment,
                  "none, or crop-flip: shifted by up to 4 pixels with "
                  "reflection, and mirrored in half of the cases (default: "
                  "crop-flip for CIFAR-10, none for the others)")
      ->check(CheckNotEmpty);
  command
      .add_option("--loss-scale", train.loss_scale,
                  "By what the loss is multiplied so that f16 gradients do not "
                  "vanish: dynamic (default where there are any), apex-2018, "
                  "fairseq, none, or a power of two. A step whose gradients "
                  "are infinite is skipped, and a dynamic scale halved")
      ->type_name("RULE")
      ->check(CheckNotEmpty);
  AddWhole(command, "--seed", train.seed, {0, 9'999'999'999'999'999'999u},
           "Of weights, order and augmentation (default 1); same seed, same "
           "bits");
  command.add_flag("--keep-last", flags.images.keep_last,
                   "Train on a last partial batch too, instead of dropping it");
}

// Where a run is kept and told of.
void AddRunFlags(CLI::App& command, TrainCommandFlags& flags) {
  TrainOptions& train = flags.train;
  command
      .add_option("--out", train.out_dir,
                  "Folder for the weights (safetensors), written after each "
                  "epoch and on Ctrl-C")
      ->check(CheckNotEmpty);
  command.add_flag("--resume", train.resume,
                   "Go on from the checkpoint in --out, bit for bit; start "
                   "anew where there is none");
  command.add_flag("--overwrite", train.overwrite,
                   "Start anew where --out holds a run already, and replace "
                   "it; without this and --resume it is refused");
  AddWhole(command, "--keep-epochs", train.keep_epochs, kCount,
           "Keep the weights of the last N epochs in --out, for --average "
           "(default 0)");
  command.add_option("--log", train.log_path, "File for JSON lines")
      ->check(CheckNotEmpty);
  command.add_flag("--poison", train.poison,
                   "Debugging: fill expired buffers with NaNs; slower, same "
                   "results");
  command.add_flag("--json", flags.json,
                   "Print the summary as one JSON object; progress to stderr");
}

}  // namespace

Command AddTrainCommand(CLI::App& app) {
  auto flags = std::make_shared<TrainCommandFlags>();
  CLI::App* command =
      app.add_subcommand("train", "Train a model inside its plan");
  AddPlanFlags(*command, flags->plan);
  AddDataFlags(*command, flags->data, /*required=*/true);
  AddValidationFlag(*command, flags->data);
  AddRewiringFlags(*command, flags->train.rewiring);
  AddTrainFlags(*command, *flags);
  AddRunFlags(*command, *flags);
  command->footer(
      "Example:\n"
      "  thimble train cnn --data fashion-mnist --epochs 5 --budget 20MB \\\n"
      "      --out run1 --log run1.jsonl\n"
      "Ctrl-C ends cleanly: what was learned so far is saved and reported.");
  return [flags] { return Run(*flags); };
}

}  // namespace thimble::cli
