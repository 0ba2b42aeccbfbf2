// SPDX-License-Identifier: Apache-2.0
//
// Between storage types and f32 vectors. Into f16 and bf16 rounds to nearest
// even on every target; infinities stay, values past the largest finite one
// become infinite, NaNs stay NaNs (quiet). Subnormals are exact both ways.
// Included once per SIMD target, after <hwy/highway.h>; hence no `#pragma
// once`.
#if defined(THIMBLE_KERNELS_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_CONVERT_INL_H_
#undef THIMBLE_KERNELS_CONVERT_INL_H_
#else
#define THIMBLE_KERNELS_CONVERT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/simd-inl.h"
#include "kernels/storage.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {

// Only these targets have conversion instructions that round as promised;
// without them Highway truncates.
#undef THIMBLE_F16_INSTRUCTIONS
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
#define THIMBLE_F16_INSTRUCTIONS 1
#else
#define THIMBLE_F16_INSTRUCTIONS 0
#endif

// ---- 16 bits to f32

template <class D>
HWY_INLINE hn::Vec<D> FromBits(D d, BF16,
                               hn::Vec<hn::Rebind<uint16_t, D>> bits) {
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}

template <class D>
HWY_INLINE hn::Vec<D> FromBits(D d, F16,
                               hn::Vec<hn::Rebind<uint16_t, D>> bits) {
#if THIMBLE_F16_INSTRUCTIONS
  const hn::Rebind<hwy::float16_t, D> dh;
  return hn::PromoteTo(d, hn::BitCast(dh, bits));
#else
  // The exponent is moved over by adding the difference of the biases. Infinity
  // and NaN (exponent 31) need it twice; subnormals get exponent 1 and lose the
  // implicit one by a subtraction, which is exact.
  const hn::RebindToUnsigned<D> du;
  const auto wide = hn::PromoteTo(du, bits);
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(wide, hn::Set(du, 0x7FFFu)));
  const auto exponent = hn::And(magnitude, hn::Set(du, 0x7C00u << 13));
  const auto bias = hn::Set(du, (127u - 15u) << 23);
  const auto normal = hn::Add(magnitude, bias);
  const auto special = hn::Eq(exponent, hn::Set(du, 0x7C00u << 13));
  const auto small = hn::Eq(exponent, hn::Zero(du));
  const auto one = hn::Set(du, 113u << 23);
  const auto fixed = hn::BitCast(
      du,
      hn::Sub(hn::BitCast(d, hn::Add(magnitude, one)), hn::BitCast(d, one)));
  const auto result = hn::IfThenElse(
      small, fixed, hn::IfThenElse(special, hn::Add(normal, bias), normal));
  return hn::BitCast(d, hn::Or(result, sign));
#endif
}

// ---- f32 to 16 bits

template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> Narrow(
    D, hn::Vec<hn::RebindToUnsigned<D>> bits) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> dn;
  return hn::DemoteTo(dn, hn::BitCast(di, bits));  // below 2^16: as they are
}

// The upper 16 bits of each lane are those of the nearest bf16.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> RoundUpper(D, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
  return hn::IfThenElse(is_nan, quiet, rounded);
}

template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> ToBits(D d, BF16, hn::Vec<D> v) {
  return Narrow(d, hn::ShiftRight<16>(RoundUpper(d, v)));
}

