// SPDX-License-Identifier: Apache-2.0
//
// PlanSearch: a planning call that can be asked for more than its plan. It also
// gives the trade-offs next to the plan, and, where no plan fits the budget,
// the reason. What was built to find the plan is kept, and the answers are read
// from it. MakePlan (thimble/plan.h) is the short form for those who want the
// plan alone. A search belongs to one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "thimble/graph.h"
#include "thimble/plan.h"
#include "thimble/status.h"

namespace thimble {

// Another plan of the same model, with other bytes and other work.
struct TradeOff {
  PlanOptions options;  // with these, MakePlan gives it
  size_t arena_bytes = 0;
  int64_t flops_step = 0;
};

// One change of the options that may take fewer bytes.
enum class Freedom : uint8_t {
  kOneThread,      // threads = 1: scratch is planned per thread
  kRecomputation,  // recompute = "auto" in place of a strategy by name
  kMicrobatch,     // allow_microbatch, in place of a microbatch if one is given
  kPrecision,      // allow_precision, of f16 for all roles
  kOneAtATime,     // microbatch = 1 in evaluation, which gives the same results
};

// The fewest bytes that one freedom alone can reach. Planned, not estimated.
struct Reach {
  Freedom freedom = Freedom::kOneThread;
  // With these, MakePlan gives that plan. Their budget is `arena_bytes`.
  PlanOptions options;
  size_t arena_bytes = 0;
  int64_t microbatch = 0;
};

// Why a budget cannot be kept, and what could be changed.
struct Refusal {
  std::string model;
  int64_t batch = 0;
  // Of the plan with the fewest bytes that the options allow:
  int64_t microbatch = 0;
  PlanOptions options;
  size_t needed = 0;  // its arena, the smallest budget that works
  uint64_t budget = 0;
  std::string peak_op;                      // where most of its bytes are live
  std::array<size_t, kRoles> peak_bytes{};  // by role, there
  // What the options fix and could leave open, in the order of Freedom. All
  // but recomputation and one at a time are left out if they take no fewer
  // bytes.
  std::vector<Reach> reaches;
  // Whether PlanOptions::two_pass might take fewer bytes. To know for sure
  // would take several times as long.
  bool two_passes_may_help = false;
};

// The refusal in words: what is needed, what there is and where the peak
// stands, then the smallest budget that works. It ends without a full stop, so
// that whoever prints it can go on with the reaches, in words that its reader
// can use.
std::string NeedText(const Refusal& refusal);

// Whether fusion makes anything of the model's batch norms. Otherwise
// PlanOptions::two_pass has nothing to do.
bool HasFusedConvolutions(const Model& model);

class PlanSearch {
 public:
  // Fails if the options are impossible. A budget that is too small is no
  // failure here: see fits().
  static Result<PlanSearch> Create(const Model& model,
                                   const PlanOptions& options);
  PlanSearch(PlanSearch&& other) noexcept;
  PlanSearch& operator=(PlanSearch&& other) noexcept;
  ~PlanSearch();

  // The plan that keeps the budget. If none does, the one that takes the fewest
  // bytes of those that the options allow.
  const Plan& plan() const;
  bool fits() const;

  // Gives the plan away and frees everything else.
  Plan Take() &&;

  // Up to three plans near plan(): some with fewer bytes for more work, some
  // with less work for more bytes, each far enough away to be worth it. In the
  // order of their bytes. All have the microbatch and the precision of plan(),
  // so results do not depend on which one is taken.
  std::vector<TradeOff> TradeOffs();

  // REQUIRES: !fits().
  Refusal Explain();
  // The same in words, as an error. Ok if the plan fits.
  Status CheckBudget();

 private:
  struct State;
  explicit PlanSearch(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace thimble
