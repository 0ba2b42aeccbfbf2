// SPDX-License-Identifier: Apache-2.0
#include "planner/buffers.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "base/check.h"
#include "base/workspace.h"
#include "graph/op.h"
#include "planner/lives.h"
#include "planner/sparse_pool.h"

namespace thimble::planner {
namespace {

// Union-find over values that share bytes; each set knows when it is last read.
class SharedBytes {
 public:
  SharedBytes(std::vector<Interval> lives, std::vector<bool> pinned)
      : lives_(std::move(lives)), pinned_(std::move(pinned)) {
    parent_.resize(lives_.size());
    std::iota(parent_.begin(), parent_.end(), 0u);
  }

  uint32_t Find(uint32_t v) const {
    while (parent_[v] != v) v = parent_[v];
    return v;
  }
  void Join(uint32_t into, uint32_t v) {
    const uint32_t root = Find(into);
    const uint32_t other = Find(v);
    if (root == other) return;
    parent_[other] = root;
    lives_[root].begin = std::min(lives_[root].begin, lives_[other].begin);
    lives_[root].end = std::max(lives_[root].end, lives_[other].end);
    pinned_[root] = pinned_[root] || pinned_[other];
  }
  // Of the whole set.
  Interval LifeOf(uint32_t v) const { return lives_[Find(v)]; }
  // Holds state, which the next step reads again.
  bool IsPinned(uint32_t v) const { return pinned_[Find(v)]; }

 private:
  std::vector<uint32_t> parent_;
  std::vector<Interval> lives_;
  std::vector<bool> pinned_;
};

std::vector<Interval> FindLives(const Program& program,
                                const LastingValues& lasting,
                                std::span<const ScheduledOp> schedule) {
  const auto end = static_cast<uint32_t>(schedule.size());
  std::array<uint32_t, kPhases> phase_end{};
  for (uint32_t t = 0; t < end; ++t) {
    phase_end[static_cast<size_t>(schedule[t].phase)] = t + 1;
  }
  const uint32_t trained = phase_end[static_cast<size_t>(Phase::kUpdate)];

  std::vector<Interval> lives(program.graph.values().size(), {end, 0});
  const auto extend = [&](ValueId v, uint32_t from, uint32_t to) {
    lives[v.i].begin = std::min(lives[v.i].begin, from);
    lives[v.i].end = std::max(lives[v.i].end, to);
  };
  for (uint32_t t = 0; t < end; ++t) {
    const Op& op = program.graph.op(schedule[t].op);
    for (ValueId v : op.inputs) extend(v, t, t + 1);
    for (ValueId v : op.outputs) extend(v, t, t + 1);
  }
  for (uint32_t i = 0; i < lives.size(); ++i) {
    if (lasting.state[i]) lives[i] = {0, end};
    // The next microbatch finds it from its first op on.
    if (lasting.carried[i]) lives[i].begin = 0;
  }
  // Also where no op reads it, as the ends of sentences that nobody asks for.
  for (ValueId v : lasting.fed) extend(v, 0, 1);
  for (ValueId v : lasting.told) extend(v, trained, trained);
  // The host feeds an evaluation before its first op, and reads its results
  // behind its last one.
  const Ends& evaluate = program.evaluate;
  for (const End& fed : evaluate.feeds) {
    extend(fed.value, trained, trained + 1);
  }
  if (evaluate.loss.valid()) extend(evaluate.loss, end, end);
  for (const End& told : evaluate.metrics) extend(told.value, end, end);
  for (const End& output : evaluate.outputs) extend(output.value, end, end);
  return lives;
}

// Lets outputs take the bytes of inputs that their op reads last.
class InPlaceSharing {
 public:
  InPlaceSharing(const Graph& graph, Overwritten overwritten,
                 SharedBytes& shared)
      : graph_(graph), overwritten_(overwritten), shared_(shared) {}

  void Share(const Op& op, uint32_t time) {
    const std::vector<InPlacePair> pairs = op.def->InPlace();
    if (pairs.empty()) return;
    bytes_read_.clear();
    for (ValueId v : op.inputs) bytes_read_.push_back({shared_.Find(v.i)});
    ChooseOverwritten(
        pairs,
        [&](const InPlacePair& pair) { return IsFree(op, pairs, pair, time); },
        [&](const InPlacePair& a, const InPlacePair& b) {
          return IsBetter(op, a, b);
        },
        [&](const InPlacePair& pair) {
          shared_.Join(op.inputs[pair.input].i, op.outputs[pair.output].i);
        });
  }

