// SPDX-License-Identifier: Apache-2.0
//
// Where the time of a training step goes, by kind of op, and how much of it is
// bare convolution: the same convolutions once more, without what is fused into
// them, timed in the same process.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bare_conv.h"
#include "clock.h"
#include "graph/op.h"
#include "thimble/model.h"
#include "thimble/number.h"
#include "thimble/plan.h"
#include "thimble/precision.h"
#include "thimble/session.h"

namespace thimble::bench {
namespace {

struct Options {
  std::string model = "wrn-28-2";
  int64_t batch = 0;  // the model's own
  PlanOptions plan = {.threads = 2};
  int64_t steps = 20;
};

[[noreturn]] void Fail(const std::string& message, int code) {
  fmt::print(stderr, "step: {}\n", message);
  std::exit(code);
}

int64_t Positive(std::string_view option, const std::string& text) {
  const std::optional<uint64_t> number = ParseWhole(text);
  if (!number.has_value() || *number < 1 || *number > 1'000'000) {
    Fail(fmt::format("{} needs a positive number, not '{}'", option, text), 2);
  }
  return static_cast<int64_t>(*number);
}

Options Parse(std::span<char*> arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view option = arguments[i];
    if (!option.starts_with("--")) {
      options.model = option;
      continue;
    }
    if (i + 1 == arguments.size()) {
      Fail(fmt::format("{} needs a value; --help lists options", option), 2);
    }
    const std::string value = arguments[++i];
    if (option == "--batch") {
      options.batch = Positive(option, value);
    } else if (option == "--microbatch") {
      options.plan.microbatch = Positive(option, value);
    } else if (option == "--threads") {
      options.plan.threads = static_cast<int>(Positive(option, value));
    } else if (option == "--steps") {
      options.steps = Positive(option, value);
    } else if (option == "--checkpoint") {
      options.plan.recompute = value;
    } else if (option == "--precision") {
      const Result<DType> dtype = ParseFloatType(value);
      if (!dtype.ok()) Fail(dtype.status().message(), 2);
      options.plan.precision = Precision::All(*dtype);
    } else {
      Fail(fmt::format("unknown option '{}'; --help lists them", option), 2);
    }
  }
  return options;
}

// Sums up the time of each moment of the schedule over all steps.
class Stopwatch final : public OpWatcher {
 public:
  explicit Stopwatch(size_t moments) : seconds_(moments) {}
  void Ran(uint32_t time) override {
    const double now = Now(/*cpu=*/false);
    seconds_[time] += now - last_;
    last_ = now;
  }
  void Start() { last_ = Now(/*cpu=*/false); }
  void Reset() { std::ranges::fill(seconds_, 0.0); }
  std::span<const double> seconds() const { return seconds_; }

 private:
  std::vector<double> seconds_;
  double last_ = 0;
};

// Sentences of as many tokens, like those of real text.
constexpr int64_t kSentence = 25;

// Of `rows` tokens or images, of each axis.
int64_t CountOf(const Axis& axis, int64_t rows) {
  const bool is_of_sentences = axis.name == "sentences";
  return is_of_sentences ? rows / kSentence : rows;
}

// Anything but zeros, which some kernels would be quicker with.
void Feed(Session& session) {
  for (const End& feed : session.plan().train_ends().feeds) {
    const DType dtype =
        session.plan().graph().value(feed.value).spec.storage.dtype;
    uint32_t noise = 1;
    if (feed.name.ends_with("_ends")) {
      int32_t end = 0;
      for (int32_t& x : session.Elements<int32_t>(feed.value)) {
        x = end += kSentence;
      }
    } else if (dtype == DType::kU8) {
      for (uint8_t& x : session.Elements<uint8_t>(feed.value)) {
        noise = noise * 1664525 + 1013904223;
        x = static_cast<uint8_t>(noise >> 24);
      }
    } else {
      int32_t label = 0;
      // Rows of a table, where tokens: not always the same ones.
      const int32_t labels =
          session.plan().graph().axes().size() > 1 ? 6000 : 10;
      for (int32_t& x : session.Elements<int32_t>(feed.value)) {
        x = label++ % labels;
      }
    }
  }
}

AxisParts PartsFrom(const Plan& plan, int64_t first) {
  AxisParts parts = {};
  for (size_t i = 0; i < plan.graph().axes().size(); ++i) {
    const Axis& axis = plan.graph().axes()[i];
    parts[i] = {.first = CountOf(axis, first),
                .count = CountOf(axis, plan.microbatch()),
                .total = CountOf(axis, plan.batch())};
  }
  return parts;
}

double RunSteps(Session& session, Stopwatch& watch, int64_t steps) {
  const Plan& plan = session.plan();
  double seconds = 0;
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t first = 0; first < plan.batch(); first += plan.microbatch()) {
      Feed(session);  // others use its bytes later; not part of the time
      watch.Start();
      const double begin = Now(/*cpu=*/false);
      (void)session.Differentiate(PartsFrom(plan, first));
      seconds += Now(/*cpu=*/false) - begin;
    }
    watch.Start();
    const double begin = Now(/*cpu=*/false);
    (void)session.Update(1e-3f);
    seconds += Now(/*cpu=*/false) - begin;
  }
  return seconds / static_cast<double>(steps);
}

