// SPDX-License-Identifier: Apache-2.0
//
// Graph: values (shape, dtype, role) and the ops between them, in the order in
// which they were added, which is a topological one. It knows no memory:
// offsets come from a Plan. Networks are built with Network
// (thimble/network.h); what an op is stands in src/graph/op.h. Not thread-safe
// while it is being built.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "thimble/dtype.h"
#include "thimble/shape.h"
#include "thimble/status.h"

namespace thimble {

class OpDef;

struct ValueId {
  uint32_t i = UINT32_MAX;
  bool valid() const { return i != UINT32_MAX; }
  friend bool operator==(ValueId, ValueId) = default;
};

struct OpId {
  uint32_t i = UINT32_MAX;
  bool valid() const { return i != UINT32_MAX; }
  friend bool operator==(OpId, OpId) = default;
};

// What a value is for. Memory is accounted by role.
enum class Role : uint8_t {
  kInput,               // images, labels
  kParameter,           // what is learned
  kGradient,            // of a parameter
  kOptimizerState,      // momentum
  kStatistic,           // running and batch statistics, loss, counts
  kActivation,          // forward values
  kActivationGradient,  // backward values
  kWorkspace,           // a kernel's scratch (buffers only, never a Value)
};
inline constexpr size_t kRoles = 8;

const char* RoleName(Role role);

// How a parameter or running statistic starts.
struct Init {
  enum class Kind : uint8_t { kConstant, kNormal, kUniform };
  Kind kind = Kind::kConstant;
  float value = 0.0f;  // the constant; the standard deviation; the bound ±value
};

struct ValueSpec {
  Shape shape;
  DType dtype = DType::kF32;
  // The leading extent is a capacity: a run may use fewer.
  bool batched = false;

  size_t bytes() const { return BytesFor(dtype, shape.elements()); }
};

struct Value {
  std::string name;
  ValueSpec spec;
  Role role = Role::kActivation;
  Init init;
  OpId producer;  // invalid for inputs and everything that outlives a step
};

struct Op {
  std::string name;
  std::shared_ptr<const OpDef> def;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
};

class Graph {
 public:
  ValueId AddValue(std::string name, const ValueSpec& spec, Role role,
                   Init init = {});

  // Infers the outputs' shapes and adds them under the op's name, with `role`.
  // Fails, naming the op and the shapes, where the inputs do not fit.
  Result<std::vector<ValueId>> AddOp(std::string name,
                                     std::shared_ptr<const OpDef> def,
                                     std::vector<ValueId> inputs,
                                     Role role = Role::kActivation);

  // REQUIRES for both: the id came from this graph.
  const Value& value(ValueId id) const { return values_[id.i]; }
  const Op& op(OpId id) const { return ops_[id.i]; }
  void SetRole(ValueId id, Role role) { values_[id.i].role = role; }

  std::span<const Value> values() const { return values_; }
  std::span<const Op> ops() const { return ops_; }

  std::vector<ValueSpec> InputSpecs(const Op& op) const;
  std::vector<ValueSpec> OutputSpecs(const Op& op) const;

  // Elements of all values with role kParameter.
  int64_t ParameterCount() const;

  // One line per op, stable: "conv1 = conv2d(image [8, 1, 28, 28] f32, …) -> …"
  std::string ToText() const;

 private:
  std::vector<Value> values_;
  std::vector<Op> ops_;
};

// What else than name, batch, images and classes a model of BuildModel was
// built with, by name (thimble/model.h). Empty for other networks.
using BuildOptions = std::map<std::string, double>;

// A network with its ends named: what a trainer feeds and reads. Made by
// Network::Finish or BuildModel.
struct Model {
  std::string name;
  Graph graph;
  ValueId images;   // u8 [N, C, H, W]; N is the batch capacity
  ValueId labels;   // i32 [N]
  ValueId logits;   // f32 [N, K]
  ValueId loss;     // f32 [1], mean over the batch
  ValueId correct;  // i32 [1], rows whose largest logit is the label's
  BuildOptions build_options;

  int64_t batch() const { return graph.value(images).spec.shape[0]; }
};

}  // namespace thimble
