// SPDX-License-Identifier: Apache-2.0
//
// A* over states (first runs done, set of values that are there). A step runs
// an op, the next one of the phase or a forward op again, and then drops some
// of the values that it has touched: no value is worth keeping behind its last
// use, so drops at other times add nothing. What is missing and will be read
// again has to be made again, and so has what that is made of: the work of all
// of these is a lower bound of what is to come, and it is paid, as it were, at
// the moment at which a value is dropped.
//
// Among scripts with the same work the search finds one with the fewest bytes:
// labels are ordered by (work, bytes), and both only grow along a path. The
// front is walked by searching again below the bytes that were just found.
#include "planner/recompute/exact_front.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "planner/recompute/item_model.h"

namespace thimble::planner {
namespace {

struct Label {
  int64_t work = 0;     // so far
  int64_t bytes = 0;    // most live so far
  int64_t to_come = 0;  // work at least
  uint64_t from = 0;    // the state before
  OpId by;              // what has run there
  bool is_done = false;
};

// Labels by key, with open addressing: the search spends its time here.
class LabelTable {
 public:
  LabelTable() : slots_(1024) {}

  // Makes it where there is none. Valid until the next one is made.
  std::pair<Label*, bool> Get(uint64_t key) {
    if (2 * count_ >= slots_.size()) Grow();
    Slot& slot = Find(key);
    const bool is_new = slot.key == kNoKey;
    if (is_new) ++count_;
    slot.key = key;
    return {&slot.label, is_new};
  }
  size_t size() const { return count_; }

 private:
  static constexpr uint64_t kNoKey = UINT64_MAX;
  struct Slot {
    uint64_t key = kNoKey;
    Label label;
  };

  Slot& Find(uint64_t key) {
    const size_t mask = slots_.size() - 1;
    // Fibonacci hashing: the upper bits depend on all bits of the key.
    size_t i = (key * 0x9E3779B97F4A7C15u) >> 32 & mask;
    while (slots_[i].key != kNoKey && slots_[i].key != key) i = (i + 1) & mask;
    return slots_[i];
  }
  void Grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != kNoKey) Find(slot.key) = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t count_ = 0;
};

// One search within a limit.
class Search {
 public:
  Search(const ItemModel& model, int64_t limit, size_t max_states)
      : model_(model), limit_(limit), max_states_(max_states) {}

  // The steps of the least work within the limit, of those the fewest bytes;
  // none where nothing fits or the states ran out.
  std::optional<std::vector<OpId>> Run() {
    Reach({0, model_.inputs()}, 0, 0, UINT64_MAX, {});
    while (!queue_.empty()) {
      const Entry entry = queue_.top();
      queue_.pop();
      Label* label = labels_.Get(entry.key).first;
      if (label->is_done) continue;
      label->is_done = true;
      const State state = StateOf(entry.key);
      if (state.position == model_.positions()) return PathTo(entry.key);
      if (labels_.size() > max_states_) {
        ran_out_ = true;
        return std::nullopt;
      }
      Expand(state, entry.key, label->work, label->bytes);
    }
    return std::nullopt;
  }

  bool ran_out() const { return ran_out_; }
  size_t states() const { return labels_.size(); }

 private:
  struct State {
    size_t position;
    ItemSet there;
  };
  static uint64_t KeyOf(const State& state) {
    return state.there | uint64_t{state.position} << ItemModel::kMaxItems;
  }
  static State StateOf(uint64_t key) {
    return {key >> ItemModel::kMaxItems,
            key & (ItemBit(ItemModel::kMaxItems) - 1)};
  }

  struct Entry {
    int64_t total;  // work, with what is to come at least
    int64_t bytes;
    uint64_t key;
    // On top: the least work, the fewest bytes, the furthest.
    friend bool operator<(const Entry& a, const Entry& b) {
      return std::tie(a.total, a.bytes, b.key) <
             std::tie(b.total, b.bytes, a.key);
    }
    friend bool operator>(const Entry& a, const Entry& b) { return b < a; }
  };

  void Reach(const State& state, int64_t work, int64_t bytes, uint64_t from,
             OpId by) {
    const uint64_t key = KeyOf(state);
    const auto [at, is_new] = labels_.Get(key);
    Label& label = *at;
    if (is_new) {
      const std::optional<int64_t> to_come =
          model_.WorkToCome(state.position, state.there);
      label.to_come = to_come.value_or(-1);
    } else if (label.is_done ||
               std::tie(label.work, label.bytes) <= std::tie(work, bytes)) {
      return;
    }
    label.work = work;
    label.bytes = bytes;
    label.from = from;
    label.by = by;
    if (label.to_come < 0) {
      label.is_done = true;
      return;
    }
    queue_.push({work + label.to_come, bytes, key});
  }

