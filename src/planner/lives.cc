// SPDX-License-Identifier: Apache-2.0
#include "planner/lives.h"

#include <algorithm>

namespace thimble::planner {

bool IsState(const Value& value) {
  // A gradient that no op makes is a pool of gradients.
  return !value.producer.valid() && value.role != Role::kInput &&
         value.role != Role::kGradient;
}

LastingValues FindLasting(const Program& program) {
  const auto values = program.graph.values();
  LastingValues lasting;
  lasting.state.resize(values.size());
  lasting.carried.resize(values.size());
  lasting.read_later.resize(values.size());
  for (uint32_t i = 0; i < values.size(); ++i) {
    lasting.state[i] = IsState(values[i]);
  }
  for (OpId op : program.phases[static_cast<size_t>(Phase::kUpdate)]) {
    for (ValueId v : program.graph.op(op).inputs) {
      lasting.read_later[v.i] = true;
      lasting.carried[v.i] = program.microbatches > 1 && !lasting.state[v.i];
    }
  }
  // A pool is there as long as its members.
  if (program.microbatches > 1 && program.sparse.has_value() &&
      program.sparse->gradients.valid()) {
    lasting.carried[program.sparse->gradients.i] = true;
  }
  if (!program.train.loss.valid()) return lasting;
  for (const End& end : program.train.feeds) lasting.fed.push_back(end.value);
  lasting.told.push_back(program.train.loss);
  for (const End& end : program.train.metrics) {
    lasting.told.push_back(end.value);
  }
  for (ValueId v : lasting.told) lasting.read_later[v.i] = true;
  return lasting;
}

bool MayOverwrite(std::span<const ValueId> inputs,
                  std::span<const InPlacePair> pairs, const InPlacePair& pair) {
  for (uint32_t k = 0; k < inputs.size(); ++k) {
    if (k == pair.input || inputs[k] != inputs[pair.input]) continue;
    const bool may =
        std::any_of(pairs.begin(), pairs.end(), [&](const InPlacePair& other) {
          return other.input == k && other.output == pair.output;
        });
    if (!may) return false;
  }
  return true;
}

std::vector<size_t> LiveBytesOverTime::Sum() const {
  std::vector<size_t> live(change_.size() - 1);
  int64_t now = 0;
  for (size_t t = 0; t < live.size(); ++t) {
    now += change_[t];
    live[t] = static_cast<size_t>(now);
  }
  return live;
}

size_t LiveBytesOverTime::Most() const {
  int64_t most = 0, now = 0;
  for (const int64_t change : change_) most = std::max(most, now += change);
  return static_cast<size_t>(most);
}

}  // namespace thimble::planner
