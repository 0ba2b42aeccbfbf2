// SPDX-License-Identifier: Apache-2.0
//
// OracleFront: the exact trade of bytes for work of a small program, by brute
// force over everything that recomputation could do: from every set of values
// that could be there, every op that could run, every input that it could
// overwrite and every value that could be dropped. It shares no code with the
// planner. Of a plan without recomputation it reads the graph and the order of
// the ops, nothing else.
#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <tuple>
#include <vector>

#include "graph/op.h"
#include "thimble/plan.h"

namespace thimble::testing {

class OracleFront {
 public:
  struct Point {
    int64_t bytes;  // most live at one time
    int64_t work;   // FLOPs of what runs again
  };

  // `plan` has no recomputation, and must outlive this.
  explicit OracleFront(const Plan& plan) : plan_(plan), graph_(plan.graph()) {
    for (const ScheduledOp& s : plan.schedule()) {
      order_.push_back(s.op);
      if (s.phase == Phase::kMicrobatch) microbatch_end_ = order_.size();
      if (s.phase != Phase::kEvaluate) train_end_ = order_.size();
    }
    FindCells();
    FindFixedLives();
    MakeCalls();
    FindUseful();
  }

  size_t cells() const { return cells_.size(); }

  // The least work first.
  std::vector<Point> Find() {
    std::vector<Point> front;
    int64_t limit = INT64_MAX;
    for (Point p; LeastWork(limit, p); limit = p.bytes - 1) front.push_back(p);
    return front;
  }

 private:
  using Set = uint32_t;  // of cells

  static int64_t RoundUp(size_t bytes) {
    return static_cast<int64_t>((bytes + 63) / 64 * 64);
  }
  int64_t BytesOf(ValueId v) const {
    return RoundUp(graph_.value(v).spec.bytes());
  }
  bool IsState(ValueId v) const {
    return !graph_.value(v).producer.valid() &&
           graph_.value(v).role != Role::kInput;
  }
  bool IsView(OpId op) const { return graph_.op(op).def->IsView(); }
  // Follows views to what is viewed.
  ValueId BaseOf(ValueId v) const {
    const OpId maker = graph_.value(v).producer;
    if (!maker.valid() || !IsView(maker)) return v;
    return BaseOf(graph_.op(maker).inputs[0]);
  }
  int CellOf(ValueId v) const { return cell_of_[BaseOf(v).i]; }

  void FindCells() {
    cell_of_.assign(graph_.values().size(), -1);
    // The images come first, and cannot be made again.
    const auto add = [&](ValueId v) {
      cell_of_[v.i] = static_cast<int>(cells_.size());
      cells_.push_back(BytesOf(v));
    };
    add(plan_.train_ends().feeds[0].value);
    for (size_t p = 0; p < microbatch_end_; ++p) {
      if (IsView(order_[p])) continue;
      for (ValueId v : graph_.op(order_[p]).outputs) {
        if (graph_.value(v).role == Role::kActivation) add(v);
      }
    }
  }

  // From before which position to behind which the others are there.
  void FindFixedLives() {
    born_.assign(graph_.values().size(), SIZE_MAX);
    dead_.assign(graph_.values().size(), 0);
    for (size_t p = 0; p < order_.size(); ++p) {
      const Op& op = graph_.op(order_[p]);
      for (ValueId v : op.outputs) {
        size_t& born = born_[BaseOf(v).i];
        born = std::min(born, p);
        dead_[BaseOf(v).i] = p + 1;
      }
      for (ValueId v : op.inputs) dead_[BaseOf(v).i] = p + 1;
    }
    const Ends& train = plan_.train_ends();
    const Ends& evaluate = plan_.evaluate_ends();
    born_[train.feeds[1].value.i] = 0;
    for (const End& end : evaluate.feeds) born_[end.value.i] = train_end_;
    for (ValueId v : {train.loss, train.metrics[0].value}) {
      dead_[v.i] = train_end_;
    }
    for (ValueId v : {evaluate.loss, evaluate.metrics[0].value,
                      evaluate.outputs[0].value}) {
      dead_[BaseOf(v).i] = order_.size();
    }
    for (uint32_t i = 0; i < born_.size(); ++i) {
      if (!IsState({i})) continue;
      born_[i] = 0;
      dead_[i] = order_.size();
    }
    // Bytes of them that are there before the op at a position runs.
    for (size_t p = 0; p < order_.size(); ++p) {
      int64_t bytes = 0;
      for (uint32_t i = 0; i < born_.size(); ++i) {
        if (CellOf({i}) >= 0 || BaseOf({i}) != ValueId{i}) continue;
        const bool made_here = graph_.value({i}).producer == order_[p];
        if (born_[i] <= p && p < dead_[i] && !made_here) bytes += BytesOf({i});
      }
      fixed_.push_back(bytes);
    }
  }

