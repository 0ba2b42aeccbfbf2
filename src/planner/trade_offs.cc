// SPDX-License-Identifier: Apache-2.0
#include "planner/trade_offs.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "planner/recompute/auto.h"
#include "thimble/size.h"

namespace thimble::planner {
namespace {

constexpr size_t kTradeOffs = 3;
// Smaller steps are not worth a line: of bytes where they get fewer, of FLOPs
// where they do.
constexpr double kLeastStepOfBytes = 0.02;
constexpr double kLeastStepOfFlops = 0.01;

// Finds alternatives to a plan at its microbatch size. Each is one that `auto`
// gives for a budget of its own bytes.
class Neighbours {
 public:
  Neighbours(Alternatives& all, const Plan& plan)
      : all_(all),
        arena_(plan.arena_bytes()),
        flops_(plan.flops_step() / plan.microbatches()) {}

  // The nearest first, taken from both sides in turn.
  std::vector<size_t> Nearest() {
    std::optional<size_t> less;
    std::optional<size_t> more = AtNoCost();
    std::vector<size_t> found;
    const auto add = [&found](std::optional<size_t> index) {
      if (index.has_value() && std::ranges::count(found, *index) == 0) {
        found.push_back(*index);
      }
      return index.has_value();
    };
    add(more);
    bool has_less = true;
    bool has_more = true;
    while (found.size() < kTradeOffs && (has_less || has_more)) {
      if (has_less) {
        less = WithFewerBytes(less.has_value() ? all_.ArenaOf(*less) : arena_);
        has_less = add(less);
      }
      if (has_more && found.size() < kTradeOffs) {
        more = WithLessWork(more.has_value() ? all_.FlopsOf(*more) : flops_);
        has_more = add(more);
      }
    }
    return found;
  }

  // The roundest budget that gives this one: others may be next to it.
  uint64_t BudgetFor(size_t index) {
    const size_t exact = all_.ArenaOf(index);
    const Result<uint64_t> rounded = ParseSize(FormatBytesUp(exact));
    return rounded.ok() && all_.LeastWorkWithin(*rounded) == index ? *rounded
                                                                   : exact;
  }

 private:
  // Less work in no more bytes. A strategy given by name may leave some.
  std::optional<size_t> AtNoCost() {
    const auto same = all_.LeastWorkWithin(arena_);
    if (!same.has_value() || all_.FlopsOf(*same) > LessWorkThan(flops_)) {
      return std::nullopt;
    }
    return same;
  }

  std::optional<size_t> WithFewerBytes(size_t than) {
    const auto step =
        static_cast<size_t>(kLeastStepOfBytes * static_cast<double>(arena_));
    if (than <= step) return std::nullopt;
    return all_.LeastWorkWithin(than - step);
  }

  std::optional<size_t> WithLessWork(int64_t than) {
    const auto fewest = all_.FewestBytesBelow(
        std::numeric_limits<uint64_t>::max(), LessWorkThan(than));
    if (!fewest.has_value()) return std::nullopt;
    return all_.LeastWorkWithin(all_.ArenaOf(*fewest));
  }

  int64_t LessWorkThan(int64_t flops) const {
    return flops - static_cast<int64_t>(kLeastStepOfFlops *
                                        static_cast<double>(flops_));
  }

  Alternatives& all_;
  size_t arena_;
  int64_t flops_;
};

}  // namespace

std::vector<TradeOff> FindTradeOffs(Choices& choices, const Plan& plan) {
  if (!plan.options().training) return {};
  Setting setting = choices.setting();
  const PlanOptions& made = plan.options();
  setting.storage =
      choices.StorageAt({{made.precision, made.optimizer}, made.sparse});
  Alternatives& all = choices.AlternativesOf(setting, plan.microbatch());
  Neighbours neighbours(all, plan);
  std::vector<TradeOff> found;
  for (size_t index : neighbours.Nearest()) {
    TradeOff trade{plan.options(), all.ArenaOf(index),
                   all.FlopsOf(index) * plan.microbatches()};
    trade.options.recompute = all.NameOf(index);
    trade.options.budget.reset();
    if (trade.options.recompute == "auto") {
      trade.options.budget = neighbours.BudgetFor(index);
    }
    // Else another budget could mean another storage or microbatch.
    trade.options.allow_precision.clear();
    trade.options.allow_nonzero.clear();
    if (plan.microbatch() != plan.batch()) {
      trade.options.microbatch = plan.microbatch();
    }
    found.push_back(std::move(trade));
  }
  std::sort(found.begin(), found.end(),
            [](const TradeOff& a, const TradeOff& b) {
              return a.arena_bytes < b.arena_bytes;
            });
  return found;
}

}  // namespace thimble::planner
