// SPDX-License-Identifier: Apache-2.0
//
// Networks of the shapes that Chen et al. train in little memory, on tiny
// images: a few steps lower the loss, to the same bits for any number of
// threads and with expired buffers poisoned.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gradient_check.h"
#include "thimble/model.h"
#include "thimble/plan.h"
#include "thimble/session.h"

namespace thimble::testing {
namespace {

constexpr int64_t kBatch = 6;
constexpr int kSteps = 6;

struct Subject {
  const char* name;
  int64_t side;  // of the images
  float rate;
};

std::ostream& operator<<(std::ostream& out, const Subject& subject) {
  return out << subject.name;
}

class DeepModelsTest : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    const int64_t side = GetParam().side;
    Result<Model> model =
        BuildModel(GetParam().name,
                   {.batch = kBatch,
                    .images = {.channels = 2, .height = side, .width = side}});
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = *std::move(model);
  }

  // Losses before each step on one and the same batch, then the weights.
  std::vector<float> Trace(int threads, bool poison) {
    PlanOptions options;
    options.threads = threads;
    const Result<Plan> plan = MakePlan(model_, options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    auto session = Session::Create(*plan, {.poison = poison});
    EXPECT_TRUE(session.ok()) << session.status().message();
    (*session)->Initialize(1);
    std::vector<float> trace;
    for (int step = 0; step <= kSteps; ++step) {
      const Batch batch = RandomBatch(model_, kBatch, 1);
      trace.push_back(Differentiate(batch, **session).loss);
      (*session)->Update(GetParam().rate);
    }
    for (const ParameterState& state : plan->parameters()) {
      const auto weights = (*session)->Floats(state.parameter);
      trace.insert(trace.end(), weights.begin(), weights.end());
    }
    return trace;
  }

  Model model_;
};

TEST_P(DeepModelsTest, LearnTheSameForThreadsAndPoison) {
  const std::vector<float> trace = Trace(1, false);
  EXPECT_LT(trace[kSteps], 0.8f * trace[0]) << "the loss does not fall";
  for (const float value : trace) ASSERT_TRUE(std::isfinite(value));
  EXPECT_TRUE(Trace(2, true) == trace) << "2 threads, poison";
  EXPECT_TRUE(Trace(3, false) == trace) << "3 threads";
}

INSTANTIATE_TEST_SUITE_P(Models, DeepModelsTest,
                         ::testing::Values(Subject{"resnet-20", 8, 0.05f},
                                           Subject{"resnet-164", 8, 0.02f},
                                           Subject{"resnet-imagenet-14", 32,
                                                   0.02f},
                                           Subject{"lstm-2-24-16", 8, 0.5f}),
                         [](const auto& subject) {
                           std::string name = subject.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace thimble::testing
