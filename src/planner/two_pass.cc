// SPDX-License-Identifier: Apache-2.0
#include "planner/two_pass.h"

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "graph/op.h"
#include "ops/fused_conv.h"
#include "ops/norm_relu_conv.h"
#include "ops/two_pass_grad.h"
#include "planner/placed_buffers.h"
#include "planner/program_copy.h"
#include "planner/schedule.h"

namespace thimble::planner {
namespace {

// A choice has fewer bytes than the one before by this part of them, unless it
// is the last.
constexpr size_t kWorthTelling = 100;

// Copies a program op by op, with pairs replaced.
class TwoPassRewriter {
 public:
  TwoPassRewriter(const Program& source, std::span<const TwoPassPair> pairs)
      : source_(source), copy_(source) {
    partner_.resize(source.graph.ops().size());
    for (const TwoPassPair& pair : pairs) {
      partner_[pair.grad_input.i] = pair.norm_grad;
      partner_[pair.norm_grad.i] = pair.grad_input;
    }
  }

  Program Run() {
    for (uint32_t k = 0; k < partner_.size(); ++k) Add({k});
    Program made = copy_.Take();
    made.origins = source_.origins;
    made.phases = source_.phases;
    return made;
  }

 private:
  void Add(OpId id) {
    const Op& op = source_.graph.op(id);
    if (!partner_[id.i].valid()) {
      copy_.graph().AddOp(op.name, op.def, op.inputs, op.outputs);
    } else if (Is<ops::NormReluConvGradInput>(op)) {
      const auto& def = static_cast<const ops::NormReluConvGradInput&>(*op.def);
      copy_.graph().AddOp(op.name,
                          std::make_shared<ops::NormReluConvGradSums>(
                              def.geometry(), def.epsilon()),
                          op.inputs,
                          {op.outputs.begin() + 1, op.outputs.end()});
    } else {
      AddRest(op, source_.graph.op(partner_[id.i]));
    }
  }

  void AddRest(const Op& norm_grad, const Op& grad_input) {
    const auto& def =
        static_cast<const ops::NormReluConvGradInput&>(*grad_input.def);
    std::vector<ValueId> inputs = grad_input.inputs;
    // grad_gamma and grad_beta, and the other gradient where there is one.
    inputs.insert(inputs.end(), norm_grad.inputs.begin() + 5,
                  norm_grad.inputs.end());
    const bool with_other =
        static_cast<const ops::NormGrad&>(*norm_grad.def).with_other();
    copy_.graph().AddOp(norm_grad.name,
                        std::make_shared<ops::NormReluConvGradRest>(
                            def.geometry(), def.epsilon(), with_other),
                        inputs, norm_grad.outputs);
  }

  const Program& source_;
  ProgramCopy copy_;
  std::vector<OpId> partner_;  // per op; invalid where it stays as it is
};

int64_t FlopsOf(const Graph& graph, OpId id) {
  const Op& op = graph.op(id);
  return op.def->Flops(graph.InputSpecs(op), graph.OutputSpecs(op));
}

// What is live at most while a pair's ops run, in one pass and in two.
struct PairPeak {
  TwoPassPair pair;
  size_t one_pass = 0;
  size_t two_pass = 0;
  int64_t extra_work = 0;
};

class PairMeter {
 public:
  PairMeter(const Program& program, const PlanOptions& options)
      : program_(program),
        pairs_(FindTwoPassPairs(program)),
        two_pass_(InTwoPasses(program, pairs_)),
        one_live_(LiveBytes(program, options)),
        two_live_(LiveBytes(two_pass_, options)) {
    const auto& phase = program.phases[static_cast<size_t>(Phase::kMicrobatch)];
    time_.resize(program.graph.ops().size());
    for (size_t t = 0; t < phase.size(); ++t) time_[phase[t].i] = t;
  }

