// SPDX-License-Identifier: Apache-2.0
#include "train/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>

#include "base/check.h"
#include "thimble/model.h"
#include "thimble/trainer.h"
#include "train/feed.h"
#include "train/options.h"
#include "train/out_folder.h"
#include "train/weights.h"

namespace thimble::train {
namespace {

int64_t TestCount(const Session& session, const Dataset& data, int64_t first) {
  return std::min(session.plan().microbatch(), data.size(Split::kTest) - first);
}

}  // namespace

Result<BatchResult> TestPart(Session& session, const Dataset& data,
                             int64_t first) {
  const int64_t count = TestCount(session, data, first);
  TH_RETURN_IF_ERROR(Feed(
      data, Split::kTest, first, count, [](int64_t i) { return i; },
      [](int64_t, std::span<uint8_t>) {}, session.evaluate_images(),
      session.evaluate_labels()));
  return session.Evaluate(count);
}

Result<TestResult> Test(Session& session, const Dataset& data,
                        const std::atomic<bool>* stop) {
  const int64_t size = data.size(Split::kTest);
  double loss = 0;
  int64_t correct = 0;
  for (int64_t first = 0; first < size;) {
    if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
      return Status::Failed("stopped");
    }
    const int64_t count = TestCount(session, data, first);
    TH_ASSIGN_OR_RETURN(const BatchResult result,
                        TestPart(session, data, first));
    loss += static_cast<double>(result.loss) * static_cast<double>(count);
    correct += result.correct;
    first += count;
  }
  return TestResult{loss / static_cast<double>(size),
                    static_cast<double>(correct) / static_cast<double>(size)};
}

}  // namespace thimble::train

namespace thimble {

Result<PlanSearch> PlanEvaluation(const std::string& dir,
                                  const EvaluateOptions& options) {
  TH_ASSIGN_OR_RETURN(const train::WeightsInfo info,
                      train::ReadWeightsInfo(dir));
  ModelOptions model_options;
  model_options.batch = options.batch;
  model_options.images = {info.images.channels, info.images.height,
                          info.images.width, info.mean, info.stddev};
  model_options.classes = info.images.classes;
  model_options.dropout = info.dropout;
  auto model = BuildModel(info.model, model_options);
  if (!model.ok()) {
    return Status::Failed(fmt::format(
        "{} holds a network called '{}', which cannot be built by name here: "
        "{}",
        train::WeightsPath(dir), info.model, model.status().message()));
  }
  PlanOptions plan_options;
  plan_options.training = false;
  plan_options.threads = options.threads;
  plan_options.budget = options.budget;
  return PlanSearch::Create(*model, plan_options);
}

Result<EvaluateSummary> Evaluate(const std::string& dir, const Plan& plan,
                                 const Dataset& data) {
  TH_RETURN_IF_ERROR(train::CheckData(plan, plan.evaluate_ends(), data));
  TH_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                      Session::Create(plan, {}));
  TH_RETURN_IF_ERROR(train::LoadWeights(dir, *session));
  TH_ASSIGN_OR_RETURN(const train::TestResult test,
                      train::Test(*session, data, nullptr));
  return EvaluateSummary{
      plan.model(), plan.arena_bytes(), data.size(Split::kTest),
      test.loss,    test.accuracy,      train::WeightsSha256(*session)};
}

Result<EvaluateSummary> Evaluate(const std::string& dir, const Dataset& data,
                                 const EvaluateOptions& options) {
  TH_ASSIGN_OR_RETURN(PlanSearch search, PlanEvaluation(dir, options));
  TH_RETURN_IF_ERROR(search.CheckBudget());
  return Evaluate(dir, std::move(search).Take(), data);
}

}  // namespace thimble
