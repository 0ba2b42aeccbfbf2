// SPDX-License-Identifier: Apache-2.0
//
// A session's values as floats, whatever 32- or 16-bit type they are stored in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/half.h"
#include "thimble/plan.h"
#include "thimble/session.h"

namespace thimble::testing {

inline float StoredAt(DType dtype, const std::byte* bytes, size_t i) {
  if (dtype == DType::kF32) {
    float x = 0;
    std::memcpy(&x, bytes + 4 * i, 4);
    return x;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, bytes + 2 * i, 2);
  return dtype == DType::kF16 ? F16Value(bits) : BF16Value(bits);
}

inline std::vector<float> ReadStored(Session& session, ValueId value) {
  const ValueSpec& spec = session.plan().graph().value(value).spec;
  std::vector<float> values(static_cast<size_t>(spec.shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = StoredAt(spec.storage.dtype, session.Bytes(value).data(), i);
  }
  return values;
}

// Rounded to nearest even.
inline void WriteStored(std::span<const float> values, Session& session,
                        ValueId value) {
  const DType dtype = session.plan().graph().value(value).spec.storage.dtype;
  std::byte* const bytes = session.Bytes(value).data();
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(bytes + 4 * i, &values[i], 4);
      continue;
    }
    const uint16_t bits =
        dtype == DType::kF16 ? F16Of(values[i]) : BF16Of(values[i]);
    std::memcpy(bytes + 2 * i, &bits, 2);
  }
}

}  // namespace thimble::testing
