// SPDX-License-Identifier: Apache-2.0
//
// Compiles a source once per DotBuild (dot_form.h), as Highway's foreach_target
// does once per target:
//     #define THIMBLE_DOT_INCLUDE "kernels/dot/something-inl.h"
//     #include "kernels/dot/foreach_build.h"
// after all other includes. What stands between THIMBLE_DOT_BEGIN and
// THIMBLE_DOT_END in that file is then in the namespaces dot_native, dot_avx512
// and dot_avx2 of thimble::kernels, compiled for the instructions that they
// need and no others. Hence no `#pragma once` in it, nor here.
//
// A .cc that does this is compiled with -ffp-contract=off, so that the builds
// give the same bits; only what is written as a fused multiply-add is one.
#include <hwy/base.h>  // HWY_PUSH_ATTRIBUTES

#define THIMBLE_DOT_AVX2_SET "avx2,fma,f16c,bmi,bmi2"
#define THIMBLE_DOT_AVX512_SET \
  "avx512f,avx512bw,avx512cd,avx512dq,avx512vl," THIMBLE_DOT_AVX2_SET
#define THIMBLE_DOT_END \
  }                     \
  }                     \
  HWY_POP_ATTRIBUTES

#define THIMBLE_DOT_IS_AVX2 1
#define THIMBLE_DOT_IS_NATIVE 0
#define THIMBLE_DOT_BEGIN                   \
  HWY_PUSH_ATTRIBUTES(THIMBLE_DOT_AVX2_SET) \
  namespace thimble::kernels {              \
  namespace dot_avx2 {
#include THIMBLE_DOT_INCLUDE
#undef THIMBLE_DOT_BEGIN
#undef THIMBLE_DOT_IS_AVX2
#undef THIMBLE_DOT_IS_NATIVE

// Files with per-build include guards look at this.
#define THIMBLE_DOT_TOGGLE
#define THIMBLE_DOT_IS_AVX2 0
#define THIMBLE_DOT_IS_NATIVE 0
#define THIMBLE_DOT_BEGIN                     \
  HWY_PUSH_ATTRIBUTES(THIMBLE_DOT_AVX512_SET) \
  namespace thimble::kernels {                \
  namespace dot_avx512 {
#include THIMBLE_DOT_INCLUDE
#undef THIMBLE_DOT_BEGIN
#undef THIMBLE_DOT_IS_NATIVE
#undef THIMBLE_DOT_TOGGLE

#define THIMBLE_DOT_IS_NATIVE 1
#define THIMBLE_DOT_BEGIN                                   \
  HWY_PUSH_ATTRIBUTES("avx512bf16," THIMBLE_DOT_AVX512_SET) \
  namespace thimble::kernels {                              \
  namespace dot_native {
#include THIMBLE_DOT_INCLUDE
#undef THIMBLE_DOT_BEGIN
#undef THIMBLE_DOT_IS_NATIVE
#undef THIMBLE_DOT_IS_AVX2
#undef THIMBLE_DOT_END
#undef THIMBLE_DOT_INCLUDE
