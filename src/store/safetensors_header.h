// SPDX-License-Identifier: Apache-2.0
//
// The JSON header of a safetensors file, apart from any file: text in and out.
// Pure functions, safe from every thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/safetensors.h"
#include "thimble/status.h"

namespace thimble {

// The format's own limit.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// The header with its length in front, padded so that the tensors start at a
// multiple of 8. `total_bytes` receives the bytes of all tensors.
Result<std::string> FormatSafetensorsHeader(std::span<const TensorInfo> tensors,
                                            const SafetensorsMetadata& metadata,
                                            uint64_t* total_bytes);

struct SafetensorsHeader {
  // In the order of their bytes; `begin` counts from the end of the header.
  std::vector<SafetensorsReader::Tensor> tensors;
  SafetensorsMetadata metadata;
};

// Reads and checks the JSON text of a header that is followed by exactly
// `payload_bytes`. An error says what is wrong, without naming the file.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json,
                                                 uint64_t payload_bytes);

}  // namespace thimble