template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> ToBits(D d, F16, hn::Vec<D> v) {
#if THIMBLE_F16_INSTRUCTIONS
  const hn::Rebind<hwy::float16_t, D> dh;
  const hn::Rebind<uint16_t, D> dn;
  return hn::BitCast(dn, hn::DemoteTo(dh, v));
#else
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto sign = hn::And(bits, hn::Set(du, 0x80000000u));
  const auto magnitude = hn::Xor(bits, sign);
  // Normal: half of the last place is added, and rounds ties to even with the
  // bit that will be the last one. Subnormal: the sum with a power of two whose
  // last place is that of f16's subnormals is rounded by the addition itself.
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const auto rebias = hn::Set(du, 0u - ((127u - 15u) << 23) + 0xFFFu);
  const auto normal =
      hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(odd, rebias)));
  const auto magic = hn::Set(du, (127u - 15u + 23u - 10u + 1u) << 23);
  const auto subnormal = hn::Sub(
      hn::BitCast(du,
                  hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, magic))),
      magic);
  const auto is_small = hn::Lt(magnitude, hn::Set(du, 113u << 23));
  const auto is_large = hn::Gt(magnitude, hn::Set(du, (143u << 23) - 1));
  const auto is_nan = hn::Gt(magnitude, hn::Set(du, 0x7F800000u));
  const auto large =
      hn::IfThenElse(is_nan, hn::Set(du, 0x7E00u), hn::Set(du, 0x7C00u));
  const auto finite = hn::IfThenElse(is_small, subnormal, normal);
  const auto result = hn::IfThenElse(is_large, large, finite);
  return Narrow(d, hn::Or(result, hn::ShiftRight<16>(sign)));
#endif
}

// ---- Memory

template <class D>
HWY_INLINE hn::Vec<D> LoadAs(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadAs(D d, const uint8_t* p) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint8_t, D> db;
  return hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(db, p)));
}
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadAs(D d, const T* p) {
  const hn::Rebind<uint16_t, D> dn;
  return FromBits(d, T(), hn::LoadU(dn, &p->bits));
}

template <class D>
HWY_INLINE void StoreAs(hn::Vec<D> v, D d, float* p) {
  hn::StoreU(v, d, p);
}
template <class D, class T>
HWY_INLINE void StoreAs(hn::Vec<D> v, D d, T* p) {
  const hn::Rebind<uint16_t, D> dn;
  hn::StoreU(ToBits(d, T(), v), dn, &p->bits);
}

// Of values that T holds exactly, as RoundTo makes them.
template <class D>
HWY_INLINE void StoreExact(hn::Vec<D> v, D d, float* p) {
  hn::StoreU(v, d, p);
}
template <class D>
HWY_INLINE void StoreExact(hn::Vec<D> v, D d, F16* p) {
  StoreAs(v, d, p);
}
template <class D>
HWY_INLINE void StoreExact(hn::Vec<D> v, D d, BF16* p) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> dn;
  hn::StoreU(Narrow(d, hn::ShiftRight<16>(hn::BitCast(du, v))), dn, &p->bits);
}

// What a value is after it was stored as T and read again.
template <class D>
HWY_INLINE hn::Vec<D> RoundTo(D, float, hn::Vec<D> v) {
  return v;
}
template <class D>
HWY_INLINE hn::Vec<D> RoundTo(D d, F16 t, hn::Vec<D> v) {
  return FromBits(d, t, ToBits(d, t, v));
}
template <class D>
HWY_INLINE hn::Vec<D> RoundTo(D d, BF16, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(d, hn::And(RoundUpper(d, v), hn::Set(du, 0xFFFF0000u)));
}

// The first n < Lanes(d) elements, then zeros; nothing past them is touched.
template <class D>
HWY_INLINE hn::Vec<D> LoadFirstAs(D d, const float* p, size_t n) {
  return LoadFirst(d, p, n);
}
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadFirstAs(D d, const T* p, size_t n) {
  T buffer[hn::MaxLanes(d)] = {};
  std::memcpy(buffer, p, n * sizeof(T));
  return LoadAs(d, buffer);
}

template <class D>
HWY_INLINE void StoreFirstAs(hn::Vec<D> v, D d, float* p, size_t n) {
  StoreFirst(v, d, p, n);
}
template <class D, class T>
HWY_INLINE void StoreFirstAs(hn::Vec<D> v, D d, T* p, size_t n) {
  T buffer[hn::MaxLanes(d)];
  StoreAs(v, d, buffer);
  std::memcpy(p, buffer, n * sizeof(T));
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
