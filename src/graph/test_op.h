// SPDX-License-Identifier: Apache-2.0
//
// TestOp: an op that is what a test says, so that what only looks at shapes,
// bytes and orders can be tested without ops of networks. It has no kernel and
// no gradient. Immutable, as every OpDef.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/op.h"

namespace thimble::testing {

struct TestOpTraits {
  std::vector<ValueSpec> outputs;
  std::string refusal = {};  // if any: what Infer says instead
  std::vector<InPlacePair> in_place = {};
  bool is_view = false;
  // Runs again as an op that makes the first output alone and reads the others.
  bool repeats_from_saved = false;
  int64_t flops = 0;
  Workspace scratch = {};
  std::string attributes = {};
};

class TestOp final : public OpDef {
 public:
  explicit TestOp(TestOpTraits traits) : traits_(std::move(traits)) {}

  // Of no meaning here: nothing that is tested with these ops asks for it.
  std::string_view name() const override { return "test-op"; }
  std::string Attributes() const override { return traits_.attributes; }

  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec>) const override {
    if (!traits_.refusal.empty()) return Status::Usage(traits_.refusal);
    return traits_.outputs;
  }
  std::vector<InPlacePair> InPlace() const override { return traits_.in_place; }
  bool IsView() const override { return traits_.is_view; }
  RepeatForm Repeat() const override {
    if (!traits_.repeats_from_saved) return OpDef::Repeat();
    TestOpTraits again = traits_;
    again.outputs.erase(again.outputs.begin() + 1, again.outputs.end());
    return {std::make_shared<TestOp>(again), /*reads_saved=*/true};
  }
  int64_t Flops(std::span<const ValueSpec>,
                std::span<const ValueSpec>) const override {
    return traits_.flops;
  }
  Workspace Scratch(std::span<const ValueSpec>,
                    std::span<const ValueSpec>) const override {
    return traits_.scratch;
  }

 private:
  TestOpTraits traits_;
};

}  // namespace thimble::testing
