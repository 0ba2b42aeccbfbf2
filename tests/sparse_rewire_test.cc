// SPDX-License-Identifier: Apache-2.0
//
// What a session's rewiring leaves: beside a second session that makes the same
// steps and is not rewired, whatever the storage of weights and state.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/testing.h"
#include "sparse_pattern.h"
#include "stored_floats.h"
#include "thimble/model.h"
#include "thimble/plan.h"
#include "thimble/session.h"

namespace thimble::testing {
namespace {

constexpr int64_t kBatch = 4;

struct Case {
  const char* name;
  PlanOptions plan;
  RewireOptions rewire;
};

// What a sparse weight keeps: of each element's place, where its value is.
using Kept = std::map<size_t, size_t>;

class SparseSession {
 public:
  explicit SparseSession(const PlanOptions& options) {
    auto model = BuildModel(
        "wrn-10-1", {.batch = kBatch,
                     .images = {.channels = 3, .height = 32, .width = 32}});
    EXPECT_TRUE(model.ok()) << model.status().message();
    auto plan = MakePlan(*model, options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    plan_ = std::make_unique<Plan>(*std::move(plan));
    auto session = Session::Create(*plan_, {});
    EXPECT_TRUE(session.ok()) << session.status().message();
    session_ = *std::move(session);
    session_->Initialize(1);
  }

  Session& operator*() { return *session_; }
  Session* operator->() { return session_.get(); }
  const Plan& plan() const { return *plan_; }
  const SparsePool& pool() const { return *plan_->sparse(); }

  void Differentiate(uint64_t seed) {
    const auto images = session_->TrainFeed<uint8_t>("images");
    for (size_t i = 0; i < images.size(); ++i) {
      images[i] = static_cast<uint8_t>(
          127.5f + 100 * kernels::testing::TestValue(seed, i));
    }
    const auto labels = session_->TrainFeed<int32_t>("labels");
    for (size_t i = 0; i < labels.size(); ++i) {
      labels[i] = static_cast<int32_t>((seed + i) % 10);
    }
    session_->BeginStep(0.05f, 0.05f);
    EXPECT_TRUE(std::isfinite(session_->Differentiate(kBatch).loss));
  }

  const ParameterState& Member(size_t m) const {
    return plan_->parameters()[pool().members[m]];
  }
  Kept KeptOf(size_t m) {
    const Shape& shape = plan_->graph().value(Member(m).parameter).spec.shape;
    Kept kept;
    for (size_t place : PlacesOf(PatternOf(*session_, m), shape)) {
      kept.emplace(place, kept.size());
    }
    return kept;
  }
  // Value i of what is stored, as bytes.
  std::string At(ValueId v, size_t i) {
    const size_t bytes =
        plan_->graph().value(v).spec.storage.dtype == DType::kF32 ? 4 : 2;
    return {
        reinterpret_cast<const char*>(session_->Bytes(v).data()) + i * bytes,
        bytes};
  }
  std::string BytesOf(ValueId v) {
    const auto bytes = session_->Bytes(v);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  void TakePools(SparseSession& other) {
    std::vector<ValueId> pools = {pool().index, pool().parameters};
    pools.insert(pools.end(), pool().state.begin(), pool().state.end());
    for (ValueId v : pools) {
      std::ranges::copy(other->Bytes(v), session_->Bytes(v).begin());
    }
  }

 private:
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Session> session_;
};

bool IsZero(const std::string& bytes) {
  return bytes.find_first_not_of('\0') == std::string::npos;
}

class SparseRewiring : public ::testing::TestWithParam<Case> {
 protected:
  SparseRewiring() : rewired_(GetParam().plan), other_(GetParam().plan) {}

  void Step(uint64_t step, RewireOptions& rewire) {
    for (SparseSession* s : {&rewired_, &other_}) s->Differentiate(step);
    rewired_->RewireAtUpdate(rewire);
    for (SparseSession* s : {&rewired_, &other_}) (*s)->Update(0.05f);
    ASSERT_FALSE(other_->rewired().has_value());
    ASSERT_TRUE(rewired_->rewired().has_value());
  }

  void CheckCounts(const RewireResult& result) {
    const PoolLayout& layout = rewired_.pool().layout;
    EXPECT_TRUE(
        CheckIndex(layout, rewired_->Bytes(rewired_.pool().index)).ok());
    int64_t kept = 0;
    for (size_t m = 0; m < layout.size(); ++m) {
      const Pattern pattern = PatternOf(*rewired_, m);
      EXPECT_EQ(pattern.first, kept);
      EXPECT_GT(pattern.kept, 0);
      kept += pattern.kept;
    }
    EXPECT_EQ(kept, layout.kept());
    EXPECT_EQ(result.pruned + result.survivors, kept);
    EXPECT_EQ(result.regrown, 0);
    EXPECT_GT(result.pruned, 0);
  }

  // Survivors are as without a rewiring, what is new is zero; how many are new.
  int64_t CheckValues(ValueId v, const Kept& now, const Kept& before) {
    int64_t grown = 0, moved = 0, not_zero = 0;
    for (const auto& [place, at] : now) {
      const auto old = before.find(place);
      if (old == before.end()) {
        ++grown;
        not_zero += IsZero(rewired_.At(v, at)) ? 0 : 1;
      } else {
        moved += rewired_.At(v, at) == other_.At(v, old->second) ? 0 : 1;
      }
    }
    EXPECT_EQ(not_zero, 0);
    EXPECT_EQ(moved, 0);
    return grown;
  }

  // Blocks that have gone were smaller than those that have not.
  void CheckMagnitudes(size_t m, const Kept& now, const Kept& before) {
    if (GetParam().plan.sparse.block.values() > 1) return;
    const ValueId v = other_.Member(m).parameter;
    const DType dtype = other_.plan().graph().value(v).spec.storage.dtype;
    double gone = 0, stayed = HUGE_VAL;
    for (const auto& [place, at] : before) {
      const double w = std::abs(StoredAt(dtype, other_->Bytes(v).data(), at));
      if (now.contains(place)) {
        stayed = std::min(stayed, w);
      } else {
        gone = std::max(gone, w);
      }
    }
    EXPECT_LE(gone, stayed) << m;
  }

  void CheckState(const std::vector<std::pair<Kept, Kept>>& kept) {
    const SparsePool& pool = rewired_.pool();
    EXPECT_FALSE(pool.state.empty());
    if (GetParam().rewire.reset == StateReset::kWhole) {
      for (ValueId v : pool.state) {
        EXPECT_FALSE(IsZero(other_.BytesOf(v)));
        EXPECT_TRUE(IsZero(rewired_.BytesOf(v)));
      }
      return;
    }
    for (size_t m = 0; m < kept.size(); ++m) {
      for (ValueId v : rewired_.Member(m).state) {
        if (!rewired_.plan().PoolOf(v).valid()) continue;
        CheckValues(v, kept[m].first, kept[m].second);
      }
    }
  }

  void CheckDense() {
    for (const ParameterState& p : rewired_.plan().parameters()) {
      if (rewired_.plan().PoolOf(p.parameter).valid()) continue;
      EXPECT_EQ(rewired_.BytesOf(p.parameter), other_.BytesOf(p.parameter));
      for (ValueId v : p.state) {
        EXPECT_EQ(rewired_.BytesOf(v), other_.BytesOf(v));
      }
    }
  }

  SparseSession rewired_, other_;
};

TEST_P(SparseRewiring, MovesWhatIsSmallestAndNothingElse) {
  RewireOptions rewire = GetParam().rewire;
  for (uint64_t step = 0; step < 5; ++step) {
    SCOPED_TRACE(step);
    Step(step, rewire);
    const RewireResult result = *rewired_->rewired();
    CheckCounts(result);
    std::vector<std::pair<Kept, Kept>> kept;
    int64_t grown = 0;
    for (size_t m = 0; m < rewired_.pool().members.size(); ++m) {
      kept.emplace_back(rewired_.KeptOf(m), other_.KeptOf(m));
      const auto& [now, before] = kept.back();
      grown += CheckValues(rewired_.Member(m).parameter, now, before);
      CheckMagnitudes(m, now, before);
    }
    EXPECT_EQ(grown, result.pruned * rewired_.pool().layout.block().values());
    CheckState(kept);
    CheckDense();
    rewire.threshold = result.threshold;
    other_.TakePools(rewired_);
  }
}

// Neither then nor later: the next one is that of another step.
TEST(SparseRewire, OfAStepThatIsSkippedDoesNotHappen) {
  SparseSession session(
      {.precision = Precision::All(DType::kF16), .sparse = {.nonzero = 0.3}});
  const RewireOptions rewire = {.threshold = 0.02f, .target = 2000};
  const auto state = [&] {
    std::vector<std::byte> bytes;
    const SparsePool& pool = session.pool();
    for (ValueId v : {pool.index, pool.parameters, pool.state[0]}) {
      const std::span<const std::byte> of = session->Bytes(v);
      bytes.insert(bytes.end(), of.begin(), of.end());
    }
    return bytes;
  };
  const auto step = [&](float scale, bool is_due) {
    session->ScaleLoss(scale);
    session.Differentiate(1);
    if (is_due) session->RewireAtUpdate(rewire);
    return session->Update(0.05f);
  };
  EXPECT_EQ(step(1, true), StepOutcome::kApplied);
  EXPECT_TRUE(session->rewired().has_value());
  const std::vector<std::byte> before = state();
  EXPECT_EQ(step(0x1p24f, true), StepOutcome::kSkipped);
  EXPECT_FALSE(session->rewired().has_value());
  EXPECT_EQ(state(), before);
  EXPECT_EQ(step(1, false), StepOutcome::kApplied);
  EXPECT_FALSE(session->rewired().has_value());
  EXPECT_EQ(step(1, true), StepOutcome::kApplied);
  EXPECT_TRUE(session->rewired().has_value());
}

const RewireOptions kWhole = {.threshold = 0.02f, .target = 2000};
const RewireOptions kNew = {
    .threshold = 0.02f, .target = 2000, .reset = StateReset::kNewBlocks};
const RewireOptions kSet = {.method = RewireMethod::kSet,
                            .fraction = 0.2,
                            .reset = StateReset::kNewBlocks};

PlanOptions Planned(const SparseWeights& sparse, DType dtype,
                    std::shared_ptr<const Optimizer> optimizer = Sgd(),
                    bool keeps_gradients = true) {
  PlanOptions options = {.optimizer = std::move(optimizer),
                         .precision = Precision::All(dtype),
                         .sparse = sparse,
                         .threads = 2};
  options.precision.keeps_gradients = keeps_gradients;
  return options;
}

constexpr IndexCodec kPacked = IndexCodec::kPacked;
constexpr IndexCodec kBitmap = IndexCodec::kBitmap;

INSTANTIATE_TEST_SUITE_P(
    Cases, SparseRewiring,
    ::testing::Values(
        Case{"f32", Planned({.nonzero = 0.3, .index = kPacked}, DType::kF32),
             kWhole},
        Case{"f32_bitmap_new",
             Planned({.nonzero = 0.1, .index = kBitmap}, DType::kF32), kNew},
        Case{"f16_set", Planned({.nonzero = 0.3}, DType::kF16), kSet},
        Case{"bf16_blocks",
             Planned({.nonzero = 0.3, .block = {2, 2}}, DType::kBF16), kNew},
        Case{"adam", Planned({.nonzero = 0.3}, DType::kF32, Adam()), kNew},
        Case{"adam_f16", Planned({.nonzero = 0.3}, DType::kF16, Adam()), kNew},
        Case{"adam_u8",
             Planned({.nonzero = 0.3}, DType::kF32,
                     Adam({.state = U8InBlocks()})),
             kWhole},
        Case{"u8_blocks",
             Planned({.nonzero = 0.3, .block = {2, 2}, .index = kBitmap},
                     DType::kF16, Sgd({.state = U8InBlocks()})),
             kWhole},
        Case{"no_gradients",
             Planned({.nonzero = 0.2}, DType::kF32, Sgd({.nesterov = false}),
                     false),
             kNew},
        Case{"no_gradients_u8",
             Planned({.nonzero = 0.2}, DType::kF16,
                     Sgd({.nesterov = true, .state = U8InBlocks()}), false),
             kWhole}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace thimble::testing
