// SPDX-License-Identifier: Apache-2.0
//
// The last row of each sentence of x [tokens, features], stored as any type.
// What is written is a copy of bits. One thread does it: it is a row for each
// sentence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "kernels/sentences.h"
#include "kernels/tensor.h"

namespace thimble::kernels {

// y [sentences, features]; zeros for an empty sentence.
inline void LastRows(const Sentences& sentences, int64_t features,
                     const ConstTensor& x, const Tensor& y) {
  TH_CHECK(x.dtype() == y.dtype());
  const auto bytes = static_cast<size_t>(BytesFor(x.dtype(), features));
  for (int64_t s = 0; s < sentences.count; ++s) {
    void* to = y.From(s * features).data();
    if (sentences.begin(s) == sentences.end(s)) {
      std::memset(to, 0, bytes);
    } else {
      std::memcpy(to, x.From((sentences.end(s) - 1) * features).data(), bytes);
    }
  }
}

}  // namespace thimble::kernels
