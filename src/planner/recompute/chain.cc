// SPDX-License-Identifier: Apache-2.0
#include "planner/recompute/chain.h"

#include <algorithm>

#include "base/check.h"
#include "planner/lives.h"

namespace thimble::planner {
namespace {

// A piece of more ops is cut at its narrowest points too. Blocks of the known
// networks stay whole, fused or not.
constexpr size_t kLongPiece = 40;

class ChainFinder {
 public:
  explicit ChainFinder(const Program& program) : program_(program) {
    for (OpId op : program.phases[static_cast<size_t>(Phase::kMicrobatch)]) {
      const OpOrigin::Part part = program.origins[op.i].part;
      TH_CHECK(part == OpOrigin::Part::kForward ||
               part == OpOrigin::Part::kBackward);
      (part == OpOrigin::Part::kForward ? forward_ : backward_).push_back(op);
    }
    FindLastReaders();
    FindReadByBackward();
    FindWidths();
  }

  Chain Run() {
    std::vector<size_t> cuts;
    for (size_t p = 0; p + 1 < forward_.size(); ++p) {
      if (width_[p] <= 1 && CarriesWhatBackwardReads(p)) cuts.push_back(p);
    }
    CutLongPieces(cuts);
    Chain chain = MakeStages(cuts);
    AddBackward(chain);
    return chain;
  }

 private:
  const Op& OpAt(size_t position) const {
    return program_.graph.op(forward_[position]);
  }

  void FindLastReaders() {
    last_reader_.assign(program_.graph.values().size(), 0);
    for (size_t p = 0; p < forward_.size(); ++p) {
      for (ValueId v : OpAt(p).inputs) last_reader_[v.i] = p;
    }
  }

  void FindReadByBackward() {
    read_by_backward_.assign(program_.graph.values().size(), false);
    for (OpId op : backward_) {
      for (ValueId v : program_.graph.op(op).inputs) {
        read_by_backward_[v.i] = true;
      }
    }
  }

  // To keep any other value, a batch norm's output say, would take bytes that
  // no backward pass needs. REQUIRES: one value is carried on past `position`.
  bool CarriesWhatBackwardReads(size_t position) const {
    for (size_t p = position + 1; p-- > 0;) {
      for (ValueId v : OpAt(p).outputs) {
        if (IsRecomputable(program_, v) && last_reader_[v.i] > position) {
          return read_by_backward_[v.i];
        }
      }
    }
    return false;
  }

  // How many values, and bytes of them, are carried on past each position.
  void FindWidths() {
    LiveBytesOverTime values(forward_.size()), bytes(forward_.size());
    for (uint32_t p = 0; p < forward_.size(); ++p) {
      for (ValueId v : OpAt(p).outputs) {
        if (!IsRecomputable(program_, v) || last_reader_[v.i] <= p) continue;
        const Interval carried{p, static_cast<uint32_t>(last_reader_[v.i])};
        values.Add(carried, 1);
        bytes.Add(carried, program_.graph.value(v).spec.bytes());
      }
    }
    width_ = values.Sum();
    bytes_ = bytes.Sum();
  }

  void CutLongPieces(std::vector<size_t>& cuts) const {
    for (bool found = true; found;) {
      found = false;
      std::vector<size_t> more;
      size_t begin = 0;
      for (size_t c = 0; c <= cuts.size(); ++c) {
        const size_t end = c < cuts.size() ? cuts[c] : forward_.size() - 1;
        if (end - begin > kLongPiece) {
          AddNarrowest(begin + 1, end, more);
          found = true;
        }
        if (c < cuts.size()) more.push_back(cuts[c]);
        begin = end;
      }
      cuts = std::move(more);
    }
  }

  // The positions in [begin, end) past which the fewest bytes are carried on.
  void AddNarrowest(size_t begin, size_t end,
                    std::vector<size_t>& positions) const {
    const auto at = [](size_t p) { return static_cast<std::ptrdiff_t>(p); };
    const size_t least =
        *std::min_element(bytes_.begin() + at(begin), bytes_.begin() + at(end));
    for (size_t p = begin; p < end; ++p) {
      if (bytes_[p] == least) positions.push_back(p);
    }
  }

  Chain MakeStages(const std::vector<size_t>& cuts) {
    Chain chain;
    chain.stages.emplace_back();
    stage_of_source_.clear();
    std::vector<ValueId> carried;
    size_t next = 0;
    for (size_t p = 0; p < forward_.size(); ++p) {
      Stage& stage = chain.stages.back();
      stage.forward.push_back(forward_[p]);
      const uint32_t source = program_.origins[forward_[p].i].source;
      if (source >= stage_of_source_.size()) {
        stage_of_source_.resize(source + 1, chain.stages.size() - 1);
      }
      std::erase_if(carried, [&](ValueId v) { return last_reader_[v.i] <= p; });
      for (ValueId v : OpAt(p).outputs) {
        if (IsRecomputable(program_, v) && last_reader_[v.i] > p) {
          carried.push_back(v);
        }
      }
      const bool is_cut = next < cuts.size() && cuts[next] == p;
      if (is_cut) ++next;
      // An op that adds statistics alone leaves what is carried as it was.
      const bool is_new =
          chain.stages.size() == 1 || carried != chain.stages.end()[-2].carried;
      if (is_cut && is_new && !carried.empty()) {
        stage.carried = carried;
        chain.stages.emplace_back();
      } else if (width_[p] > 1) {
        stage.branches = true;
      }
    }
    return chain;
  }

  void AddBackward(Chain& chain) const {
    for (OpId op : backward_) {
      const uint32_t source = program_.origins[op.i].source;
      chain.stages[stage_of_source_[source]].backward.push_back(op);
    }
  }

  const Program& program_;
  std::vector<OpId> forward_, backward_;
  std::vector<size_t> last_reader_;     // per value: position of the op, else 0
  std::vector<bool> read_by_backward_;  // per value
  std::vector<size_t> width_;           // per position: values carried on
  std::vector<size_t> bytes_;           // likewise, their bytes
  std::vector<size_t> stage_of_source_;
};

}  // namespace

Chain MergeStages(const Chain& chain, size_t most) {
  const size_t n = chain.stages.size();
  const size_t groups = std::min(n, most);
  Chain merged;
  for (size_t g = 0; g < groups; ++g) {
    const size_t begin = n * g / groups;
    const size_t end = n * (g + 1) / groups;
    Stage all;
    for (size_t s = begin; s < end; ++s) {
      const Stage& stage = chain.stages[s];
      all.forward.insert(all.forward.end(), stage.forward.begin(),
                         stage.forward.end());
      // Backward runs from the last to the first.
      all.backward.insert(all.backward.begin(), stage.backward.begin(),
                          stage.backward.end());
      all.branches = all.branches || stage.branches;
    }
    all.carried = chain.stages[end - 1].carried;
    merged.stages.push_back(std::move(all));
  }
  return merged;
}

bool IsRecomputable(const Program& program, ValueId v) {
  const Value& value = program.graph.value(v);
  return value.role == Role::kActivation && value.producer.valid() &&
         program.origins[value.producer.i].part == OpOrigin::Part::kForward;
}

Chain FindChain(const Program& program) { return ChainFinder(program).Run(); }

}  // namespace thimble::planner