 private:
  bool IsBetter(const Op& op, const InPlacePair& a,
                const InPlacePair& b) const {
    const uint32_t of_a = shared_.LifeOf(op.inputs[a.input].i).begin;
    const uint32_t of_b = shared_.LifeOf(op.inputs[b.input].i).begin;
    return overwritten_ == Overwritten::kOldest ? of_a < of_b : of_a > of_b;
  }

  bool IsFree(const Op& op, std::span<const InPlacePair> pairs,
              const InPlacePair& pair, uint32_t time) const {
    const ValueId in = op.inputs[pair.input];
    const ValueId out = op.outputs[pair.output];
    if (graph_.value(in).spec.bytes() != graph_.value(out).spec.bytes()) {
      return false;
    }
    if (!MayOverwrite(bytes_read_, pairs, pair)) return false;
    // What earlier microbatches gave is already in its place.
    if (shared_.LifeOf(out.i).begin < time) return false;
    // Nobody may read the old bytes after this op.
    return !shared_.IsPinned(in.i) && shared_.LifeOf(in.i).end == time + 1;
  }

  const Graph& graph_;
  Overwritten overwritten_;
  SharedBytes& shared_;
  std::vector<ValueId> bytes_read_;  // per input: whose bytes it is
};

void ShareBytes(const Program& program, std::span<const ScheduledOp> schedule,
                bool inplace, Overwritten overwritten, SharedBytes& shared) {
  InPlaceSharing sharing(program.graph, overwritten, shared);
  for (uint32_t t = 0; t < schedule.size(); ++t) {
    const Op& op = program.graph.op(schedule[t].op);
    if (op.def->IsView()) {
      shared.Join(op.inputs[0].i, op.outputs[0].i);
    } else if (inplace) {
      sharing.Share(op, t);
    }
  }
}

// Lets every buffer live through training, or through evaluation if it is of
// that alone: no bytes are used twice within a step.
void KeepApart(std::span<const ScheduledOp> schedule,
               std::vector<Buffer>& buffers) {
  const auto end = static_cast<uint32_t>(schedule.size());
  uint32_t trained = 0;
  while (trained < end && schedule[trained].phase != Phase::kEvaluate) {
    ++trained;
  }
  for (Buffer& b : buffers) {
    b.live = {b.live.begin < trained ? 0 : trained,
              b.live.end > trained ? end : trained};
  }
}

}  // namespace

BufferSet MakeBuffers(const Program& program, const PlanOptions& options,
                      std::vector<ScheduledOp>& schedule,
                      Overwritten overwritten) {
  const Graph& graph = program.graph;
  LastingValues lasting = FindLasting(program);
  SharedBytes shared(FindLives(program, lasting, schedule), lasting.state);
  BufferSet set;
  set.pool_of = PoolsOf(program);
  for (uint32_t i = 0; i < set.pool_of.size(); ++i) {
    if (set.pool_of[i].valid()) shared.Join(set.pool_of[i].i, i);
  }
  ShareBytes(program, schedule, options.inplace, overwritten, shared);

  set.buffer_of.resize(graph.values().size());
  std::vector<int64_t> buffer_of_root(graph.values().size(), -1);
  for (uint32_t i = 0; i < graph.values().size(); ++i) {
    const Value& value = graph.values()[i];
    const uint32_t root = shared.Find(i);
    if (buffer_of_root[root] < 0) {
      buffer_of_root[root] = static_cast<int64_t>(set.buffers.size());
      const Interval live = shared.LifeOf(root);
      TH_CHECK(live.begin < live.end);
      set.buffers.push_back({value.name, value.role,
                             RoundUpToAlignment(value.spec.bytes()), 0, live});
    }
    set.buffer_of[i] = static_cast<uint32_t>(buffer_of_root[root]);
    // Shared bytes count under the role that lives the longest by promise: a
    // parameter's gradient stays one whatever it was written over.
    Buffer& buffer = set.buffers[set.buffer_of[i]];
    if (value.role == Role::kGradient) buffer.role = Role::kGradient;
  }
  for (uint32_t t = 0; t < schedule.size(); ++t) {
    const Op& op = graph.op(schedule[t].op);
    const size_t bytes =
        TotalBytes(op.def->Scratch(graph.InputSpecs(op), graph.OutputSpecs(op)),
                   options.threads);
    if (bytes == 0) continue;
    schedule[t].scratch = static_cast<uint32_t>(set.buffers.size());
    set.buffers.push_back(
        {op.name + ".scratch", Role::kWorkspace, bytes, 0, {t, t + 1}});
  }
  if (!options.sharing) KeepApart(schedule, set.buffers);
  set.carried = std::move(lasting.carried);
  return set;
}

}  // namespace thimble::planner
