// SPDX-License-Identifier: Apache-2.0
#include "planner/recompute/rewrite.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "graph/op.h"
#include "planner/program_copy.h"

namespace thimble::planner {
namespace {

class Rewriter {
 public:
  explicit Rewriter(const Program& source) : source_(source), copy_(source) {
    runs_.resize(source.graph.ops().size());
  }

  Program Run(const Script& script) {
    for (size_t phase = 0; phase < kPhases; ++phase) {
      const bool is_scripted = phase == static_cast<size_t>(Phase::kMicrobatch);
      for (OpId op : is_scripted ? script : source_.phases[phase]) {
        phases_[phase].push_back(Add(op));
      }
    }
    for (uint32_t runs : runs_) TH_CHECK(runs > 0);
    Program made = copy_.Take();
    made.origins = std::move(origins_);
    for (size_t phase = 0; phase < kPhases; ++phase) {
      made.phases[phase] = std::move(phases_[phase]);
    }
    return made;
  }

 private:
  OpId Add(OpId id) {
    const Op& op = source_.graph.op(id);
    const uint32_t run = runs_[id.i]++;
    origins_.push_back(source_.origins[id.i]);
    if (run == 0)
      return copy_.graph().AddOp(op.name, op.def, op.inputs, op.outputs);
    OpOrigin& origin = origins_.back();
    TH_CHECK(origin.part == OpOrigin::Part::kForward);
    origin.part = OpOrigin::Part::kRecompute;
    const RepeatForm form = op.def->Repeat();
    std::vector<ValueId> inputs = op.inputs;
    if (form.reads_saved) {
      inputs.insert(inputs.end(), op.outputs.begin() + 1, op.outputs.end());
    }
    const std::string number = run == 1 ? "" : std::to_string(run);
    return copy_.graph().AddOp(op.name + ".again" + number, form.def, inputs,
                               op.outputs);
  }

  const Program& source_;
  ProgramCopy copy_;
  std::vector<OpOrigin> origins_;
  std::array<std::vector<OpId>, kPhases> phases_;
  std::vector<uint32_t> runs_;  // per op of the source
};

}  // namespace

Program Rewrite(const Program& program, const Script& script) {
  return Rewriter(program).Run(script);
}

}  // namespace thimble::planner
