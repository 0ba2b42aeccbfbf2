// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "base/permutation.h"
#include "base/rng.h"
#include "thimble/data.h"

namespace thimble {
namespace {

// The training split of another dataset, shuffled once and cut in two. Shuffled
// by a fixed key: accuracies of runs with different seeds are then comparable.
class HeldOutDataset : public Dataset {
 public:
  HeldOutDataset(std::unique_ptr<Dataset> data, int64_t count)
      : Dataset(MakeFacts(*data, count)),
        data_(std::move(data)),
        shuffled_(static_cast<uint64_t>(data_->size(Split::kTrain)),
                  RandomStream(0, 0, kHoldOutStream).Key()) {}

 private:
  static Facts MakeFacts(const Dataset& data, int64_t count) {
    Facts facts = FactsOf(data);
    facts.train_size -= count;
    facts.test_size = count;
    facts.test_labels.clear();  // the real test split is no part of it
    return facts;
  }

  Status ReadRecord(Split split, int64_t index, std::span<uint8_t> image,
                    int32_t* label) const override {
    if (split == Split::kTest) index += size(Split::kTrain);
    const uint64_t record = shuffled_(static_cast<uint64_t>(index));
    return data_->Read(Split::kTrain, static_cast<int64_t>(record), image,
                       label);
  }

  std::unique_ptr<Dataset> data_;
  KeyedPermutation shuffled_;
};

}  // namespace

Result<std::unique_ptr<Dataset>> HoldOut(std::unique_ptr<Dataset> data,
                                         int64_t count) {
  const int64_t size = data->size(Split::kTrain);
  if (count < 1 || count >= size) {
    return Status::Usage(fmt::format(
        "cannot hold out {} of the {} training images of '{}' for validation; "
        "it must be at least one, and leave one",
        count, size, data->name()));
  }
  return std::unique_ptr<Dataset>(
      std::make_unique<HeldOutDataset>(std::move(data), count));
}

}  // namespace thimble
