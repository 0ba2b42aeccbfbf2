// SPDX-License-Identifier: Apache-2.0
//
// A training pass as the exact search (exact_front.h) sees it: which bytes can
// be dropped, what each op reads and makes of them, what it takes to run it,
// and what must be there for the rest of the pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "graph/op.h"
#include "planner/program.h"
#include "planner/recompute/script_meter.h"

namespace thimble::planner {

// An item is a value that may be dropped, with all views of it: bytes that the
// forward pass can make again, or an input (which it cannot). All other values
// live as the order of first runs says.
using ItemSet = uint64_t;
constexpr ItemSet ItemBit(size_t item) { return ItemSet{1} << item; }

// What a run does to items and to all else that is there.
struct ItemStep {
  OpId op;
  ItemSet reads = 0, writes = 0;
  int64_t made = 0;     // bytes of all outputs
  int64_t scratch = 0;  // bytes
  int64_t flops = 0;    // of a run again
  // What an output can be written over: an item, or, where that is none, a
  // value that nobody reads later.
  struct Overwrite {
    int64_t bytes;
    ItemSet item;
  };
  std::vector<InPlacePair> in_place;
  std::vector<Overwrite> overwrites;  // one per pair
};

class ItemModel {
 public:
  // Sets of items and positions fit into one word.
  static constexpr size_t kMaxItems = 48;
  static constexpr size_t kMaxPositions = 65'000;

  // Both must outlive the model.
  ItemModel(const Program& program, const ScriptMeter& meter);

  // Whether there are few enough items for anything else to be asked.
  bool fits() const { return fits_; }
  size_t items() const { return bytes_.size(); }
  ItemSet inputs() const { return inputs_; }
  // First runs, in the order of the program.
  size_t positions() const { return ops_.size(); }

  const ItemStep& First(size_t position) const { return first_[position]; }
  // Those that may run again when `position` first runs are done.
  std::span<const ItemStep> Again(size_t position) const;

  // What may be read once more: by first runs, or to make what they read.
  ItemSet Useful(size_t position) const { return useful_[position]; }
  // Work that cannot be avoided any more; none where an input is gone.
  std::optional<int64_t> WorkToCome(size_t position, ItemSet there) const;

  // Live bytes while a step runs, if it overwrites nothing.
  int64_t BytesWhile(size_t position, const ItemStep& step,
                     ItemSet there) const;
  // What it saves to overwrite inputs, of which `after` are still needed.
  static int64_t OverwrittenBytes(const ItemStep& step, ItemSet after);
  // No script takes fewer bytes.
  int64_t LeastBytes() const;

 private:
  bool FindItems();
  void FindFixedLives();
  void MakeSteps();
  ItemStep MakeStep(size_t position, const OpRun& run, bool is_first) const;
  void FindNeeds();

  bool IsItem(ValueId v) const { return item_of_[v.i] != kNoItem; }
  ItemSet ItemsOf(std::span<const ValueId> values) const;
  int64_t BytesOf(ItemSet set) const;

  static constexpr uint32_t kNoItem = UINT32_MAX;

  const Program& program_;
  const ScriptMeter& meter_;
  const std::vector<OpId>& ops_;
  bool fits_ = false;
  ItemSet inputs_ = 0;
  std::vector<uint32_t> item_of_;  // per value
  std::vector<uint32_t> base_of_;  // per value: what it is a view of, or itself
  std::vector<size_t> last_;       // per value: position of its last reader
  std::vector<int64_t> bytes_;     // per item
  std::vector<size_t> maker_;      // per item: index into again_
  std::vector<ItemStep> first_, again_;
  std::vector<size_t> again_from_;  // first runs that come before a run again
  std::vector<int64_t> fixed_;      // per position: bytes that are no items
  std::vector<ItemSet> read_, useful_;  // per position
};

}  // namespace thimble::planner
