// SPDX-License-Identifier: Apache-2.0
#include "train/evaluation.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/check.h"
#include "thimble/trainer.h"
#include "train/ends.h"
#include "train/mean.h"
#include "train/weights.h"

namespace thimble::train {

TestPass::TestPass(Session& session, BatchSource& source)
    : session_(session),
      source_(source),
      feeds_(FeedsOf(session, session.plan().evaluate_ends())),
      metrics_(MetricsOf(session.plan()).size()) {}

Status TestPass::Add(int64_t part, TestResult* sums) {
  TH_ASSIGN_OR_RETURN(const AxisCounts counts, source_.FillTest(part, feeds_));
  TH_ASSIGN_OR_RETURN(const AxisParts parts,
                      PartsOf(source_, session_.plan(), counts));
  const PassResult result = session_.Evaluate(parts);
  const int64_t count = counts[kBatchAxis.index()];
  sums->count += count;
  sums->loss += static_cast<double>(result.loss) * static_cast<double>(count);
  AddMetrics(result, sums->metrics);
  return Status::Ok();
}

TestResult TestPass::MeansOf(TestResult sums) {
  const auto count = static_cast<double>(sums.count);
  sums.loss /= count;
  for (double& metric : sums.metrics) metric /= count;
  return sums;
}

Result<TestResult> TestPass::Part(int64_t part) {
  TestResult sums = Nothing();
  TH_RETURN_IF_ERROR(Add(part, &sums));
  return MeansOf(std::move(sums));
}

Result<TestResult> TestPass::All(const std::atomic<bool>* stop) {
  TestResult sums = Nothing();
  for (int64_t part = 0; part < source_.TestParts(); ++part) {
    if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
      return Status::Failed("stopped");
    }
    TH_RETURN_IF_ERROR(Add(part, &sums));
  }
  return MeansOf(std::move(sums));
}

}  // namespace thimble::train

namespace thimble {

Result<EvaluateSummary> Evaluate(const std::string& dir, const Plan& plan,
                                 BatchSource& source, int64_t average) {
  TH_RETURN_IF_ERROR(source.Begin(plan, /*seed=*/0));
  if (source.TestParts() < 1) {
    return Status::Usage(
        fmt::format("'{}' has nothing to test on", source.name()));
  }
  TH_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                      Session::Create(plan, {}));
  TH_RETURN_IF_ERROR(train::LoadWeightsOrMean(dir, average, *session));
  TH_ASSIGN_OR_RETURN(const train::TestResult test,
                      train::TestPass(*session, source).All(nullptr));
  EvaluateSummary summary{.model = plan.model(),
                          .arena_bytes = plan.arena_bytes(),
                          .axis = std::string(train::AxisNameOf(plan)),
                          .count = test.count,
                          .loss = test.loss,
                          .weights_sha256 = train::WeightsSha256(*session)};
  const std::vector<train::MetricName> names = train::MetricsOf(plan);
  summary.metrics.reserve(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    summary.metrics.push_back({.name = names[i].name,
                               .is_share = names[i].is_share,
                               .value = test.metrics[i]});
  }
  return summary;
}

}  // namespace thimble