  // A run of an op, in numbers.
  struct Call {
    Set read = 0, made = 0;
    int64_t bytes = 0;  // of outputs and scratch
    int64_t flops = 0;
    struct Place {  // of an output, in that of an input
      uint32_t input, output;
      int cell;  // of the input; −1: one that nobody reads later
      int64_t bytes;
    };
    std::vector<Place> places;
  };

  std::vector<ValueSpec> Specs(const std::vector<ValueId>& values) const {
    std::vector<ValueSpec> specs;
    for (ValueId v : values) specs.push_back(graph_.value(v).spec);
    return specs;
  }

  // The op reads the same bytes as another input, which it must not overwrite.
  bool IsReadBeside(const std::vector<ValueId>& inputs, const OpDef& def,
                    const InPlacePair& pair) const {
    for (uint32_t k = 0; k < inputs.size(); ++k) {
      if (k == pair.input || BaseOf(inputs[k]) != BaseOf(inputs[pair.input])) {
        continue;
      }
      bool listed = false;
      for (const InPlacePair& other : def.InPlace()) {
        listed |= other.input == k && other.output == pair.output;
      }
      if (!listed) return true;
    }
    return false;
  }

  Call MakeCall(size_t position, bool again) const {
    const Op& op = graph_.op(order_[position]);
    Call call{.read = Read(op), .made = Made(op)};
    std::shared_ptr<const OpDef> def = op.def;
    std::vector<ValueId> inputs = op.inputs;
    if (again) {
      const RepeatForm form = op.def->Repeat();
      def = form.def;
      if (form.reads_saved) {
        inputs.insert(inputs.end(), op.outputs.begin() + 1, op.outputs.end());
      }
    }
    const std::vector<ValueSpec> in = Specs(inputs);
    const std::vector<ValueSpec> out = *def->Infer(in);
    call.flops = def->Flops(in, out);
    call.bytes = static_cast<int64_t>(
        TotalBytes(def->Scratch(in, out), plan_.options().threads));
    if (def->IsView()) return call;
    for (const ValueSpec& spec : out) call.bytes += RoundUp(spec.bytes());
    if (!plan_.options().inplace) return call;
    for (const InPlacePair& pair : def->InPlace()) {
      const ValueId v = inputs[pair.input];
      if (IsReadBeside(inputs, *def, pair)) continue;
      const bool read_last = !again && dead_[BaseOf(v).i] == position + 1;
      if (in[pair.input].bytes() != out[pair.output].bytes() || IsState(v) ||
          (CellOf(v) < 0 && !read_last)) {
        continue;
      }
      call.places.push_back({pair.input, pair.output, CellOf(v),
                             RoundUp(out[pair.output].bytes())});
    }
    return call;
  }

  void MakeCalls() {
    for (size_t p = 0; p < order_.size(); ++p) {
      first_.push_back(MakeCall(p, /*again=*/false));
      // Only forward ops make cells.
      const bool forward =
          p < microbatch_end_ && Made(graph_.op(order_[p])) != 0;
      again_.push_back(forward ? MakeCall(p, /*again=*/true) : Call{});
    }
  }

  // What some op behind a position may still read, if only to make again what
  // another reads. To hold anything else would be in vain.
  void FindUseful() {
    useful_.assign(order_.size() + 1, 0);
    for (size_t p = 0; p <= order_.size(); ++p) {
      Set useful = 0;
      for (size_t q = p; q < microbatch_end_; ++q) {
        useful |= first_[q].read;
      }
      for (size_t q = std::min(p, microbatch_end_); q-- > 0;) {
        if ((again_[q].made & useful) != 0) useful |= again_[q].read;
      }
      useful_[p] = useful;
    }
  }

