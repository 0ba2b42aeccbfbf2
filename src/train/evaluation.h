// SPDX-License-Identifier: Apache-2.0
//
// TestPass: the test split of a source through a session's evaluate phase, what
// an epoch ends with and what Evaluate reports. Allocates when it is made, not
// later. One thread at a time, as the session.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "thimble/batches.h"
#include "thimble/session.h"
#include "thimble/status.h"

namespace thimble::train {

struct TestResult {
  int64_t rows = 0;
  double loss = 0;      // mean over all rows
  double accuracy = 0;  // share of them
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
  struct Sums {
    int64_t rows = 0;
    double loss = 0;
    int64_t correct = 0;
  };
  Status Add(int64_t part, Sums* sums);
  static TestResult MeansOf(const Sums& sums);

  Session& session_;
  BatchSource& source_;
  std::vector<FeedBuffer> feeds_;
};

}  // namespace thimble::train
