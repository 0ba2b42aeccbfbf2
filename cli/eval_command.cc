// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "options.h"
#include "thimble/batches.h"
#include "thimble/plan_search.h"
#include "thimble/size.h"
#include "thimble/text.h"
#include "thimble/text_data.h"
#include "thimble/trainer.h"
#include "thimble/translate.h"
#include "words.h"

namespace thimble::cli {
namespace {

struct EvalCommandFlags {
  std::string from;
  DataFlags data;
  EvaluateOptions options{.batch = 0, .threads = 0, .budget = {}};
  // Of text.
  TranslateOptions search{.beam = 1};
  std::string budget;
  bool json = false;
};

constexpr int64_t kImagesAtOnce = 100;
constexpr int64_t kTokensAtOnce = 4000;

// What a text has besides.
struct TextFigures {
  double perplexity = 0;
  BleuSummary bleu;
};

void PrintJson(const EvaluateSummary& summary, const TextFigures* text) {
  std::printf("{\"model\":%s,%s:%lld,\"test_loss\":%s",
              JsonText(summary.model).c_str(), JsonText(summary.axis).c_str(),
              static_cast<long long>(summary.count),
              JsonNumber(summary.loss).c_str());
  for (const EvaluateSummary::Metric& metric : summary.metrics) {
    std::printf(",%s:%s", JsonText("test_" + metric.name).c_str(),
                JsonNumber(metric.value).c_str());
  }
  if (text != nullptr) {
    const BleuSummary& bleu = text->bleu;
    std::printf(
        ",\"test_perplexity\":%s,\"test_sentences\":%lld,\"test_bleu\":%s,"
        "\"bleu_precisions\":[%s,%s,%s,%s],\"brevity_penalty\":%s,"
        "\"translated_words\":%lld,\"reference_words\":%lld",
        JsonNumber(text->perplexity).c_str(),
        static_cast<long long>(bleu.sentences), JsonNumber(bleu.bleu).c_str(),
        JsonNumber(bleu.precisions[0]).c_str(),
        JsonNumber(bleu.precisions[1]).c_str(),
        JsonNumber(bleu.precisions[2]).c_str(),
        JsonNumber(bleu.precisions[3]).c_str(),
        JsonNumber(bleu.brevity_penalty).c_str(),
        static_cast<long long>(bleu.translated_words),
        static_cast<long long>(bleu.reference_words));
  }
  std::printf(",\"arena_bytes\":%llu,\"weights_sha256\":\"%s\"}\n",
              static_cast<unsigned long long>(summary.arena_bytes),
              summary.weights_sha256.c_str());
}

// "1 test image", "2 validation images": axes are plurals with an s.
std::string TestCount(const EvaluateSummary& summary, bool held_out) {
  const std::string axis = Printable(summary.axis);
  return Counted(summary.count, (held_out ? "validation " : "test ") +
                                    axis.substr(0, axis.size() - 1));
}

void PrintSummary(const EvalCommandFlags& flags, const EvaluateSummary& summary,
                  const TextFigures* text) {
  if (flags.json) return PrintJson(summary, text);
  std::printf("%s on %s: ", Printable(summary.model).c_str(),
              TestCount(summary, flags.data.validation > 0).c_str());
  if (text != nullptr) {
    std::printf("BLEU %.2f, ", text->bleu.bleu);
  }
  for (const EvaluateSummary::Metric& metric : summary.metrics) {
    std::printf("%s %s, ", Printable(metric.name).c_str(),
                MetricText(metric.name, metric.value, metric.is_share).c_str());
  }
  char loss[64] = "the loss is not finite";
  if (std::isfinite(summary.loss)) {
    std::snprintf(loss, sizeof(loss), "loss %.4f", summary.loss);
  }
  std::printf("%s, arena %s\n", loss,
              FormatBytesUp(summary.arena_bytes).c_str());
}

int RunImages(const EvalCommandFlags& flags, const EvaluateOptions& options) {
  auto data = OpenData(flags.data);
  if (!data.ok()) return Report(data.status());
  auto search = PlanEvaluation(flags.from, options);
  if (!search.ok()) return Report(search.status());
  if (const int code = ReportUnlessFits(*search); code != 0) return code;
  auto summary =
      Evaluate(flags.from, std::move(*search).Take(), **data, options.average);
  if (!summary.ok()) return Report(summary.status());
  PrintSummary(flags, *summary, nullptr);
  return 0;
}

int RunText(const EvalCommandFlags& flags, const EvaluateOptions& options) {
  auto data = TextData::Open(flags.data.data);
  if (!data.ok()) return Report(data.status());
  auto search = PlanEvaluation(flags.from, options);
  if (!search.ok()) return Report(search.status());
  if (const int code = ReportUnlessFits(*search); code != 0) return code;
  const auto source = MakeTextBatches(**data, {.test = TextSplit::kTest});
  auto summary =
      Evaluate(flags.from, std::move(*search).Take(), *source, options.average);
  if (!summary.ok()) return Report(summary.status());
  TranslateOptions translate = flags.search;
  translate.threads = options.threads;
  translate.budget = options.budget;
  translate.average = options.average;
  translate.max_source = (*data)->longest(TextSplit::kTest, TextSide::kSource);
  auto translator = Translator::Open(flags.from, translate);
  if (!translator.ok()) return Report(translator.status());
  auto bleu = (*translator)->Bleu(**data, TextSplit::kTest);
  if (!bleu.ok()) return Report(bleu.status());
  TextFigures text{.bleu = *bleu};
  for (const EvaluateSummary::Metric& metric : summary->metrics) {
    if (metric.name == "nll") text.perplexity = std::exp(metric.value);
  }
  PrintSummary(flags, *summary, &text);
  return 0;
}

// What would have no effect.
Status CheckFits(const EvalCommandFlags& flags, bool is_text) {
  const TranslateOptions none{.beam = 1};
  if (is_text && flags.data.validation > 0) {
    return Status::Usage(
        "--validation holds out images; prepared text has a validation split "
        "of its own");
  }
  const bool searches = flags.search.beam != none.beam ||
                        flags.search.length_penalty != none.length_penalty ||
                        flags.search.max_length != none.max_length;
  if (is_text || !searches) return Status::Ok();
  return Status::Usage(
      "--beam, --length-penalty and --max-length are for prepared text, which "
      "is translated");
}

int Run(const EvalCommandFlags& flags) {
  auto budget = ParseBudget(flags.budget);
  if (!budget.ok()) return Report(budget.status());
  const bool is_text = IsPreparedText(flags.data.data);
  if (const Status status = CheckFits(flags, is_text); !status.ok()) {
    return Report(status);
  }
  EvaluateOptions options = flags.options;
  if (options.batch == 0) {
    options.batch = is_text ? kTokensAtOnce : kImagesAtOnce;
  }
  options.budget = *budget;
  options.average = flags.search.average;
  options.threads = ThreadsOrDefault(options.threads);
  return is_text ? RunText(flags, options) : RunImages(flags, options);
}

}  // namespace

Command AddEvalCommand(CLI::App& app) {
  auto flags = std::make_shared<EvalCommandFlags>();
  CLI::App* command =
      app.add_subcommand("eval", "Test weights that `train --out` wrote");
  command->add_option("--from", flags->from, "The folder given to --out")
      ->required()
      ->check(CheckNotEmpty);
  AddDataFlags(*command, flags->data, /*required=*/true);
  AddValidationFlag(*command, flags->data);
  AddWhole(*command, "--batch", flags->options.batch, kImages,
           "Images per pass (default 100), or tokens (default 4000); the "
           "accuracy does not depend on it");
  AddSearchFlags(*command, flags->search, ", for BLEU (default 1)");
  AddThreadsFlag(*command, flags->options.threads);
  AddBudgetFlag(*command, flags->budget);
  command->add_flag("--json", flags->json, "One JSON object");
  command->footer("Example:\n  thimble eval --from run1 --data fashion-mnist");
  return [flags] { return Run(*flags); };
}

}  // namespace thimble::cli
