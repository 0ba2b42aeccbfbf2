// SPDX-License-Identifier: Apache-2.0
// Values that tests of ops ask about.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graph/op.h"
#include "thimble/axis.h"
#include "thimble/graph.h"

namespace thimble::ops {

inline ValueSpec F32(const Shape& shape) {
  return {shape, DType::kF32, kBatchAxis};
}
inline ValueSpec U8(const Shape& shape) {
  return {shape, DType::kU8, kBatchAxis};
}
inline ValueSpec I32(const Shape& shape) {
  return {shape, DType::kI32, kBatchAxis};
}

// Why an op does not take these inputs.
inline std::string Refusal(const OpDef& op,
                           const std::vector<ValueSpec>& inputs) {
  const auto made = op.Infer(inputs);
  EXPECT_FALSE(made.ok());
  return made.ok() ? "" : made.status().message();
}

}  // namespace thimble::ops