  Set Read(const Op& op) const {
    Set set = 0;
    for (ValueId v : op.inputs) {
      if (CellOf(v) >= 0) set |= 1u << CellOf(v);
    }
    return set;
  }
  Set Made(const Op& op) const {
    if (op.def->IsView()) return 0;
    Set set = 0;
    for (ValueId v : op.outputs) {
      if (cell_of_[v.i] >= 0) set |= 1u << cell_of_[v.i];
    }
    return set;
  }
  int64_t BytesIn(Set set) const {
    int64_t bytes = 0;
    for (size_t k = 0; k < cells_.size(); ++k) {
      if (((set >> k) & 1) != 0) bytes += cells_[k];
    }
    return bytes;
  }

  struct State {
    size_t position;  // ops that have had their first run
    Set there;
  };
  struct Label {
    int64_t work = 0, bytes = 0;
    uint32_t search = 0;  // that has set it; the others' do not count
  };
  using Entry = std::tuple<int64_t, int64_t, size_t, Set>;

  Label& LabelOf(const State& s) {
    return labels_[s.position << cells_.size() | s.there];
  }
  void Push(const State& s, int64_t work, int64_t bytes) {
    Label& label = LabelOf(s);
    if (label.search == search_ &&
        std::tie(label.work, label.bytes) <= std::tie(work, bytes)) {
      return;
    }
    label = {work, bytes, search_};
    queue_.push({work, bytes, s.position, s.there});
  }

  // Dijkstra's algorithm: the least work within `limit`, and the fewest bytes
  // for that work.
  bool LeastWork(int64_t limit, Point& found) {
    labels_.resize((order_.size() + 1) << cells_.size());
    ++search_;
    queue_ = {};
    Push({0, 1}, 0, 0);
    while (!queue_.empty()) {
      const auto [work, bytes, position, there] = queue_.top();
      queue_.pop();
      const State s{position, there};
      const Label& label = LabelOf(s);
      if (std::tie(label.work, label.bytes) < std::tie(work, bytes)) continue;
      if (position == order_.size()) {
        found = {bytes, work};
        return true;
      }
      for (size_t k = 0; k < cells_.size(); ++k) {
        if (((there >> k) & 1) == 0) continue;
        Push({position, there & ~(1u << k)}, work, bytes);
      }
      Run(s, first_[position], position + 1, work, bytes, limit);
      for (size_t p = 0; p < std::min(position, microbatch_end_); ++p) {
        const Call& call = again_[p];
        if (call.made == 0 || (call.made & there) != 0) continue;
        Run(s, call, position, work + call.flops, bytes, limit);
      }
    }
    return false;
  }

  // With each set of inputs given up to it.
  void Run(const State& s, const Call& call, size_t position, int64_t work,
           int64_t bytes, int64_t limit) {
    if ((call.read & ~s.there) != 0) return;
    const int64_t live = fixed_[s.position] + BytesIn(s.there) + call.bytes;
    const Set all = (s.there | call.made) & useful_[position];
    for (Set given = call.read;; given = (given - 1) & call.read) {
      const int64_t now = live - Overwritten(call, given | ~useful_[position]);
      if (now <= limit) {
        Push({position, all & ~given}, work, std::max(bytes, now));
      }
      if (given == 0) return;
    }
  }

  // Bytes of outputs that take the place of an input that is not needed again.
  static int64_t Overwritten(const Call& call, Set given) {
    int64_t bytes = 0;
    uint32_t taken = 0;
    uint32_t placed = 0;
    for (const Call::Place& place : call.places) {
      if (place.cell >= 0 && ((given >> place.cell) & 1) == 0) continue;
      if (((taken >> place.input) & 1) != 0) continue;
      if (((placed >> place.output) & 1) != 0) continue;
      taken |= 1u << place.input;
      placed |= 1u << place.output;
      bytes += place.bytes;
    }
    return bytes;
  }

  const Plan& plan_;
  const Graph& graph_;
  std::vector<OpId> order_;  // of first runs, all phases
  size_t microbatch_end_ = 0, train_end_ = 0;
  // Bytes of each cell: a forward value that may be dropped, with its views.
  std::vector<int64_t> cells_;
  std::vector<int> cell_of_;         // per value; views have none
  std::vector<size_t> born_, dead_;  // per value
  std::vector<int64_t> fixed_;       // per position
  std::vector<Call> first_, again_;  // per position
  std::vector<Set> useful_;          // per position
  std::vector<Label> labels_;        // per position and set
  uint32_t search_ = 0;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

}  // namespace thimble::testing
