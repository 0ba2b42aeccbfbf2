// SPDX-License-Identifier: Apache-2.0
#include "planner/graph_copy.h"

#include <utility>

#include "base/check.h"
#include "graph/ends.h"

namespace thimble::planner {

GraphCopy::GraphCopy(const Graph& source)
    : GraphCopy(source, {source.axes().begin(), source.axes().end()}) {}

GraphCopy::GraphCopy(const Graph& source, std::vector<Axis> axes)
    : source_(source), made_(std::move(axes)) {
  TH_CHECK(made_.axes().size() == source.axes().size());
  const auto values = source.values();
  now_.resize(values.size());
  for (uint32_t i = 0; i < values.size(); ++i) {
    const Value& v = values[i];
    if (v.producer.valid()) continue;
    ValueSpec spec = v.spec;
    if (spec.axis.valid()) {
      spec.shape =
          spec.shape.WithLeading(made_.axes()[spec.axis.index()].capacity);
    }
    now_[i] = made_.AddValue(v.name, spec, v.role, v.init);
  }
}

OpId GraphCopy::AddOp(std::string name, std::shared_ptr<const OpDef> def,
                      const std::vector<ValueId>& inputs,
                      const std::vector<ValueId>& outputs) {
  const OpId id{static_cast<uint32_t>(made_.ops().size())};
  std::vector<ValueId> mapped;
  mapped.reserve(inputs.size());
  for (ValueId v : inputs) mapped.push_back(Now(v));
  const auto made = made_.AddOp(std::move(name), std::move(def),
                                std::move(mapped), Role::kActivation);
  TH_CHECK(made.ok() && made->size() <= outputs.size());
  for (size_t k = 0; k < made->size(); ++k) {
    now_[outputs[k].i] = (*made)[k];
    made_.SetRole((*made)[k], source_.value(outputs[k]).role);
    made_.SetStorage((*made)[k], source_.value(outputs[k]).spec.storage);
    made_.SetStream((*made)[k], source_.value(outputs[k]).stream);
  }
  return id;
}

Ends EndsIn(const GraphCopy& copy, const Ends& ends) {
  return MapEnds(ends, [&copy](ValueId v) { return copy.Now(v); });
}

Model TakeModel(const Model& source, GraphCopy& copy) {
  Model model;
  model.name = source.name;
  model.ends = EndsIn(copy, source.ends);
  model.graph = copy.Take();
  model.sparse_weights = source.sparse_weights;
  return model;
}

}  // namespace thimble::planner