  // Those that two passes help, the highest first. Sets `elsewhere` to the most
  // that is live outside of them.
  std::vector<PairPeak> Measure(size_t& elsewhere) {
    std::vector<PairPeak> peaks;
    for (const TwoPassPair& pair : pairs_) {
      const PairPeak peak = MeasurePair(pair);
      if (peak.two_pass < peak.one_pass) peaks.push_back(peak);
    }
    std::vector<size_t> live = one_live_;
    for (const PairPeak& peak : peaks) {
      std::fill(At(live, peak.pair.grad_input),
                At(live, peak.pair.norm_grad) + 1, 0);
    }
    elsewhere = *std::max_element(live.begin(), live.end());
    std::stable_sort(peaks.begin(), peaks.end(),
                     [](const PairPeak& a, const PairPeak& b) {
                       return a.one_pass > b.one_pass;
                     });
    return peaks;
  }

 private:
  std::vector<size_t>::iterator At(std::vector<size_t>& live, OpId op) const {
    return live.begin() + static_cast<std::ptrdiff_t>(time_[op.i]);
  }

  PairPeak MeasurePair(const TwoPassPair& pair) {
    const auto most = [&](std::vector<size_t>& live) {
      return *std::max_element(At(live, pair.grad_input),
                               At(live, pair.norm_grad) + 1);
    };
    PairPeak peak{
        .pair = pair, .one_pass = most(one_live_), .two_pass = most(two_live_)};
    for (OpId op : {pair.grad_input, pair.norm_grad}) {
      peak.extra_work +=
          FlopsOf(two_pass_.graph, op) - FlopsOf(program_.graph, op);
    }
    return peak;
  }

  const Program& program_;
  std::vector<TwoPassPair> pairs_;
  Program two_pass_;
  std::vector<size_t> one_live_, two_live_;  // per time
  std::vector<size_t> time_;                 // per op of the microbatch phase
};

}  // namespace

std::vector<TwoPassPair> FindTwoPassPairs(const Program& program) {
  const Graph& graph = program.graph;
  // The only reader of each value; invalid where there are none or several.
  std::vector<OpId> reader(graph.values().size());
  std::vector<int> readers(graph.values().size());
  for (uint32_t k = 0; k < graph.ops().size(); ++k) {
    for (ValueId v : graph.ops()[k].inputs) {
      reader[v.i] = readers[v.i]++ == 0 ? OpId{k} : OpId{};
    }
  }
  std::vector<TwoPassPair> pairs;
  for (uint32_t k = 0; k < graph.ops().size(); ++k) {
    const Op& op = graph.ops()[k];
    if (!Is<ops::NormReluConvGradInput>(op)) continue;
    const OpId rest = reader[op.outputs[0].i];
    if (!rest.valid()) continue;
    if (!Is<ops::NormGrad>(graph.op(rest))) continue;
    pairs.push_back({{k}, rest});
  }
  return pairs;
}

Program InTwoPasses(const Program& program,
                    std::span<const TwoPassPair> pairs) {
  return TwoPassRewriter(program, pairs).Run();
}

std::vector<TwoPassChoice> FindTwoPassChoices(const Program& program,
                                              const PlanOptions& options) {
  std::vector<TwoPassChoice> choices;
  PairMeter meter(program, options);
  size_t floor = 0;
  const std::vector<PairPeak> peaks = meter.Measure(floor);
  TwoPassChoice choice;
  choice.work = CountFlops(program.graph, MakeSchedule(program)).step;
  size_t told = peaks.empty() ? 0 : peaks[0].one_pass;
  for (size_t i = 0; i < peaks.size() && peaks[i].one_pass > floor; ++i) {
    choice.pairs.push_back(peaks[i].pair);
    choice.work += peaks[i].extra_work;
    floor = std::max(floor, peaks[i].two_pass);
    const size_t next = i + 1 < peaks.size() ? peaks[i + 1].one_pass : 0;
    choice.most_live = std::max(floor, next);
    const bool is_last = next <= floor;
    if (!is_last && choice.most_live > told - told / kWorthTelling) continue;
    told = choice.most_live;
    choices.push_back(choice);
  }
  return choices;
}

Program WithLowestTwoPassPeak(Program program, const PlanOptions& options) {
  const std::vector<TwoPassChoice> choices =
      FindTwoPassChoices(program, options);
  if (choices.empty()) return program;
  return InTwoPasses(program, choices.back().pairs);
}

}  // namespace thimble::planner
