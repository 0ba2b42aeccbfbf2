// SPDX-License-Identifier: Apache-2.0
#include "planner/recompute/segments.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace thimble::planner {
namespace {

Segment Leaf(size_t begin, size_t end) { return {begin, end, {}}; }

// Every M-th cut is kept; what stands between two is rebuilt whole.
SegmentPlan CutEvery(const Chain& chain, size_t m) {
  const size_t n = chain.stages.size();
  SegmentPlan plan{.root = Leaf(0, n), .keep_last = false};
  for (size_t begin = 0; begin < n; begin += m) {
    plan.root.parts.push_back(Leaf(begin, std::min(begin + m, n)));
  }
  return plan;
}

// The output of every M-th block is kept. What stands before a block belongs to
// it (the stem); what stands behind the last one keeps everything (the head).
SegmentPlan CutAtBlocks(const Chain& chain, size_t m, bool star) {
  const auto& stages = chain.stages;
  // A network without branches has no residual blocks: there, each stage is
  // one.
  const bool any = std::any_of(stages.begin(), stages.end(),
                               [](const Stage& s) { return s.branches; });
  SegmentPlan plan{.root = {}, .keep_last = false};
  size_t begin = 0;
  size_t blocks = 0;
  size_t last_block = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    if (any && !stages[s].branches) continue;
    last_block = s + 1;
    if (++blocks % m != 0) continue;
    plan.root.parts.push_back(Leaf(begin, s + 1));
    begin = s + 1;
  }
  if (begin < last_block) plan.root.parts.push_back(Leaf(begin, last_block));
  plan.root.end = last_block;
  if (!star) return plan;
  for (Segment& segment : plan.root.parts) {
    for (size_t s = segment.begin; s < segment.end; ++s) {
      segment.parts.push_back(Leaf(s, s + 1));
    }
  }
  return plan;
}

// Bytes that backward reads of what a stage makes.
std::vector<size_t> SavedBytes(const Program& program, const Chain& chain) {
  std::vector<bool> is_read(program.graph.values().size());
  for (const Stage& stage : chain.stages) {
    for (OpId op : stage.backward) {
      for (ValueId v : program.graph.op(op).inputs) is_read[v.i] = true;
    }
  }
  std::vector<size_t> bytes;
  for (const Stage& stage : chain.stages) {
    size_t sum = 0;
    for (OpId op : stage.forward) {
      for (ValueId v : program.graph.op(op).outputs) {
        if (!is_read[v.i] || !IsRecomputable(program, v)) continue;
        sum += program.graph.value(v).spec.bytes();
      }
    }
    bytes.push_back(sum);
  }
  return bytes;
}

// One sweep of Chen et al.'s algorithm 3: a segment ends at the first cut at
// which it holds more than `limit` bytes.
struct Sweep {
  SegmentPlan plan;
  double kept = 0;     // bytes at the cuts
  double largest = 0;  // bytes of the largest segment
};

Sweep CutByBytes(const Program& program, const Chain& chain,
                 const std::vector<size_t>& saved, double limit) {
  const size_t n = chain.stages.size();
  Sweep sweep;
  sweep.plan.root = Leaf(0, n);
  double held = 0;
  size_t begin = 0;
  for (size_t s = 0; s + 1 < n; ++s) {
    held += static_cast<double>(saved[s]);
    if (held <= limit) continue;
    for (ValueId v : chain.stages[s].carried) {
      sweep.kept += static_cast<double>(program.graph.value(v).spec.bytes());
    }
    sweep.largest = std::max(sweep.largest, held);
    sweep.plan.root.parts.push_back(Leaf(begin, s + 1));
    begin = s + 1;
    held = 0;
  }
  sweep.plan.root.parts.push_back(Leaf(begin, n));
  return sweep;
}

// The best of sweeps around the limit at which cuts and largest segment take
// the same, by what they really take.
SegmentPlan CutBySearch(const Program& program, const Chain& chain,
                        const SegmentCost& cost) {
  constexpr int kTries = 6;
  const std::vector<size_t> saved = SavedBytes(program, chain);
  const Sweep finest = CutByBytes(program, chain, saved, 0);
  SegmentPlan best = finest.plan;
  size_t least = cost(best);
  const double middle = std::sqrt(finest.kept * finest.largest);
  for (int k = 0; k < kTries; ++k) {
    // From middle / √2 to middle · √2.
    const double exponent = static_cast<double>(k) / (kTries - 1) - 0.5;
    SegmentPlan plan =
        CutByBytes(program, chain, saved, middle * std::exp2(exponent)).plan;
    const size_t bytes = cost(plan);
    if (bytes >= least) continue;
    least = bytes;
    best = std::move(plan);
  }
  return best;
}

Segment CutRecursively(size_t begin, size_t end, size_t k) {
  Segment segment = Leaf(begin, end);
  const size_t n = end - begin;
  if (n == 1) return segment;
  const size_t parts = std::min(n, k + 1);
  for (size_t p = 0; p < parts; ++p) {
    segment.parts.push_back(
        CutRecursively(begin + n * p / parts, begin + n * (p + 1) / parts, k));
  }
  return segment;
}

// C(slots + repeats, slots): the longest chain that `slots` values, its input
// among them, can reverse with no stage run more than `repeats` times again.
// Saturates: chains are shorter.
size_t LongestChain(size_t slots, size_t repeats) {
  constexpr size_t kEnough = size_t{1} << 40;
  size_t length = 1;
  for (size_t k = 1; k <= std::min(slots, repeats); ++k) {
    length = length * (slots + repeats - k + 1) / k;
    if (length > kEnough) return kEnough;
  }
  return length;
}

// Griewank and Walther's binomial cuts.
Segment CutBinomially(size_t begin, size_t end, size_t slots) {
  Segment segment = Leaf(begin, end);
  const size_t n = end - begin;
  if (n == 1) return segment;
  size_t repeats = 1;
  while (LongestChain(slots, repeats) < n) ++repeats;
  const size_t right = std::min(n - 1, LongestChain(slots - 1, repeats));
  const size_t cut = end - right;
  segment.parts.push_back(CutBinomially(begin, cut, slots));
  segment.parts.push_back(
      CutBinomially(cut, end, std::max<size_t>(1, slots - 1)));
  return segment;
}

SegmentPlan CutForRevolve(const Chain& chain, size_t slots) {
  const size_t n = chain.stages.size();
  constexpr size_t kRepeats = 2;
  if (slots == 0) {
    while (LongestChain(slots + 1, kRepeats) < n) ++slots;
  }
  // What the chain is fed is there anyway.
  return {.root = CutBinomially(0, n, slots + 1)};
}

}  // namespace

SegmentPlan CutIntoSegments(const Program& program, const Chain& chain,
                            const Strategy& strategy, const SegmentCost& cost) {
  const auto m = static_cast<size_t>(strategy.m);
  switch (strategy.kind) {
    case Strategy::Kind::kEvery:
      return CutEvery(chain, m);
    case Strategy::Kind::kResidual:
      return CutAtBlocks(chain, m, strategy.star);
    case Strategy::Kind::kSqrt:
      return CutBySearch(program, chain, cost);
    case Strategy::Kind::kRecursive:
      return {.root = CutRecursively(0, chain.stages.size(), m)};
    case Strategy::Kind::kRevolve:
      return CutForRevolve(chain, m);
    case Strategy::Kind::kNone:
    case Strategy::Kind::kNoBn:
    case Strategy::Kind::kAuto:
      break;
  }
  TH_CHECK(false && "a strategy without segments");
  return {};
}

}  // namespace thimble::planner
