// SPDX-License-Identifier: Apache-2.0
//
// The trade of bytes for work along a chain of unlike stages, as a dynamic
// programme (after Beaumont et al., "Optimal checkpointing for heterogeneous
// chains"). For every run of stages it finds the schedules of which none takes
// fewer bytes and less work than another. A value that is kept stays until its
// own backward has run; the inside of a stage may be kept where its input is
// not. Among such schedules the front is exact, but where it is thinned.
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
    // Forward up to stage `index`, of which the last saves `option`; from there
    // on; then the others.
    kCut,
  };
  Kind kind = Kind::kLeaf;
  uint32_t index = 0;
  uint32_t option = 0;
  uint32_t first = 0, second = 0;  // points of the runs behind it
};

// One schedule of a run: its bytes beside the run's input, and its work.
struct FrontPoint {
  int64_t bytes = 0;
  int64_t cost = 0;
  Decision decision;
};

// What a stage may save apart from its input.
enum class Insides : uint8_t {
  kWithInput,  // nothing: the inside is there as long as the input is
  kAlone,      // there are as many more fronts as a stage has options
};

class ChainFront {
 public:
  // A front keeps at most `max_points`. REQUIRES: at least four.
  ChainFront(const std::vector<StageCosts>& stages, Insides insides,
             size_t max_points);

  // Of the stages [begin, end), fewest bytes first, least work last. What
  // `option` of the last of them saves is there already, and counted.
  const std::vector<FrontPoint>& Of(size_t begin, size_t end,
                                    size_t option = 0) const {
    return fronts_[IndexOf(begin, end, option)];
  }
  // Of the whole chain.
  const std::vector<FrontPoint>& All() const {
    return Of(0, first_option_.size() - 1);
  }

 private:
  size_t IndexOf(size_t begin, size_t end, size_t option) const {
    return begin * first_option_.back() + first_option_[end - 1] + option;
  }
  void SolveLeaf(size_t stage, size_t option);
  void Solve(size_t begin, size_t end, size_t option);
  void AddCuts(size_t begin, size_t end, size_t option, size_t cut,
               int64_t peak, int64_t cost, std::vector<FrontPoint>& points);

  const std::vector<StageCosts>& stages_;  // while it is made
  Insides insides_;
  size_t max_points_;
  std::vector<size_t> first_option_;  // per stage: options of those before it
  std::vector<std::vector<FrontPoint>> fronts_;
};

}  // namespace thimble::planner
