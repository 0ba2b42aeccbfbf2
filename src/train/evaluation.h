// SPDX-License-Identifier: Apache-2.0
//
// TestPass: the test split of a source through a session's evaluate phase, what
// an epoch ends with and what Evaluate reports. One thread at a time, as the
// session.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "thimble/batches.h"
#include "thimble/session.h"
#include "thimble/status.h"

namespace thimble::train {

struct TestResult {
  int64_t count = 0;            // along the first axis
  double loss = 0;              // mean over all of it
  std::vector<double> metrics;  // the same, in the model's order
};

class TestPass {
 public:
  // Both must outlive it; the source has begun.
  TestPass(Session& session, BatchSource& source);

  // One microbatch of the split. REQUIRES: part < source.TestParts().
  Result<TestResult> Part(int64_t part);
  // All of it. Fails where `stop`, if given, is set meanwhile. REQUIRES: the
  // split has parts.
  Result<TestResult> All(const std::atomic<bool>* stop);

 private:
  // Adds a part to sums, which MeansOf divides.
  Status Add(int64_t part, TestResult* sums);
  static TestResult MeansOf(TestResult sums);
  TestResult Nothing() const {
    return {.metrics = std::vector<double>(metrics_)};
  }

  Session& session_;
  BatchSource& source_;
  std::vector<FeedBuffer> feeds_;
  size_t metrics_;  // of the model
};

}  // namespace thimble::train
