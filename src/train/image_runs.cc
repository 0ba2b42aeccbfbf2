// SPDX-License-Identifier: Apache-2.0
//
// The forms of Train and Evaluate that take a data set of images. Everything
// behind them works on any source of batches.
#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "thimble/batches.h"
#include "thimble/model.h"
#include "thimble/trainer.h"
#include "train/image_facts.h"
#include "train/out_folder.h"
#include "train/text_facts.h"
#include "train/weights.h"

namespace thimble {

Result<TrainSummary> Train(const Plan& plan, const Dataset& data,
                           const TrainOptions& options, TrainObserver* observer,
                           const ImageBatchOptions& images) {
  return Train(plan, *MakeImageBatches(data, images), options, observer);
}

Result<PlanSearch> PlanEvaluation(const std::string& dir,
                                  const EvaluateOptions& options) {
  TH_ASSIGN_OR_RETURN(const train::WeightsInfo info,
                      train::ReadWeightsInfo(dir));
  ModelOptions model_options;
  model_options.batch = options.batch;
  const auto images = train::ReadImageFacts(info.facts);
  if (images.has_value()) {
    const ImageSpec& spec = images->spec;
    model_options.images = {spec.channels, spec.height, spec.width,
                            images->mean, images->stddev};
    model_options.classes = spec.classes;
  } else if (!info.facts.contains(train::kTextFact)) {
    return Status::Failed(fmt::format(
        "{} does not say on which images or text its network was trained; only "
        "models that Train wrote can be built again by name",
        train::WeightsPath(dir)));
  }
  SetBuildOptions(info.build_options, model_options);
  auto model = BuildModel(info.model, model_options);
  if (!model.ok()) {
    return Status::Failed(fmt::format(
        "{} holds a network called '{}', which cannot be built by name here: "
        "{}",
        train::WeightsPath(dir), info.model, model.status().message()));
  }
  PlanOptions plan_options;
  plan_options.training = false;
  plan_options.precision = info.precision;
  // A mean has every weight that one of them keeps.
  if (options.average == 0) plan_options.sparse = info.sparse;
  plan_options.threads = options.threads;
  plan_options.budget = options.budget;
  return PlanSearch::Create(*model, plan_options);
}

Result<EvaluateSummary> Evaluate(const std::string& dir, const Plan& plan,
                                 const Dataset& data, int64_t average) {
  return Evaluate(dir, plan, *MakeImageBatches(data, {}), average);
}

Result<EvaluateSummary> Evaluate(const std::string& dir, const Dataset& data,
                                 const EvaluateOptions& options) {
  TH_ASSIGN_OR_RETURN(PlanSearch search, PlanEvaluation(dir, options));
  TH_RETURN_IF_ERROR(search.CheckBudget());
  return Evaluate(dir, std::move(search).Take(), data, options.average);
}

}  // namespace thimble
