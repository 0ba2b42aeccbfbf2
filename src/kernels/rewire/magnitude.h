// SPDX-License-Identifier: Apache-2.0
//
// Magnitudes of blocks, and which blocks are pruned. A magnitude is the mean of
// |w| over a block, in f32, and is compared by its bits: they are in the order
// of the numbers, with NaN above all, which is therefore never pruned by a
// threshold. Views; safe from every thread that has its own.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/rewire/matrix_change.h"
#include "kernels/tensor.h"

namespace thimble::kernels {

// |w| of a stored value, as bits of f32; all are exact. base/half.h's are
// functions of their own, which cost more than the rest of a rewiring.
inline uint32_t MagnitudeBits(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu;
}
inline uint32_t MagnitudeBits(BF16 value) {
  return static_cast<uint32_t>(value.bits & 0x7FFFu) << 16;
}
inline uint32_t MagnitudeBits(F16 value) {
  const uint32_t bits = value.bits & 0x7FFFu;
  constexpr uint32_t kRebias = (127u - 15u) << 23;
  // Below 2^-14, a multiple of 2^-24.
  const auto small = std::bit_cast<uint32_t>(
      static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-24f);
  const uint32_t normal = (bits << 13) + kRebias;
  // Infinities and NaNs have the exponent of f32's.
  const uint32_t special = bits >= 0x7C00u ? kRebias : 0u;
  return bits < 0x400u ? small : normal + special;
}

// By number of block in the pool. `kSingle`: a block is one value.
template <typename T, bool kSingle>
class Magnitudes {
 public:
  Magnitudes(const T* weights, int64_t block_values)
      : weights_(weights), block_values_(block_values) {}

  uint32_t operator()(int64_t block) const {
    if constexpr (kSingle) return MagnitudeBits(weights_[block]);
    const T* values = weights_ + block * block_values_;
    float sum = 0;
    for (int64_t i = 0; i < block_values_; ++i) {
      sum += std::bit_cast<float>(MagnitudeBits(values[i]));
    }
    // The sign of a NaN is up to the CPU.
    return MagnitudeBits(sum / static_cast<float>(block_values_));
  }

 private:
  const T* weights_;
  int64_t block_values_;
};

// Calls f(magnitudes) for the weights of a pool.
template <typename F>
void WithMagnitudes(const ConstTensor& weights, int64_t block_values,
                    const F& f) {
  WithFloatType(weights.dtype(), [&](auto t) {
    using T = decltype(t);
    const T* values = weights.As<T>();
    if (block_values == 1) return f(Magnitudes<T, true>(values, 1));
    f(Magnitudes<T, false>(values, block_values));
  });
}

// Says of each block of a matrix in order whether it is pruned. It reads the
// weights each time instead of keeping a bit for each block.
template <typename M>
class Pruning {
 public:
  Pruning(const M& magnitudes, const MatrixChange& change)
      : magnitudes_(magnitudes),
        change_(change),
        block_(change.first),
        ties_(change.ties) {}

  bool Next() {
    const int64_t block = block_++;
    const uint32_t magnitude = magnitudes_(block);
    if (magnitude > change_.cut) return false;
    if (change_.keeps_first && block == change_.first) return false;
    return magnitude < change_.cut || --ties_ >= 0;
  }

 private:
  M magnitudes_;
  const MatrixChange& change_;
  int64_t block_;
  int64_t ties_;
};

}  // namespace thimble::kernels
