// SPDX-License-Identifier: Apache-2.0
//
// What the figures' files share. Each figure is a function of the options; a
// plan that cannot be made is our own mistake, but it is reported, not checked.
#pragma once

#include "thimble/plan.h"
#include "thimble/reproduce.h"
#include "thimble/status.h"

namespace thimble::reproduce {

// Sohoni et al.
Result<Reproduction> Figure1(const ReproduceOptions& options);
Result<Reproduction> Figure5(const ReproduceOptions& options);
Result<Reproduction> Table3(const ReproduceOptions& options);

// Chen et al.
Result<Reproduction> ChenResnet(const ReproduceOptions& options);
Result<Reproduction> ChenLstm(const ReproduceOptions& options);

inline std::shared_ptr<const Optimizer> SohoniOptimizer() {
  return Sgd({.momentum = 0.9f, .weight_decay = 5e-4f, .nesterov = true});
}

template <typename Bytes>
double Mb(Bytes bytes) {
  return static_cast<double>(bytes) / 1e6;
}

template <typename Bytes>
double Gb(Bytes bytes) {
  return static_cast<double>(bytes) / 1e9;
}

// Says what is planned next.
inline void Tell(const ReproduceOptions& options, const std::string& what) {
  if (options.progress) options.progress(what);
}

}  // namespace thimble::reproduce