struct Kind {
  int64_t ops = 0;
  double seconds = 0;
  double bare = 0;  // of the convolutions in it, without what is fused
};

void Print(const Plan& plan, const Stopwatch& watch, const Options& options,
           double step) {
  std::map<std::string, Kind> kinds;
  BareConvTimer bare(plan.options().threads);
  const auto passes = static_cast<double>(plan.microbatches());
  const auto steps = static_cast<double>(options.steps);
  for (uint32_t t = 0; t < plan.schedule().size(); ++t) {
    if (plan.schedule()[t].phase == Phase::kEvaluate) break;
    const Op& op = plan.graph().op(plan.schedule()[t].op);
    Kind& kind = kinds[std::string(op.def->name())];
    ++kind.ops;
    kind.seconds += watch.seconds()[t] / steps;
    kind.bare += passes * bare.Seconds(plan.graph(), op);
  }
  std::vector<std::pair<std::string, Kind>> rows(kinds.begin(), kinds.end());
  std::ranges::sort(rows, {},
                    [](const auto& row) { return -row.second.seconds; });
  fmt::print("{:<28} {:>5} {:>9} {:>6} {:>9}\n", "op", "ops", "ms/step", "%",
             "bare ms");
  double all_bare = 0;
  for (const auto& [name, kind] : rows) {
    const std::string bare_ms =
        kind.bare > 0 ? fmt::format("{:.2f}", 1e3 * kind.bare) : "";
    fmt::print("{:<28} {:>5} {:>9.2f} {:>6.1f} {:>9}\n", name, kind.ops,
               1e3 * kind.seconds, 100 * kind.seconds / step, bare_ms);
    all_bare += kind.bare;
  }
  fmt::print(
      "step: {:.2f} ms, {:.1f} {}/s; bare convolutions {:.2f} ms; "
      "around them {:.1f}% of the step\n",
      1e3 * step, static_cast<double>(plan.batch()) / step,
      plan.graph().axes()[0].name, 1e3 * all_bare, 100 * (1 - all_bare / step));
}

int Main(std::span<char*> arguments) {
  Options options = Parse(arguments);
  const TrainingPreset preset = PresetOf(options.model);
  if (options.batch == 0) options.batch = preset.is_of_text ? 2000 : 100;
  const Rounding rounding = options.plan.precision.parameters == DType::kBF16
                                ? Rounding::kStochastic
                                : Rounding::kNearest;
  options.plan.optimizer =
      preset.optimizer == "sgd"
          ? Sgd({.rounding = rounding})
          : Adam({.decoupled = true, .rounding = rounding});
  const Result<Model> model = BuildModel(
      options.model, {.batch = options.batch, .images = preset.images});
  if (!model.ok()) Fail(model.status().message(), 1);
  const Result<Plan> plan = MakePlan(*model, options.plan);
  if (!plan.ok()) Fail(plan.status().message(), 1);
  Stopwatch watch(plan->schedule().size());
  auto session = Session::Create(*plan, {.watcher = &watch});
  if (!session.ok()) Fail(session.status().message(), 1);
  (*session)->Initialize(1);
  constexpr int64_t kWarm = 3;
  (void)RunSteps(**session, watch, kWarm);
  watch.Reset();
  const double step = RunSteps(**session, watch, options.steps);
  fmt::print("{}, batch {}, microbatch {}, {}, {}, {} threads, target {}\n",
             options.model, plan->batch(), plan->microbatch(),
             plan->options().precision.ToString(), plan->options().recompute,
             plan->options().threads, (*session)->target());
  Print(*plan, watch, options, step);
  return 0;
}

}  // namespace
}  // namespace thimble::bench

int main(int argc, char** argv) {
  return thimble::bench::Main({argv + 1, static_cast<size_t>(argc - 1)});
}
