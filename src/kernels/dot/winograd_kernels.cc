// SPDX-License-Identifier: Apache-2.0
#include "kernels/dot/winograd_kernels.h"

#include "base/check.h"
#include "kernels/dot/dot_form.h"

#if defined(__x86_64__)
#define THIMBLE_DOT_INCLUDE "kernels/dot/winograd_grad-inl.h"
#include "kernels/dot/foreach_build.h"
#endif

namespace thimble::kernels {
namespace {

const dot::WinogradKernels& KernelsOfBuild() {
#if defined(__x86_64__)
  return THIMBLE_DOT_TABLE(WinogradTable).Get()();
#else
  static constexpr dot::WinogradKernels kNone = {};
  TH_CHECK(false);  // other CPUs have no dot products
  return kNone;
#endif
}

}  // namespace

const dot::WinogradKernels& dot::ActiveWinogradKernels() {
  return KernelsOfBuild();
}

}  // namespace thimble::kernels
