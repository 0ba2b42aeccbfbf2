// SPDX-License-Identifier: Apache-2.0
//
// Optimizer: what is kept for each parameter beside its gradient, and the op
// that updates the parameter with both. A plan has one. Immutable,
// freely shared between plans and threads.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "thimble/graph.h"
#include "thimble/status.h"

namespace thimble {

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  virtual std::string_view name() const = 0;
  // Whether its settings are possible; says what to change.
  virtual Status Check() const = 0;

  // One piece of state for a parameter. It lives as long as the parameter and
  // goes to checkpoints under "<parameter>.<name>".
  struct State {
    std::string_view name;
    ValueSpec spec;
    Init init;
  };
  virtual std::vector<State> StateOf(const ValueSpec& parameter) const = 0;
  // Reads the parameter, its gradient and the state, in this order, and changes
  // parameter and state where they lie.
  virtual std::shared_ptr<const OpDef> UpdateOp() const = 0;

  // Name and value of everything that decides bits, for checkpoints.
  virtual std::map<std::string, std::string> Settings() const = 0;
};

// g += weight_decay * w; v = momentum * v + g; w −= rate * (nesterov ?
// g + momentum * v : v). With momentum 0 no velocity is stored.
struct SgdOptions {
  float momentum = 0.9f;
  float weight_decay = 0.0f;
  bool nesterov = false;
};

std::shared_ptr<const Optimizer> Sgd(const SgdOptions& options = {});

}  // namespace thimble
