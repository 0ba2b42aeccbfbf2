// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise/elementwise.cc"
#include "kernels/elementwise/elementwise.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <atomic>
#include <cstring>

#include "base/check.h"
#include "kernels/elements-inl.h"
#include "kernels/elementwise/dropout-inl.h"
#include "kernels/elementwise/finite-inl.h"
#include "kernels/stage-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// Elements of tensors of several types that are on their way through f32.
constexpr int64_t kPiece = 512;

// Where the types differ, through f32 pieces: an instance for each type, not
// for each combination.
void AddRange(size_t n, const ConstTensor& a, const ConstTensor& b,
              const Tensor& y) {
  const auto add = [](V u, V v) HWY_ATTR { return hn::Add(u, v); };
  if (a.dtype() == y.dtype() && b.dtype() == y.dtype()) {
    WithFloatType(y.dtype(), [&](auto type) HWY_ATTR {
      using T = decltype(type);
      Map(n, add, y.As<T>(), a.As<T>(), b.As<T>());
    });
    return;
  }
  HWY_ALIGN float lines[2][kPiece];
  const auto all = static_cast<int64_t>(n);
  for (int64_t i = 0; i < all; i += kPiece) {
    const int64_t count = HWY_MIN(kPiece, all - i);
    const float* u = ReadPiece(a, i, count, lines[0]);
    const float* v = ReadPiece(b, i, count, lines[1]);
    float* to = PieceToWrite(y, i, lines[0]);
    Map(static_cast<size_t>(count), add, to, u, v);
    WritePiece(count, to, y, i);
  }
}

// x and y are of different types.
void ConvertRange(size_t n, const ConstTensor& x, const Tensor& y) {
  HWY_ALIGN float line[kPiece];
  const auto all = static_cast<int64_t>(n);
  for (int64_t i = 0; i < all; i += kPiece) {
    const int64_t count = HWY_MIN(kPiece, all - i);
    WritePiece(count, ReadPiece(x, i, count, line), y, i);
  }
}

// The comparison, unlike Max, keeps a NaN: a diverged run must show.
HWY_INLINE V ReluOf(V x) {
  return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(D())), x);
}

void ReluRange(size_t n, const ConstTensor& x, const Tensor& y) {
  WithFloatType(y.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    Map(
        n, [](V v) HWY_ATTR { return ReluOf(v); }, y.As<T>(), x.As<T>());
  });
}

void ReluGradRange(size_t n, const ConstTensor& y, const ConstTensor& grad_y,
                   const Tensor& grad_x) {
  const auto grad = [](V out, V v) HWY_ATTR {
    return hn::IfThenElseZero(hn::Gt(out, hn::Zero(D())), v);
  };
  WithFloatType(y.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    Map(n, grad, grad_x.As<T>(), y.As<T>(), grad_y.As<T>());
  });
}

// Eight elements are one byte of the mask, so this works on vectors of at most
// eight lanes: the mask's bytes are then whole.
using D8 = hn::CappedTag<float, 8>;

// relu of n <= Lanes elements; the bits of those above 0, from bit 0 on.
template <typename T>
HWY_INLINE uint8_t ReluBits(size_t n, const T* x, T* y) {
  const D8 d;
  const bool whole = n >= hn::Lanes(d);
  const auto v = whole ? LoadAs(d, x) : LoadFirstAs(d, x, n);
  uint8_t stored[8];
  hn::StoreMaskBits(d, hn::Gt(v, hn::Zero(d)), stored);
  const auto out = hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v);
  if (whole) {
    StoreAs(out, d, y);
  } else {
    StoreFirstAs(out, d, y, n);
  }
  return stored[0];
}

// Elements whose bits are handled together.
constexpr size_t kMaskWord = 32;

// relu of a word's elements; the bits of those above 0, from bit 0 on.
// REQUIRES: vectors have 8 to 32 lanes.
template <typename T>
HWY_INLINE uint32_t ReluWord(const T* x, T* y) {
  const D d;
  constexpr size_t kLanes = hn::MaxLanes(D());
  uint32_t word = 0;
  THIMBLE_UNROLL
  for (size_t part = 0; part < kMaskWord; part += kLanes) {
    const V v = LoadAs(d, x + part);
    uint8_t stored[8] = {};
    hn::StoreMaskBits(d, hn::Gt(v, hn::Zero(d)), stored);
    uint32_t bits = 0;
    for (size_t i = 0; i < kLanes / 8; ++i) {
      bits |= static_cast<uint32_t>(stored[i]) << (8 * i);
    }
    word |= bits << part;
    StoreAs(ReluOf(v), d, y + part);
  }
  return word;
}

