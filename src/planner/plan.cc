// SPDX-License-Identifier: Apache-2.0
#include "thimble/plan.h"

#include <fmt/format.h>

#include "graph/op.h"
#include "planner/assemble.h"

namespace thimble {
namespace {

// What of the memory optimisations is switched off.
std::string AblationText(const PlanOptions& options) {
  std::string text;
  if (!options.inplace) text += " inplace off";
  if (!options.sharing) text += " sharing off";
  if (!options.fuse) text += " fuse off";
  return text;
}

}  // namespace

std::string planner::PassesText(int64_t batch, int64_t microbatch,
                                int64_t ghost_batch) {
  std::string text;
  if (microbatch != batch) text += fmt::format(" microbatch {}", microbatch);
  if (ghost_batch > 0) text += fmt::format(" ghost-batch {}", ghost_batch);
  return text;
}

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kMicrobatch:
      return "microbatch";
    case Phase::kUpdate:
      return "update";
    case Phase::kEvaluate:
      return "evaluate";
  }
  return "?";
}

const Op& Plan::peak_op() const {
  return parts_.graph.op(parts_.schedule[parts_.peak_time].op);
}

int64_t Plan::ParameterCount() const {
  int64_t count = parts_.graph.ParameterCount();
  if (!parts_.sparse.has_value()) return count;
  // They hold what their members are.
  for (ValueId v : {parts_.sparse->index, parts_.sparse->parameters}) {
    count -= parts_.graph.value(v).spec.shape.elements();
  }
  return count;
}

bool Plan::UpdatesInBackward() const {
  for (const ScheduledOp& s : parts_.schedule) {
    if (s.phase != Phase::kMicrobatch) continue;
    const Op& op = parts_.graph.op(s.op);
    for (uint32_t i = 0; i < op.inputs.size(); ++i) {
      if (((op.def->Mutates() >> i) & 1) != 0 &&
          parts_.graph.value(op.inputs[i]).role == Role::kParameter) {
        return true;
      }
    }
  }
  return false;
}

const Buffer& Plan::BufferOf(ValueId v) const {
  return parts_.buffers[parts_.buffer_of[v.i]];
}

size_t BesideArenaBytes(const Plan& plan) {
  // Of the program's code and constants, which were given back after planning,
  // training, testing and saving touch some 2.3 MB. The log and the C library
  // take less than 0.1.
  constexpr size_t kAnyPlan = 2'420'000;
  constexpr size_t kThread = 16 << 10;      // of its stack, and its own data
  constexpr size_t kOp = sizeof(uint32_t);  // runtime/executor.h
  size_t bytes = kAnyPlan +
                 kThread * static_cast<size_t>(plan.options().threads) +
                 kOp * plan.schedule().size();
  // Kernels of their own.
  constexpr size_t kBF16 = 200'000, kSparse = 160'000;
  constexpr size_t kMember = 320;  // its name, in the texts of what is saved
  const Precision& precision = plan.options().precision;
  if (precision.parameters == DType::kBF16 ||
      precision.activations == DType::kBF16) {
    bytes += kBF16;
  }
  if (plan.sparse().has_value()) {
    bytes += kSparse + kMember * plan.sparse()->members.size();
  }
  return bytes;
}

std::string Plan::Explain() const {
  std::string text = fmt::format(
      "plan {} batch {}{} threads {}{}{}\narena {} lower_bound {} peak '{}' at "
      "{}\n",
      parts_.model, parts_.batch,
      planner::PassesText(parts_.batch, parts_.microbatch,
                          parts_.options.ghost_batch),
      parts_.options.threads,
      parts_.options.recompute == "none"
          ? ""
          : " checkpoint " + parts_.options.recompute,
      AblationText(parts_.options), parts_.arena_bytes, parts_.lower_bound,
      peak_op().name, parts_.peak_time);
  for (size_t role = 0; role < kRoles; ++role) {
    text += fmt::format("  {:<20} {}\n", RoleName(static_cast<Role>(role)),
                        parts_.peak_bytes[role]);
  }
  text += "schedule\n";
  for (size_t t = 0; t < parts_.schedule.size(); ++t) {
    const ScheduledOp& s = parts_.schedule[t];
    const Op& op = parts_.graph.op(s.op);
    text += fmt::format("  {:4} {:<10} {} {}\n", t, PhaseName(s.phase),
                        op.def->name(), op.name);
  }
  text += "buffers\n";
  for (const Buffer& b : parts_.buffers) {
    text += fmt::format("  {:>9}+{:<9} [{}, {}) {} {}\n", b.offset, b.bytes,
                        b.live.begin, b.live.end, RoleName(b.role), b.name);
  }
  return text;
}

}  // namespace thimble
