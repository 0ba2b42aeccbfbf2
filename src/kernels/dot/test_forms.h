// SPDX-License-Identifier: Apache-2.0
//
// Test only: running a body with every form of dot products that the CPU has.
#pragma once

#include <gtest/gtest.h>

#include "kernels/dot/dot_form.h"
#include "kernels/testing.h"

namespace thimble::kernels::testing {

// Runs body() once for each supported target and each of its forms: emulated
// products are built for the target's vectors.
template <typename F>
void ForEachDotForm(const F& body) {
  ForEachTarget([&] {
    for (const DotForm form : {DotForm::kEmulated, DotForm::kNative}) {
      if (!IsSupported(form)) continue;
      SCOPED_TRACE(form == DotForm::kNative ? "native" : "emulated");
      ForceDotForm(form);
      body();
      ForceDotForm(std::nullopt);
    }
  });
}

}  // namespace thimble::kernels::testing
