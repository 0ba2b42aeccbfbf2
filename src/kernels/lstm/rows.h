// SPDX-License-Identifier: Apache-2.0
//
// The tensors of one LSTM step from a row on, which is what the SIMD code gets,
// and the question whether all of them are stored alike.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernels/lstm/lstm.h"

namespace thimble::kernels {

// Elements of a row that one thread takes at a time: few rows are shared too.
inline constexpr size_t kLstmBlock = 256;

struct LstmCellRows {
  LstmCellInput in;
  LstmCellOutput out;

  bool IsStoredAlike() const;
  LstmCellRows From(int64_t row, int64_t hidden) const {
    const int64_t at = row * hidden;
    return {{in.z.From(4 * at), in.c_before.From(at), in.forget_offset},
            {out.h.From(at), out.c.From(at), out.gates.From(4 * at)}};
  }
};

struct LstmCellGradRows {
  LstmCellGradInput in;
  LstmCellGradOutput out;

  bool IsStoredAlike() const;
  LstmCellGradRows From(int64_t row, int64_t hidden) const {
    const int64_t at = row * hidden;
    return {{in.gates.From(4 * at), in.c_before.From(at), in.grad_h.From(at),
             in.grad_c.From(at)},
            {out.grad_z.From(4 * at), out.grad_c_before.From(at)}};
  }
};

// Of those tensors that are there.
inline bool AreStoredAs(DType dtype,
                        std::initializer_list<ConstTensor> tensors) {
  return std::ranges::all_of(tensors, [dtype](const ConstTensor& tensor) {
    return !tensor.is_there() || tensor.dtype() == dtype;
  });
}

inline bool LstmCellRows::IsStoredAlike() const {
  return AreStoredAs(in.z.dtype(), {in.c_before, out.h, out.c, out.gates});
}

inline bool LstmCellGradRows::IsStoredAlike() const {
  return AreStoredAs(in.gates.dtype(), {in.c_before, in.grad_h, in.grad_c,
                                        out.grad_z, out.grad_c_before});
}

}  // namespace thimble::kernels
