// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

#include "base/check.h"
#include "base/sha256.h"
#include "thimble/data.h"

namespace thimble {
namespace {

// Of each split, the first and the last among them. If one record of a hundred
// is another one, this many overlook it once in thirteen times.
constexpr int64_t kSamples = 256;
// Of each split: huge images are sampled less.
constexpr int64_t kSampleBytes = int64_t{8} << 20;
constexpr size_t kFingerprintDigits = 16;

// Adds records of `split`, evenly spaced.
Status AddRecords(const Dataset& data, Split split, Sha256* sha) {
  const int64_t size = data.size(split);
  const int64_t bytes = data.spec().bytes();
  const int64_t samples =
      std::min(size, std::clamp<int64_t>(kSampleBytes / bytes, 2, kSamples));
  std::vector<uint8_t> image(static_cast<size_t>(bytes));
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t index = samples == 1 ? 0 : i * (size - 1) / (samples - 1);
    int32_t label = 0;
    TH_RETURN_IF_ERROR(data.Read(split, index, image, &label));
    sha->Update(fmt::format("{} {}\n", index, label));
    sha->Update(std::as_bytes(std::span(image)));
  }
  return Status::Ok();
}

}  // namespace

Result<std::string> Dataset::Fingerprint() const {
  Sha256 sha;
  sha.Update(fmt::format("{} {} {} {} {} {}\n", spec().channels, spec().height,
                         spec().width, spec().classes, size(Split::kTrain),
                         size(Split::kTest)));
  for (const std::span<const float> values : {mean(), stddev()}) {
    for (const float value : values) {
      sha.Update(fmt::format("{:08x}\n", std::bit_cast<uint32_t>(value)));
    }
  }
  sha.Update(fmt::format("{}\n{}\n", facts_.train_labels, facts_.test_labels));
  TH_RETURN_IF_ERROR(AddRecords(*this, Split::kTrain, &sha));
  TH_RETURN_IF_ERROR(AddRecords(*this, Split::kTest, &sha));
  return Hex(sha.Final()).substr(0, kFingerprintDigits);
}

}  // namespace thimble