template <typename T>
HWY_INLINE void ReluWithMaskOf(size_t n, const T* x, T* y, uint8_t* mask) {
  const size_t lanes = hn::Lanes(D8());
  size_t i = 0;
  if constexpr (hn::MaxLanes(D()) >= 8) {
    for (; i + kMaskWord <= n; i += kMaskWord) {
      const uint32_t word = ReluWord(x + i, y + i);
      std::memcpy(mask + i / 8, &word, sizeof(word));  // the lowest byte first
    }
  }
  for (; i + 8 <= n; i += 8) {
    uint8_t bits = 0;
    for (size_t part = 0; part < 8; part += lanes) {
      bits = static_cast<uint8_t>(
          bits | (ReluBits(lanes, x + i + part, y + i + part) << part));
    }
    mask[i / 8] = bits;
  }
  if (i == n) return;
  uint8_t bits = 0;
  for (size_t part = 0; i + part < n; part += lanes) {
    const size_t count = HWY_MIN(n - i - part, lanes);
    bits = static_cast<uint8_t>(
        bits | (ReluBits(count, x + i + part, y + i + part) << part));
  }
  mask[i / 8] = bits;
}

void ReluWithMaskRange(size_t n, const ConstTensor& x, const Tensor& y,
                       uint8_t* mask) {
  WithFloatType(y.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    ReluWithMaskOf(n, x.As<T>(), y.As<T>(), mask);
  });
}

// The gradients of n <= Lanes elements, of which the bits begin at bit 0.
template <typename T>
HWY_INLINE void ReluGradBits(size_t n, uint8_t bits, const T* grad_y,
                             T* grad_x) {
  const D8 d;
  const uint8_t readable[8] = {bits};  // LoadMaskBits may read eight bytes
  const auto on = hn::LoadMaskBits(d, readable);
  if (n >= hn::Lanes(d)) {
    StoreAs(hn::IfThenElseZero(on, LoadAs(d, grad_y)), d, grad_x);
  } else {
    StoreFirstAs(hn::IfThenElseZero(on, LoadFirstAs(d, grad_y, n)), d, grad_x,
                 n);
  }
}

// The gradients of elements [0, n) of which the mask has whole words: each lane
// looks at its own bit of a word that all lanes get. Returns n.
template <typename T>
HWY_INLINE size_t ReluGradWords(size_t n, const uint8_t* mask, const T* grad_y,
                                T* grad_x) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  constexpr size_t kParts = kMaskWord / hn::MaxLanes(D());
  const size_t lanes = hn::Lanes(d);
  hn::Vec<hn::RebindToUnsigned<D>> own[kParts];
  THIMBLE_UNROLL
  for (size_t k = 0; k < kParts; ++k) {
    const auto bit = static_cast<uint32_t>(k * lanes);
    own[k] = hn::Shl(hn::Set(du, 1u), hn::Iota(du, bit));
  }
  size_t i = 0;
  for (; i + kMaskWord <= n; i += kMaskWord) {
    uint32_t word;  // the first byte is the lowest
    std::memcpy(&word, mask + i / 8, sizeof(word));
    const auto all = hn::Set(du, word);
    THIMBLE_UNROLL
    for (size_t k = 0; k < kParts; ++k) {
      const auto off = hn::Eq(hn::And(all, own[k]), hn::Zero(du));
      const V v = LoadAs(d, grad_y + i + k * lanes);
      StoreAs(hn::IfThenZeroElse(hn::RebindMask(d, off), v), d,
              grad_x + i + k * lanes);
    }
  }
  return i;
}

template <typename T>
HWY_INLINE void ReluGradFromMaskOf(size_t n, const uint8_t* mask,
                                   const T* grad_y, T* grad_x) {
  const size_t lanes = hn::Lanes(D8());
  size_t i = ReluGradWords(n, mask, grad_y, grad_x);
  for (; i + 8 <= n; i += 8) {
    for (size_t part = 0; part < 8; part += lanes) {
      ReluGradBits(lanes, static_cast<uint8_t>(mask[i / 8] >> part),
                   grad_y + i + part, grad_x + i + part);
    }
  }
  for (size_t part = 0; i + part < n; part += lanes) {
    ReluGradBits(HWY_MIN(n - i - part, lanes),
                 static_cast<uint8_t>(mask[i / 8] >> part), grad_y + i + part,
                 grad_x + i + part);
  }
}

