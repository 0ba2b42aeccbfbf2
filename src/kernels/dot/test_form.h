// SPDX-License-Identifier: Apache-2.0
//
// Test only: running a body with every form of dot products.
#pragma once

#include <string>

#include "kernels/dot/dot_form.h"
#include "kernels/target.h"
#include "kernels/testing.h"

namespace thimble::kernels::testing {

// Runs body() on every SIMD target with each form that the CPU has: so all
// builds that it can run are run.
template <typename F>
void ForEachDotForm(const F& body) {
  ForEachTarget([&] {
    for (const DotForm form : {DotForm::kNative, DotForm::kEmulated}) {
      if (!IsSupported(form)) continue;
      if (form == DotForm::kNative && ActiveTarget() != Target::kAvx3Bf16) {
        continue;
      }
      ForceDotForm(form);
      SCOPED_TRACE("build=" +
                   std::to_string(static_cast<int>(ActiveDotBuild())));
      body();
    }
  });
}

}  // namespace thimble::kernels::testing
