// SPDX-License-Identifier: Apache-2.0
#include "planner/recompute/item_model.h"

#include <algorithm>
#include <bit>

#include "planner/lives.h"
#include "planner/recompute/chain.h"

namespace thimble::planner {

ItemModel::ItemModel(const Program& program, const ScriptMeter& meter)
    : program_(program),
      meter_(meter),
      ops_(program.phases[static_cast<size_t>(Phase::kMicrobatch)]) {
  fits_ = ops_.size() < kMaxPositions && FindItems();
  if (!fits_) return;
  FindFixedLives();
  MakeSteps();
  FindNeeds();
}

// False where there are too many, or a view is of another kind than what is
// viewed.
bool ItemModel::FindItems() {
  item_of_.assign(program_.graph.values().size(), kNoItem);
  base_of_.resize(program_.graph.values().size());
  const auto add = [&](ValueId v) {
    item_of_[v.i] = static_cast<uint32_t>(bytes_.size());
    bytes_.push_back(meter_.BytesOf(v));
  };
  for (const End& feed : program_.train.feeds) {
    base_of_[feed.value.i] = feed.value.i;
    inputs_ |= ItemBit(bytes_.size());
    add(feed.value);
  }
  for (OpId op : ops_) {
    const OpRun& run = meter_.First(op);
    for (ValueId v : run.outputs) {
      base_of_[v.i] = v.i;
      if (run.is_view) {
        const ValueId in = run.inputs[0];
        if (meter_.IsLasting(in) || meter_.IsLasting(v) ||
            IsItem(in) != IsRecomputable(program_, v)) {
          return false;
        }
        base_of_[v.i] = base_of_[in.i];
        item_of_[v.i] = item_of_[in.i];
      } else if (IsRecomputable(program_, v)) {
        if (bytes_.size() == kMaxItems) return false;
        add(v);
      }
    }
  }
  return true;
}

void ItemModel::FindFixedLives() {
  last_.assign(program_.graph.values().size(), 0);
  for (size_t p = 0; p < ops_.size(); ++p) {
    const OpRun& run = meter_.First(ops_[p]);
    for (ValueId v : run.inputs) last_[base_of_[v.i]] = p;
    for (ValueId v : run.outputs) last_[base_of_[v.i]] = p;
  }
  for (OpId op : ops_) {
    for (ValueId v : meter_.First(op).outputs) {
      if (meter_.IsReadLater(v)) last_[base_of_[v.i]] = ops_.size();
    }
  }
  const auto end = static_cast<uint32_t>(ops_.size()) + 1;
  LiveBytesOverTime live(end);
  for (uint32_t p = 0; p < ops_.size(); ++p) {
    const OpRun& run = meter_.First(ops_[p]);
    if (run.is_view) continue;
    for (ValueId v : run.outputs) {
      if (IsItem(v) || meter_.IsLasting(v)) continue;
      // From behind its own op to its last reader.
      const auto last = static_cast<uint32_t>(last_[v.i]);
      live.Add({p + 1, std::max(p + 1, std::min(last + 1, end))},
               static_cast<size_t>(meter_.BytesOf(v)));
    }
  }
  for (size_t bytes : live.Sum()) {
    fixed_.push_back(meter_.lasting_bytes() + static_cast<int64_t>(bytes));
  }
}

void ItemModel::MakeSteps() {
  maker_.resize(items());
  for (size_t p = 0; p < ops_.size(); ++p) {
    first_.push_back(MakeStep(p, meter_.First(ops_[p]), /*is_first=*/true));
    const OpOrigin::Part part = program_.origins[ops_[p].i].part;
    if (part != OpOrigin::Part::kForward) continue;
    ItemStep step = MakeStep(p, meter_.Again(ops_[p]), /*is_first=*/false);
    // Statistics and the loss are computed once, views are made when needed.
    if (step.writes == 0) continue;
    for (size_t k = 0; k < items(); ++k) {
      if ((step.writes & ItemBit(k)) != 0) maker_[k] = again_.size();
    }
    again_.push_back(std::move(step));
    again_from_.push_back(p + 1);
  }
}

ItemStep ItemModel::MakeStep(size_t position, const OpRun& run,
                             bool is_first) const {
  ItemStep step{.op = ops_[position],
                .reads = ItemsOf(run.inputs),
                .scratch = run.scratch,
                .flops = is_first ? 0 : run.flops};
  if (run.is_view) return step;
  step.writes = ItemsOf(run.outputs);
  for (ValueId v : run.outputs) {
    if (!meter_.IsLasting(v)) step.made += meter_.BytesOf(v);
  }
  for (const InPlacePair& pair : run.in_place) {
    const ValueId in = run.inputs[pair.input];
    const bool dies = is_first && last_[base_of_[in.i]] == position;
    if (!IsItem(in) && !dies) continue;
    step.in_place.push_back(pair);
    step.overwrites.push_back({meter_.BytesOf(run.outputs[pair.output]),
                               IsItem(in) ? ItemBit(item_of_[in.i]) : 0});
  }
  return step;
}

void ItemModel::FindNeeds() {
  const size_t n = ops_.size();
  std::vector<ItemSet> made(n + 1, inputs_);
  for (size_t p = 0; p < n; ++p) made[p + 1] = made[p] | first_[p].writes;
  read_.resize(n + 1);
  useful_.resize(n + 1);
  ItemSet read = 0;
  for (size_t p = n + 1; p-- > 0;) {
    if (p < n) read |= first_[p].reads;
    read_[p] = read & made[p];
    useful_[p] = read_[p];
    for (size_t k = items(); k-- > 0;) {
      if ((useful_[p] & ~inputs_ & ItemBit(k)) == 0) continue;
      useful_[p] |= again_[maker_[k]].reads;
    }
  }
}

std::span<const ItemStep> ItemModel::Again(size_t position) const {
  const auto end =
      std::upper_bound(again_from_.begin(), again_from_.end(), position);
  return {again_.data(), static_cast<size_t>(end - again_from_.begin())};
}

std::optional<int64_t> ItemModel::WorkToCome(size_t position,
                                             ItemSet there) const {
  ItemSet missing = read_[position] & ~there;
  int64_t work = 0;
  // Items are numbered as they are made: what one is made of has lower numbers.
  while (missing != 0) {
    const size_t item = 63 - static_cast<size_t>(std::countl_zero(missing));
    if ((inputs_ & ItemBit(item)) != 0) return std::nullopt;
    const ItemStep& step = again_[maker_[item]];
    work += step.flops;
    missing &= ~step.writes;
    missing |= step.reads & ~there;
  }
  return work;
}

int64_t ItemModel::BytesWhile(size_t position, const ItemStep& step,
                              ItemSet there) const {
  return fixed_[position] + BytesOf(there) + step.made + step.scratch;
}

int64_t ItemModel::OverwrittenBytes(const ItemStep& step, ItemSet after) {
  const auto of = [&step](const InPlacePair& pair) {
    return step.overwrites[static_cast<size_t>(&pair - step.in_place.data())];
  };
  int64_t bytes = 0;
  ChooseOverwritten(
      step.in_place,
      [&](const InPlacePair& pair) { return (of(pair).item & after) == 0; },
      [&](const InPlacePair& pair) { bytes += of(pair).bytes; });
  return bytes;
}

int64_t ItemModel::LeastBytes() const {
  int64_t least = meter_.other_phases();
  for (size_t p = 0; p < first_.size(); ++p) {
    // Inputs that are read later cannot be made again.
    const ItemSet waiting = inputs_ & read_[p + 1];
    least =
        std::max(least, BytesWhile(p, first_[p], first_[p].reads | waiting) -
                            OverwrittenBytes(first_[p], waiting));
  }
  return least;
}

ItemSet ItemModel::ItemsOf(std::span<const ValueId> values) const {
  ItemSet set = 0;
  for (ValueId v : values) {
    if (IsItem(v)) set |= ItemBit(item_of_[v.i]);
  }
  return set;
}

int64_t ItemModel::BytesOf(ItemSet set) const {
  int64_t bytes = 0;
  for (; set != 0; set &= set - 1) {
    bytes += bytes_[static_cast<size_t>(std::countr_zero(set))];
  }
  return bytes;
}

}  // namespace thimble::planner