void ReluGradFromMaskRange(size_t n, const uint8_t* mask,
                           const ConstTensor& grad_y, const Tensor& grad_x) {
  WithFloatType(grad_x.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    ReluGradFromMaskOf(n, mask, grad_y.As<T>(), grad_x.As<T>());
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {
namespace {

// Elements per block of work: a multiple of 8, so that each byte of a mask has
// one writer.
constexpr int64_t kBlock = 4096;

// Calls run(begin, count) for blocks of [0, n), spread over the threads.
template <typename F>
void ForBlocks(int64_t n, const KernelContext& context, const F& run) {
  context.pool->ParallelFor(
      (n + kBlock - 1) / kBlock, [&](int64_t begin, int64_t end, int) {
        const int64_t first = begin * kBlock;
        const int64_t last = end * kBlock < n ? end * kBlock : n;
        run(first, static_cast<size_t>(last - first));
      });
}

}  // namespace

void Add(int64_t n, ConstTensor a, ConstTensor b, Tensor y,
         const KernelContext& context) {
  const auto run = THIMBLE_DISPATCH(AddRange).Get();
  ForBlocks(n, context, [&](int64_t i, size_t count) {
    run(count, a.From(i), b.From(i), y.From(i));
  });
}

void Copy(int64_t n, ConstTensor x, Tensor y, const KernelContext& context) {
  const auto convert = THIMBLE_DISPATCH(ConvertRange).Get();
  ForBlocks(n, context, [&](int64_t i, size_t count) {
    if (x.dtype() == y.dtype()) {
      std::memcpy(y.From(i).data(), x.From(i).data(),
                  BytesFor(y.dtype(), static_cast<int64_t>(count)));
    } else {
      convert(count, x.From(i), y.From(i));
    }
  });
}

bool AllFinite(int64_t n, ConstTensor values, const KernelContext& context) {
  if (values.is_in_blocks()) {
    constexpr int64_t kBlock = ConstTensor::kBlock;
    return AllFinite((n + kBlock - 1) / kBlock, {values.scales(), DType::kBF16},
                     context);
  }
  const auto run = THIMBLE_DISPATCH(AllFiniteRange).Get();
  // Only ever lowered, so the order of the threads does not matter.
  std::atomic<bool> finite = true;
  ForBlocks(n, context, [&](int64_t i, size_t count) {
    if (!run(count, values.From(i))) {
      finite.store(false, std::memory_order_relaxed);
    }
  });
  return finite.load(std::memory_order_relaxed);
}

void Relu(int64_t n, ConstTensor x, Tensor y, const KernelContext& context) {
  TH_CHECK(x.dtype() == y.dtype());
  const auto run = THIMBLE_DISPATCH(ReluRange).Get();
  ForBlocks(n, context,
            [&](int64_t i, size_t count) { run(count, x.From(i), y.From(i)); });
}

void ReluWithMask(int64_t n, ConstTensor x, Tensor y, uint8_t* mask,
                  const KernelContext& context) {
  TH_CHECK(x.dtype() == y.dtype());
  const auto run = THIMBLE_DISPATCH(ReluWithMaskRange).Get();
  ForBlocks(n, context, [&](int64_t i, size_t count) {
    run(count, x.From(i), y.From(i), mask + i / 8);
  });
}

void ReluGradFromOutput(int64_t n, ConstTensor y, ConstTensor grad_y,
                        Tensor grad_x, const KernelContext& context) {
  TH_CHECK(y.dtype() == grad_x.dtype() && grad_y.dtype() == grad_x.dtype());
  const auto run = THIMBLE_DISPATCH(ReluGradRange).Get();
  ForBlocks(n, context, [&](int64_t i, size_t count) {
    run(count, y.From(i), grad_y.From(i), grad_x.From(i));
  });
}

void ReluGradFromMask(int64_t n, const uint8_t* mask, ConstTensor grad_y,
                      Tensor grad_x, const KernelContext& context) {
  TH_CHECK(grad_y.dtype() == grad_x.dtype());
  const auto run = THIMBLE_DISPATCH(ReluGradFromMaskRange).Get();
  ForBlocks(n, context, [&](int64_t i, size_t count) {
    run(count, mask + i / 8, grad_y.From(i), grad_x.From(i));
  });
}

void Dropout(int64_t images, int64_t elements, const DropoutMask& mask,
             ConstTensor x, Tensor y, const KernelContext& context) {
  TH_CHECK(x.dtype() == y.dtype());
  const auto run = THIMBLE_DISPATCH(DropoutGroups).Get();
  constexpr auto kGroup = static_cast<int64_t>(kDropoutGroup);
  const int64_t groups = (elements + kGroup - 1) / kGroup;
  context.pool->ParallelFor(images * groups,
                            [&](int64_t begin, int64_t end, int) {
                              run(begin, end, elements, mask, x, y);
                            });
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