  void Expand(const State& state, uint64_t key, int64_t work, int64_t bytes) {
    const ItemStep& next = model_.First(state.position);
    Take(state, next, state.position + 1, key, work, bytes);
    const ItemSet useful = model_.Useful(state.position);
    for (const ItemStep& step : model_.Again(state.position)) {
      // Who runs an op again has no use for what its last run has left.
      if ((step.writes & useful) == 0 || (step.writes & state.there) != 0) {
        continue;
      }
      Take(state, step, state.position, key, work + step.flops, bytes);
    }
  }

  // Runs a step and drops each subset of what it touches. To run again for
  // nothing is of no use.
  void Take(const State& state, const ItemStep& step, size_t position,
            uint64_t key, int64_t work, int64_t bytes) {
    if ((step.reads & ~state.there) != 0) return;
    const ItemSet all = (state.there | step.writes) & model_.Useful(position);
    const ItemSet touched = all & (step.reads | step.writes);
    const int64_t most = model_.BytesWhile(state.position, step, state.there);
    ItemSet dropped = touched;
    while (true) {
      const ItemSet after = all & ~dropped;
      const int64_t live = most - ItemModel::OverwrittenBytes(step, after);
      const bool is_in_vain =
          position == state.position && (after & step.writes) == 0;
      if (live <= limit_ && !is_in_vain) {
        Reach({position, after}, work, std::max(bytes, live), key, step.op);
      }
      if (dropped == 0) return;
      dropped = (dropped - 1) & touched;
    }
  }

  std::vector<OpId> PathTo(uint64_t key) {
    std::vector<OpId> path;
    for (Label at = *labels_.Get(key).first; at.by.valid();
         at = *labels_.Get(at.from).first) {
      path.push_back(at.by);
    }
    std::reverse(path.begin(), path.end());
    return path;
  }

  const ItemModel& model_;
  int64_t limit_;
  size_t max_states_;
  bool ran_out_ = false;
  LabelTable labels_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

// A path with views made anew where what they show was.
class ViewWriter {
 public:
  ViewWriter(const Program& program, const ScriptMeter& meter)
      : program_(program), meter_(meter) {
    made_at_.resize(program.graph.values().size());
  }

  Script Write(const std::vector<OpId>& path) {
    std::vector<bool> has_run(program_.graph.ops().size());
    for (OpId op : path) {
      const OpRun& run = has_run[op.i] ? meter_.Again(op) : meter_.First(op);
      has_run[op.i] = true;
      for (ValueId v : run.inputs) Refresh(v);
      Add(op, run);
    }
    return std::move(script_);
  }

 private:
  void Add(OpId op, const OpRun& run) {
    script_.push_back(op);
    for (ValueId v : run.outputs) made_at_[v.i] = script_.size();
  }
  void Refresh(ValueId v) {
    const OpId producer = program_.graph.value(v).producer;
    if (!producer.valid() || !program_.graph.op(producer).def->IsView()) return;
    const OpRun& run = meter_.First(producer);
    Refresh(run.inputs[0]);
    if (made_at_[v.i] < made_at_[run.inputs[0].i]) Add(producer, run);
  }

  const Program& program_;
  const ScriptMeter& meter_;
  std::vector<size_t> made_at_;  // per value
  Script script_;
};

}  // namespace

ExactFront FindExactFront(const Program& program, ScriptMeter& meter,
                          size_t max_items, size_t max_states) {
  ExactFront front;
  const ItemModel model(program, meter);
  if (!model.fits() || model.items() > max_items) return front;
  const int64_t least = model.LeastBytes();
  int64_t limit = std::numeric_limits<int64_t>::max();
  while (limit >= least) {
    Search search(model, limit, max_states);
    const std::optional<std::vector<OpId>> path = search.Run();
    if (search.ran_out()) return front;
    if (!path.has_value()) break;
    max_states -= std::min(max_states, search.states());
    front.scripts.push_back(ViewWriter(program, meter).Write(*path));
    limit =
        static_cast<int64_t>(meter.Measure(front.scripts.back()).most_live) - 1;
  }
  front.is_whole = true;
  return front;
}

}  // namespace thimble::planner
