// SPDX-License-Identifier: Apache-2.0
//
// The trade of bytes for work along a chain of unlike stages, as a dynamic
// programme (after Beaumont et al., "Optimal checkpointing for heterogeneous
// chains"). For every run of stages it finds the schedules of which none takes
// fewer bytes and less work than another. A value that is kept stays until its
// own backward has run; among such schedules the front is exact, but where it
// is thinned.
//
// It knows numbers only: bytes and costs of stages. stage_costs.h measures
// them; WriteScript turns a schedule into a script.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace thimble::planner {

// A way to keep something of a stage for its backward pass.
struct SaveOption {
  int64_t saved = 0;         // bytes kept between forward and backward
  int64_t forward_peak = 0;  // beside the stage's input, which stays
  // Likewise, all gradients included. The input is not needed to the end.
  int64_t backward_peak = 0;
  int64_t backward_cost = 0;  // work to make again what is not saved
};

struct StageCosts {
  int64_t input = 0;         // bytes that the stage before carries on
  int64_t gradient = 0;      // bytes of gradients before its backward runs
  int64_t pinned_peak = 0;   // of forward, beside an input that stays
  int64_t passing_peak = 0;  // of forward, with an input that it reads last
  int64_t forward_cost = 0;
  // The first saves nothing; there may be other ways to save nothing.
  std::vector<SaveOption> options;
};

// What to do with stages [begin, end).
struct Decision {
  enum class Kind : uint8_t {
    kLeaf,  // one stage: backward, making again what it reads
    kSave,  // forward of the first with option `index`, the rest, its backward
    kCut,   // forward up to stage `index`; from there on; then the others
  };
  Kind kind = Kind::kLeaf;
  uint32_t index = 0;
  uint32_t first = 0, second = 0;  // points of the runs behind it
};

// One schedule of a run: its bytes beside the run's input, and its work.
struct FrontPoint {
  int64_t bytes = 0;
  int64_t cost = 0;
  Decision decision;
};

class ChainFront {
 public:
  // A front keeps at most `max_points`. REQUIRES: at least four.
  ChainFront(const std::vector<StageCosts>& stages, size_t max_points);

  // Of the stages [begin, end), fewest bytes first, least work last.
  const std::vector<FrontPoint>& Of(size_t begin, size_t end) const {
    return fronts_[begin * (count_ + 1) + end];
  }
  // Of the whole chain.
  const std::vector<FrontPoint>& All() const { return Of(0, count_); }

 private:
  void Solve(const std::vector<StageCosts>& stages, size_t begin, size_t end);

  size_t count_;
  size_t max_points_;
  std::vector<std::vector<FrontPoint>> fronts_;
};

}  // namespace thimble::planner
