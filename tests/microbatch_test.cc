// SPDX-License-Identifier: Apache-2.0
//
// A step in several microbatches, and one pass with statistics per group: both
// are the mean over the step's images, normalised part by part.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gradient_check.h"
#include "microbatch_nets.h"
#include "thimble/model.h"
#include "thimble/plan.h"
#include "thimble/session.h"

namespace thimble::testing {
namespace {

// How a step of `count` images goes through a plan.
struct Division {
  int64_t batch, microbatch, ghost_batch, count;

  int64_t rows() const { return ghost_batch > 0 ? ghost_batch : microbatch; }
  PlanOptions Options(bool fuse) const {
    PlanOptions options;
    options.microbatch = microbatch;
    options.ghost_batch = ghost_batch;
    options.fuse = fuse;
    return options;
  }
};

std::ostream& operator<<(std::ostream& out, const Division& d) {
  return out << d.count << " of batch " << d.batch << ", microbatch "
             << d.microbatch << ", ghost batch " << d.ghost_batch;
}

// Full steps; a last microbatch that is smaller; one that is missing; groups
// likewise; both at once.
const Division kDivisions[] = {
    {6, 2, 0, 6}, {6, 3, 0, 6}, {6, 2, 0, 5}, {6, 2, 0, 3},   {6, 2, 0, 2},
    {6, 0, 2, 6}, {6, 0, 3, 5}, {6, 6, 2, 3}, {12, 6, 3, 12}, {12, 6, 3, 10}};

TEST(Microbatch, GradientsAreTheMeanOverPartsNormalisedApart) {
  double worst = 0;
  for (const Division& d : kDivisions) {
    SCOPED_TRACE(::testing::Message() << d);
    const Model model = Normalized(d.batch);
    const ExactPoint point = FindPoint(model, d.count, 1, d.rows());
    for (const bool fuse : {true, false}) {
      SCOPED_TRACE(fuse ? "fused" : "plain");
      worst = std::max(worst, ExpectGradients(model, point, d.Options(fuse)));
    }
  }
  RecordProperty("worst", std::to_string(worst));
}

// The statistics of a part are not those of the batch: the test above could
// tell.
TEST(Microbatch, OtherPartsGiveOtherGradients) {
  const Model model = Normalized(6);
  const ExactPoint parts = FindPoint(model, 6, 1, 2);
  const ExactPoint whole = FindPoint(model, 6, 1, 6);
  ASSERT_EQ(parts.parameters, whole.parameters) << "another point";
  size_t apart = 0;
  for (size_t k = 0; k < parts.exact.gradients.size(); ++k) {
    const double distance =
        Distance(parts.exact.gradients[k], whole.exact.gradients[k]);
    if (distance > 100 * parts.gradient_bounds[k]) ++apart;
  }
  EXPECT_GT(apart, parts.exact.gradients.size() / 2);
}

TEST(Microbatch, WithoutBatchNormAnySizeGivesTheGradientOfTheBatch) {
  for (const int64_t count : {12, 11, 1}) {
    const Model model = Plain(12);
    const ExactPoint point = FindPoint(model, count, 1);
    for (const int64_t microbatch : {1, 3, 4, 6}) {
      SCOPED_TRACE(::testing::Message()
                   << count << " images, microbatch " << microbatch);
      PlanOptions options;
      options.microbatch = microbatch;
      ExpectGradients(model, point, options);
    }
  }
}

// ---- Steps of the models

struct Trained {
  std::vector<std::vector<float>> parameters;
  std::vector<std::vector<float>> statistics;
  float loss = 0;
  std::vector<std::vector<float>> gradients;
};

std::unique_ptr<Session> MakeSession(const Plan& plan, bool poison) {
  auto session = Session::Create(plan, {.poison = poison});
  EXPECT_TRUE(session.ok()) << session.status().message();
  (*session)->Initialize(3);
  return *std::move(session);
}

std::vector<std::vector<float>> ValuesOf(std::span<const ValueId> ids,
                                         Session& session) {
  std::vector<std::vector<float>> all;
  for (ValueId v : ids) {
    const std::span<float> floats = session.Floats(v);
    all.emplace_back(floats.begin(), floats.end());
  }
  return all;
}

std::vector<ValueId> ParameterIds(const Plan& plan) {
  std::vector<ValueId> ids;
  for (const ParameterState& p : plan.parameters()) ids.push_back(p.parameter);
  return ids;
}

std::vector<ValueId> GradientIds(const Plan& plan) {
  std::vector<ValueId> ids;
  for (const ParameterState& p : plan.parameters()) ids.push_back(p.gradient);
  return ids;
}

Trained OneStep(const Model& model, const PlanOptions& options, int64_t count) {
  const Plan plan = PlanOf(model, options);
  const std::unique_ptr<Session> session = MakeSession(plan, true);
  Trained trained;
  trained.loss = Differentiate(RandomBatch(model, count, 5), *session).loss;
  trained.gradients = ValuesOf(GradientIds(plan), *session);
  session->Update(0.1f);
  trained.parameters = ValuesOf(ParameterIds(plan), *session);
  trained.statistics = ValuesOf(plan.statistics(), *session);
  return trained;
}

bool SameBits(const std::vector<std::vector<float>>& a,
              const std::vector<std::vector<float>>& b) {
  if (a.size() != b.size()) return false;
  for (size_t k = 0; k < a.size(); ++k) {
    if (a[k].size() != b[k].size() ||
        std::memcmp(a[k].data(), b[k].data(), a[k].size() * sizeof(float)) !=
            0) {
      return false;
    }
  }
  return true;
}

// Sums of the same terms in another order: off by half an epsilon for each of
// `terms` additions, which go both ways, so by the root of their number; twice
// that, for either side. Of the L2 norm of each tensor.
void ExpectSameSums(const std::vector<std::vector<float>>& got,
                    const std::vector<std::vector<float>>& want, double terms) {
  const double eps = std::numeric_limits<float>::epsilon();
  ASSERT_EQ(got.size(), want.size());
  for (size_t k = 0; k < got.size(); ++k) {
    const std::vector<double> a(got[k].begin(), got[k].end());
    const std::vector<double> b(want[k].begin(), want[k].end());
    const double size = Distance(b, std::vector<double>(b.size()));
    EXPECT_LE(Distance(a, b), eps * std::sqrt(terms) * size) << "tensor " << k;
  }
}

TEST(Microbatch, TrueAndSimulatedAgreeAfterOneStep) {
  const ImageLayer cifar = {.channels = 3, .height = 32, .width = 32};
  for (const char* name : {"cnn", "wrn-10-1"}) {
    const Result<Model> model = BuildModel(name, {.batch = 8, .images = cifar});
    ASSERT_TRUE(model.ok());
    for (const int64_t count : {8, 7, 2}) {
      for (const bool fuse : {true, false}) {
        SCOPED_TRACE(::testing::Message()
                     << name << " " << count << " images, fuse " << fuse);
        kernels::testing::ForEachTarget([&] {
          const Trained parts =
              OneStep(*model, {.microbatch = 2, .fuse = fuse}, count);
          const Trained groups =
              OneStep(*model, {.ghost_batch = 2, .fuse = fuse}, count);
          // Forward is the same arithmetic on the same images, so the whole
          // sequence of running statistics is, not the first update alone.
          EXPECT_TRUE(SameBits(parts.statistics, groups.statistics));
          const double images = static_cast<double>(count);
          EXPECT_NEAR(
              parts.loss, groups.loss,
              std::numeric_limits<float>::epsilon() * images * groups.loss);
          ExpectSameSums(parts.gradients, groups.gradients, images * 32 * 32);
          ExpectSameSums(parts.parameters, groups.parameters, images * 32 * 32);
        });
      }
    }
  }
}

// A step of a batch that is the first microbatch alone has moved the running
// statistics exactly so far.
TEST(Microbatch, RunningStatisticsFollowTheMicrobatchesInOrder) {
  const Result<Model> eight = BuildModel("cnn", {.batch = 8});
  const Result<Model> two = BuildModel("cnn", {.batch = 2});
  ASSERT_TRUE(eight.ok() && two.ok());
  const Trained first = OneStep(*two, {}, 2);
  // Of the same two images.
  const Trained of_parts = OneStep(*eight, {.microbatch = 2}, 2);
  const Trained of_groups = OneStep(*eight, {.ghost_batch = 2}, 2);
  EXPECT_TRUE(SameBits(of_parts.statistics, first.statistics));
  EXPECT_TRUE(SameBits(of_groups.statistics, first.statistics));
  // Without momentum nothing but the running statistics tells steps of two
  // images at rate 0 from microbatches of two.
  const PlanOptions still = {.optimizer = Sgd({.momentum = 0})};
  const Plan plan = PlanOf(*two, still);
  const std::unique_ptr<Session> session = MakeSession(plan, false);
  const Batch batch = RandomBatch(*eight, 7, 5);
  for (int64_t row = 0; row < 7; row += 2) {
    Differentiate(RowsOf(batch, row, 2), *session);
    session->Update(0.0f);
  }
  const auto sequence = ValuesOf(plan.statistics(), *session);
  EXPECT_TRUE(
      SameBits(OneStep(*eight, {.microbatch = 2}, 7).statistics, sequence));
  EXPECT_TRUE(
      SameBits(OneStep(*eight, {.ghost_batch = 2}, 7).statistics, sequence));
}

// Of the LSTM, every step adds to the gradients of the same weights.
void ExpectAgreesWithTheFullBatch(const char* name, int64_t steps) {
  const Result<Model> model = BuildModel(name, {.batch = 24});
  ASSERT_TRUE(model.ok());
  for (const int64_t count : {24, 17}) {
    const Trained whole = OneStep(*model, {}, count);
    for (const int64_t microbatch : {1, 2, 3, 4, 6, 8, 12}) {
      SCOPED_TRACE(::testing::Message()
                   << name << " " << count << " by " << microbatch);
      const Trained parts = OneStep(*model, {.microbatch = microbatch}, count);
      EXPECT_NEAR(parts.loss, whole.loss,
                  std::numeric_limits<float>::epsilon() *
                      static_cast<double>(count) * whole.loss);
      const auto terms = static_cast<double>(count * steps);
      ExpectSameSums(parts.gradients, whole.gradients, terms);
      ExpectSameSums(parts.parameters, whole.parameters, terms);
    }
  }
}

TEST(Microbatch, WithoutBatchNormAStepAgreesWithThatOfTheFullBatch) {
  ExpectAgreesWithTheFullBatch("mlp", 1);
  ExpectAgreesWithTheFullBatch("lstm-2-16-28", 28);
}

TEST(Microbatch, AStepThatIsNotAppliedLeavesNoTrace) {
  const Result<Model> model = BuildModel("cnn", {.batch = 8});
  ASSERT_TRUE(model.ok());
  for (const PlanOptions& options :
       {PlanOptions{.microbatch = 2}, PlanOptions{.ghost_batch = 2}}) {
    const Plan plan = PlanOf(*model, options);
    const auto clean = OneStep(*model, options, 8);
    const std::unique_ptr<Session> session = MakeSession(plan, true);
    const auto before = ValuesOf(plan.statistics(), *session);
    // Another batch; from its second microbatch on (or from the first, where it
    // is the only one) a weight is infinite. The step is then given up.
    float& weight = session->Floats(plan.parameters()[0].parameter)[0];
    const float good = weight;
    const PassResult broken = InParts(
        RandomBatch(*model, 8, 6), *session,
        [&](const Batch& rows, int64_t first) {
          std::ranges::copy(rows.images,
                            session->TrainFeed<uint8_t>("images").begin());
          std::ranges::copy(rows.labels,
                            session->TrainFeed<int32_t>("labels").begin());
          if (first > 0 || rows.count == 8) {
            weight = std::numeric_limits<float>::infinity();
          }
          return session->Differentiate(
              {.first = first, .count = rows.count, .total = 8});
        });
    EXPECT_FALSE(std::isfinite(broken.loss));
    weight = good;
    EXPECT_TRUE(SameBits(ValuesOf(plan.statistics(), *session), before));
    Differentiate(RandomBatch(*model, 8, 5), *session);
    session->Update(0.1f);
    EXPECT_TRUE(
        SameBits(ValuesOf(ParameterIds(plan), *session), clean.parameters));
    EXPECT_TRUE(
        SameBits(ValuesOf(plan.statistics(), *session), clean.statistics));
  }
}

}  // namespace
}  // namespace thimble::testing
