// SPDX-License-Identifier: Apache-2.0
//
// Optimizer: says what is kept for each parameter beside its gradient, and
// which op updates the parameter with both. A plan has one optimizer.
// Immutable, freely shared between plans and threads.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "thimble/graph.h"
#include "thimble/rounding.h"
#include "thimble/status.h"
#include "thimble/storage.h"

namespace thimble {

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  virtual std::string_view name() const = 0;
  // An error that says what to change, if its settings are not possible.
  virtual Status Check() const = 0;

  // One piece of state for a parameter. It is kept from step to step, as the
  // parameter is, and goes to checkpoints as "<parameter>.<name>".
  struct State {
    std::string_view name;
    ValueSpec spec;
    Init init;
  };
  virtual std::vector<State> StateOf(const ValueSpec& parameter) const = 0;
  // The op that makes an update. Its inputs are the parameter, its gradient and
  // the state, in this order. It changes parameter and state where they lie.
  // `position` is that of the parameter in the model: it tells its random
  // numbers from those of the others.
  virtual std::shared_ptr<const OpDef> UpdateOp(uint32_t position) const = 0;

  // ---- Without gradients of weights (Precision::keeps_gradients)

  // Why a weight cannot be updated without a gradient of its own, if it cannot.
  // `in_one_part`: the gradient of a step is made by one op at once. By
  // default it cannot.
  virtual Status CheckFold(bool in_one_part) const;

  // Part `part` of `parts` of a step's microbatch that a weight's gradient is
  // made in: output `output` of an op like `maker`.
  struct FoldPart {
    std::shared_ptr<const OpDef> maker;
    uint32_t output;
    uint32_t position;  // of the parameter, as for UpdateOp
    uint32_t part, parts;
  };
  // The op that stands in for the maker. Its inputs are the parameter and its
  // state, which it changes where they lie, then the maker's (without the sum
  // so far of that output, if it has one); its outputs are the maker's others.
  // If it changes the parameter, all that reads it must run before.
  // REQUIRES: CheckFold is content.
  virtual std::shared_ptr<const OpDef> FoldOp(const FoldPart& part) const;
  // The op of the update phase, of parameter and state; null where FoldOp has
  // done all.
  virtual std::shared_ptr<const OpDef> ApplyOp(uint32_t position) const;

  // Name and value of every setting that decides bits, but for rounding and the
  // state's storage where they are the default. Checkpoints hold them: a run is
  // resumed with the same settings only.
  virtual std::map<std::string, std::string> Settings() const = 0;
};

// Stochastic gradient descent. For a parameter w, gradient g and velocity v:
//   g = g + weight_decay * w
//   v = momentum * v + g
//   w = w − rate * (nesterov ? g + momentum * v : v)
// With momentum 0 no velocity is stored, and no rounding error can be fed back.
struct SgdOptions {
  float momentum = 0.9f;
  float weight_decay = 0.0f;
  bool nesterov = false;
  // Of parameters and state that are stored in less than f32.
  Rounding rounding = Rounding::kNearest;
  // How state is stored: f32, f16, bf16 or U8InBlocks(), which is rounded
  // stochastically in any case. Unset: as the parameter is. State of vectors
  // (biases, batch norms) is always f32.
  std::optional<Storage> state = std::nullopt;
};

std::shared_ptr<const Optimizer> Sgd(const SgdOptions& options = {});

// Adam (Kingma and Ba, 2015), and AdamW (Loshchilov and Hutter, 2019) with
// `decoupled`. For a parameter w, gradient g and step t:
//   decoupled: w = w * (1 − rate * weight_decay)
//   else:      g = g + weight_decay * w
//   m = beta1 * m + (1 − beta1) * g
//   v = beta2 * v + (1 − beta2) * g²
//   w = w − rate * (m / (1 − beta1^t)) / (sqrt(v / (1 − beta2^t)) + epsilon)
// Rounding errors cannot be fed back: use stochastic rounding.
struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  bool decoupled = false;
  // As SgdOptions has them. Moments in f16 have a scale each.
  Rounding rounding = Rounding::kNearest;
  std::optional<Storage> state = std::nullopt;
};

std::shared_ptr<const Optimizer> Adam(const AdamOptions& options = {});

}  // namespace thimble
