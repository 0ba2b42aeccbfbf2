// SPDX-License-Identifier: Apache-2.0
#include "words.h"

#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>

#include "thimble/size.h"
#include "thimble/status.h"

namespace thimble::cli {
namespace {

// How to allow `word`, where something may be allowed `already`.
std::string AllowText(const char* word, bool already) {
  return already ? std::string(word) + " added to --allow"
                 : std::string("--allow ") + word;
}

std::string ReachText(const Refusal& refusal, const Reach& reach,
                      bool precision_is_typed) {
  const std::string is =
      " it is " + std::to_string(reach.arena_bytes) + " bytes";
  switch (reach.freedom) {
    case Freedom::kOneThread:
      return ", with --threads 1" + is;
    case Freedom::kRecomputation:
      return ", with --checkpoint auto" + is;
    case Freedom::kMicrobatch:
      return "; with " +
             AllowText("microbatch",
                       !refusal.options.allow_precision.empty() ||
                           !refusal.options.allow_nonzero.empty()) +
             (refusal.options.microbatch > 0 ? " in place of --microbatch"
                                             : "") +
             is + ", at microbatch " + std::to_string(reach.microbatch);
    case Freedom::kPrecision:
      return "; with " +
             AllowText("f16", refusal.options.allow_microbatch ||
                                  !refusal.options.allow_nonzero.empty()) +
             (precision_is_typed ? " in place of --precision" : "") + is +
             (reach.microbatch == refusal.microbatch
                  ? ""
                  : ", at microbatch " + std::to_string(reach.microbatch));
    case Freedom::kOneAtATime:
      return ", with --batch 1" + is;
  }
  return "";
}

// "--precision f16", or an option for each role.
std::string PrecisionText(const Precision& precision) {
  const std::string parameters = DTypeName(precision.parameters);
  if (precision == Precision::All(precision.parameters)) {
    return "--precision " + parameters;
  }
  std::string gradients = "none";
  if (precision.keeps_gradients) {
    gradients = precision.gradients == U8InBlocks()
                    ? "u8"
                    : DTypeName(precision.gradients.dtype);
  }
  return "--parameters " + parameters + " --gradients " + gradients +
         " --activations " + DTypeName(precision.activations);
}

// "4.10 MB less for 9.0% more FLOPs", "the same bytes for 3.0% fewer FLOPs".
std::string TradeText(const Plan& plan, const TradeOff& trade) {
  const size_t arena = plan.arena_bytes();
  const bool less = trade.arena_bytes < arena;
  const size_t bytes =
      less ? arena - trade.arena_bytes : trade.arena_bytes - arena;
  const double flops = 100.0 * (static_cast<double>(trade.flops_step) /
                                    static_cast<double>(plan.flops_step()) -
                                1.0);
  char work[64];
  std::snprintf(work, sizeof(work), " for %.1f%% %s FLOPs", std::abs(flops),
                flops < 0 ? "fewer" : "more");
  return (bytes == 0 ? "the same bytes"
                     : FormatBytes(bytes) + (less ? " less" : " more")) +
         work;
}

}  // namespace

std::string RefusalText(const Refusal& refusal, bool precision_is_typed) {
  std::string text = NeedText(refusal);
  for (const Reach& reach : refusal.reaches) {
    text += ReachText(refusal, reach, precision_is_typed);
  }
  if (refusal.two_passes_may_help) {
    text += "; --two-pass on may take less, for more work";
  }
  return text;
}

std::string OptionsText(const Plan& plan, const TradeOff& trade) {
  const PlanOptions& options = trade.options;
  std::string text;
  if (!plan.options().allow_precision.empty()) {
    text += PrecisionText(options.precision) + " ";
  }
  if (!plan.options().allow_nonzero.empty()) {
    char share[32];
    std::snprintf(share, sizeof(share), "--nonzero %g ",
                  options.sparse.nonzero);
    text += share;
  }
  if (options.microbatch != plan.options().microbatch) {
    text += "--microbatch " + std::to_string(options.microbatch) + " ";
  }
  // A star would have to be quoted.
  std::string strategy = options.recompute;
  if (strategy.ends_with('*')) strategy.back() = 's';
  text += "--checkpoint " + strategy;
  // --allow, which stays, is refused without a budget.
  const bool allows = plan.options().allow_microbatch ||
                      !plan.options().allow_precision.empty() ||
                      !plan.options().allow_nonzero.empty();
  if (options.budget.has_value() || allows) {
    const uint64_t budget = options.budget.value_or(trade.arena_bytes);
    std::string size = FormatBytesUp(budget);
    std::erase(size, ' ');
    const Result<uint64_t> parsed = ParseSize(size);
    const bool is_exact = parsed.ok() && *parsed == budget;
    text += " --budget " + (is_exact ? size : std::to_string(budget));
  }
  return text;
}

std::string TradeOffLines(const Plan& plan,
                          std::span<const TradeOff> trade_offs) {
  if (trade_offs.empty()) return "";
  std::string text =
      "\n  nearest trade-offs, in place of --checkpoint and --budget:\n";
  for (const TradeOff& trade : trade_offs) {
    text += "    " + TradeText(plan, trade) + ": " + OptionsText(plan, trade) +
            "\n";
  }
  return text;
}

std::string MetricText(std::string_view name, double value, bool is_share) {
  if (std::isnan(value)) return "not measured";
  char text[64];
  if (name == "nll") {
    std::snprintf(text, sizeof(text), "%.4f (perplexity %.4g)", value,
                  std::exp(value));
  } else {
    std::snprintf(text, sizeof(text), is_share ? "%.2f%%" : "%.4f",
                  is_share ? 100.0 * value : value);
  }
  return text;
}

namespace {

// What begins or ends as another one stands before it.
constexpr std::pair<std::string_view, std::string_view> kOptions[] = {
    {"DataOptions::data_dir", "--data-dir"},
    {"ExportOptions::overwrite", "--overwrite"},
    {"FetchDataset(\"cifar10\")", "`thimble data get cifar10`"},
    {"FetchOptions::from", "--from"},
    {"ImageBatchOptions::augment = Augment::kNone", "--augment none"},
    {"ImageBatchOptions::augment", "--augment"},
    {"ImageBatchOptions::keep_last", "--keep-last"},
    {"KnownDatasets()", "`thimble data list`"},
    {"Model::batch", "--batch"},
    {"PlanOptions::allow_nonzero", "--allow sparse"},
    {"PlanOptions::allow_microbatch", "--allow microbatch"},
    {"PlanOptions::budget", "--budget"},
    {"PlanOptions::ghost_batch", "--ghost-batch"},
    {"PlanOptions::microbatch", "--microbatch"},
    {"PlanOptions::min_microbatch", "--min-microbatch"},
    {"PlanOptions::recompute", "--checkpoint"},
    {"PlanOptions::sharing = false", "--sharing off"},
    {"PlanOptions::sharing", "--sharing"},
    {"PlanOptions::threads", "--threads"},
    {"PlanOptions::two_pass", "--two-pass"},
    {"PrepareOptions::max_length", "--max-length"},
    {"PrepareOptions::merges", "--merges"},
    {"PrepareOptions::out", "--out"},
    {"PrepareOptions::ratio", "--ratio"},
    {"PrepareText", "`thimble data prepare`"},
    {"Precision::gradients = U8InBlocks()", "--gradients u8"},
    {"Precision::gradients", "--gradients"},
    {"Precision::keeps_gradients = false", "--gradients none"},
    {"ReproduceOptions::memory_only", "--memory-only"},
    {"RewiringOptions::every", "--rewire-every"},
    {"RewiringOptions::method", "--rewire"},
    {"RewiringOptions::prune", "--prune"},
    {"RewiringOptions::reset = StateReset::kNewBlocks", "--reset new"},
    {"RewiringOptions::reset", "--reset"},
    {"SgdOptions::momentum > 0", "a --momentum above 0"},
    {"SgdOptions::momentum", "--momentum"},
    {"SgdOptions::nesterov = false", "--no-nesterov"},
    {"SgdOptions::nesterov", "--nesterov"},
    {"SparseWeights::block", "--pattern"},
    {"SparseWeights::nonzero", "--nonzero"},
    {"SparseWeights::weights", "--sparsify"},
    {"TextBatchOptions::max_tokens", "--batch"},
    {"Train with TrainOptions::out_dir", "`thimble train --out`"},
    {"Train with TrainOptions::resume", "`thimble train --resume`"},
    {"TrainOptions::keep_epochs", "--keep-epochs"},
    {"TrainOptions::learning_rate", "--lr"},
    {"TrainOptions::loss_scale", "--loss-scale"},
    {"TrainOptions::out_dir", "--out"},
    {"TrainOptions::overwrite", "--overwrite"},
    {"TrainOptions::resume", "--resume"},
    {"TrainOptions::warmup_steps", "--warmup"},
    {"TranslateOptions::average", "--average"},
    {"TranslateOptions::batch", "--batch"},
    {"TranslateOptions::beam", "--beam"},
    {"TranslateOptions::length_penalty", "--length-penalty"},
    {"TranslateOptions::max_length", "--max-length"},
    {"TranslateOptions::max_source", "--max-source"},
    {"TranslateOptions::nbest", "--nbest"},
};

}  // namespace

std::string WithOptions(std::string message) {
  for (const auto& [field, option] : kOptions) {
    for (size_t at = message.find(field); at != message.npos;
         at = message.find(field, at + option.size())) {
      message.replace(at, field.size(), option);
    }
  }
  return message;
}

}  // namespace thimble::cli
