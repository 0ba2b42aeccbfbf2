// SPDX-License-Identifier: Apache-2.0
//
// Feed: a batch of records on its way from a data set into a session's input.
// Allocates nothing. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "thimble/data.h"
#include "thimble/status.h"

namespace thimble::train {

// Image i of the batch is record index(first + i), and change(record, image) is
// called on it.
template <typename Index, typename Change>
Status Feed(const Dataset& data, Split split, int64_t first, int64_t count,
            const Index& index, const Change& change, std::span<uint8_t> images,
            std::span<int32_t> labels) {
  const auto bytes = static_cast<size_t>(data.spec().bytes());
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t record = index(first + i);
    const std::span<uint8_t> image = images.subspan(at * bytes, bytes);
    TH_RETURN_IF_ERROR(data.Read(split, record, image, &labels[at]));
    change(record, image);
  }
  return Status::Ok();
}

}  // namespace thimble::train
