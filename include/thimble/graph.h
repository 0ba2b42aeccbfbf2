// SPDX-License-Identifier: Apache-2.0
//
// Graph: values (shape, storage, role) and the ops between them, in the order
// in which they were added, which is a topological one. It knows no memory:
// offsets come from a Plan. Networks are built with Network
// (thimble/network.h). Not thread-safe while it is being built.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "thimble/axis.h"
#include "thimble/shape.h"
#include "thimble/status.h"
#include "thimble/storage.h"

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
  kInput,               // what a run is fed with
  kParameter,           // what is learned
  kGradient,            // of a parameter
  kOptimizerState,      // momentum, Adam's moments
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
  Storage storage;
  // The axis that the leading extent counts along, if any: a run may use fewer.
  AxisId axis = {};

  // Elements that are kept, which is what work is counted by.
  int64_t kept() const { return storage.Kept(shape.elements()); }
  size_t bytes() const { return storage.Bytes(shape.elements()); }
};

struct Value {
  std::string name;
  ValueSpec spec;
  Role role = Role::kActivation;
  Init init;
  OpId producer;  // invalid for inputs and everything that outlives a step
  // Where it is rounded by chance when it is written (blocks): the stream of
  // its random numbers.
  uint32_t stream = 0;
};

struct Op {
  std::string name;
  std::shared_ptr<const OpDef> def;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
};

class Graph {
 public:
  Graph() = default;
  // REQUIRES: at most kMaxAxes.
  explicit Graph(std::vector<Axis> axes);

  // REQUIRES: there are fewer than kMaxAxes.
  AxisId AddAxis(std::string name, int64_t capacity);
  std::span<const Axis> axes() const { return axes_; }

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
  // Where the kernels of all ops around it take it so.
  void SetStorage(ValueId id, const Storage& storage) {
    values_[id.i].spec.storage = storage;
  }
  void SetStream(ValueId id, uint32_t stream) { values_[id.i].stream = stream; }

  std::span<const Value> values() const { return values_; }
  std::span<const Op> ops() const { return ops_; }

  std::vector<ValueSpec> InputSpecs(const Op& op) const;
  std::vector<ValueSpec> OutputSpecs(const Op& op) const;

  // Elements of all values with role kParameter.
  int64_t ParameterCount() const;

  // One line per op, stable: "conv1 = conv2d(image [8, 1, 28, 28] f32, …) -> …"
  std::string ToText() const;

 private:
  std::vector<Axis> axes_;
  std::vector<Value> values_;
  std::vector<Op> ops_;
};

// What else than name, batch, images and classes a model of BuildModel was
// built with, by name (thimble/model.h). Empty for other networks.
using BuildOptions = std::map<std::string, double>;

// A value under the name by which the outside knows it. Its shape and storage
// are the graph's.
struct End {
  std::string name;
  ValueId value;
};

inline constexpr size_t kMaxMetrics = 4;

// What a trainer writes and reads.
struct Ends {
  std::vector<End> feeds;    // written before a pass
  std::vector<End> outputs;  // to be read after an evaluation
  ValueId loss;              // f32 [1], the mean over what a pass was fed
  // i32 or f32 [1], at most kMaxMetrics: sums over what a pass was fed, to be
  // told as means.
  std::vector<End> metrics;
};

// A network with its ends named. Made by Network::Finish or BuildModel.
struct Model {
  std::string name;
  Graph graph;
  Ends ends;
  BuildOptions build_options;
  // The same for models of the same layers, whatever their batch; empty where
  // the graph was made by hand.
  std::string fingerprint = {};
  // The weights that are sparse where SparseWeights::weights names none, in its
  // form. Empty: as it says.
  std::vector<std::string> sparse_weights = {};

  // Along the first axis.
  int64_t batch() const { return graph.axes()[kBatchAxis.index()].capacity; }
};

}  // namespace thimble
