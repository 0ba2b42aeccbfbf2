// SPDX-License-Identifier: Apache-2.0
//
// Chen et al.'s ablation: what each optimisation of their planner saves, on
// networks that grow. Their plan counts feature maps and their gradients alone;
// so does the first column of ours. The arena counts everything.
#include "reproduce/chen.h"

#include <fmt/format.h>

#include "report/plan_report.h"
#include "reproduce/figures.h"
#include "reproduce/printed.h"
#include "thimble/model.h"
#include "thimble/plan.h"

namespace thimble::reproduce {
namespace {

// All but the last without fused ops, which Chen et al. have not.
constexpr Ablation kAblation[] = {
    {"none", "none", false, false, false},
    {"in place", "none", false, true, false},
    {"+ sharing", "none", false, true, true},
    {"+ drop BN and ReLU", "no-bn", false, true, true},
    {"+ sublinear", "sqrt", false, true, true},
    {"sublinear, fused ops", "sqrt", true, true, true},
};
constexpr size_t kSharing = 2;
constexpr size_t kSublinear = 4;

// One network of a growing family.
struct Member {
  std::string model;
  int64_t size = 0;  // depth or steps
};

struct Family {
  std::vector<Member> members;
  int64_t batch = 0;
  int64_t classes = 0;
  std::string size_name;
};

Result<Model> Build(const Family& family, const Member& member) {
  return BuildModel(member.model, {.batch = family.batch,
                                   .images = PresetOf(member.model).images,
                                   .classes = family.classes});
}

// The columns that both figures have, beside the paper's own.
const std::vector<ReproductionColumn> kOurColumns = {
    {"feature maps GB", 3},
    {"arena GB", 3, /*is_drawn=*/true, /*rounds_up=*/true},
    {"FLOPs", 3, /*is_drawn=*/false}};

// A row and a point for each member and step of the ablation; `paper` are the
// cells before ours.
using PaperCells = std::function<std::vector<std::optional<double>>(
    const Member&, size_t ablation, const AblationBytes&)>;

Status AddRows(const Family& family, const ReproduceOptions& options,
               std::span<const size_t> ablations, const PaperCells& paper,
               Reproduction& figure) {
  for (size_t a : ablations) figure.lines.push_back({kAblation[a].name, {}});
  for (const Member& member : family.members) {
    auto model = Build(family, member);
    if (!model.ok()) return model.status();
    for (size_t i = 0; i < ablations.size(); ++i) {
      const Ablation& ablation = kAblation[ablations[i]];
      Tell(options,
           fmt::format("planning {}, {}", member.model, ablation.name));
      auto bytes = MeasureAblation(*model, ablation, options.threads);
      if (!bytes.ok()) return bytes.status();
      ReproductionRow row{fmt::format("{}, {}", member.model, ablation.name),
                          paper(member, ablations[i], *bytes),
                          {}};
      row.cells.insert(row.cells.end(), {Gb(bytes->feature_maps),
                                         Gb(bytes->arena), bytes->flops_ratio});
      figure.rows.push_back(std::move(row));
      figure.lines[i].points.emplace_back(static_cast<double>(member.size),
                                          Gb(bytes->feature_maps));
    }
  }
  return Status::Ok();
}

constexpr const char* kFeatureMapsNote =
    "feature maps: forward values and their gradients at the arena's peak, as "
    "Chen et al. count; the arena has parameters, their gradients, momentum, "
    "workspace and input too";
constexpr const char* kUnsharedNote =
    "without sharing: every buffer has its own bytes for the whole of a step "
    "(PlanOptions::sharing = false)";

}  // namespace

Result<AblationBytes> MeasureAblation(const Model& model,
                                      const Ablation& ablation, int threads) {
  const PlanOptions options{.optimizer = SohoniOptimizer(),
                            .threads = threads,
                            .fuse = ablation.fuse,
                            .inplace = ablation.inplace,
                            .sharing = ablation.sharing,
                            .recompute = ablation.recompute};
  auto plan = MakePlan(model, options);
  if (!plan.ok()) return plan.status();
  AblationBytes bytes;
  bytes.feature_maps = plan->peak_bytes(Role::kActivation) +
                       plan->peak_bytes(Role::kActivationGradient);
  bytes.arena = plan->arena_bytes();
  bytes.flops_ratio = report::FlopsRatio(*plan);
  if (plan->paper().has_value()) {
    bytes.paper_activations = plan->paper()->bytes.activation;
  }
  return bytes;
}

Result<Reproduction> ChenResnet(const ReproduceOptions& options) {
  Family family{.batch = 32, .classes = 1000, .size_name = "layers"};
  // Depths are 3n+2: 1,001 stands for the paper's 1,000.
  for (int64_t depth : options.quick
                           ? std::vector<int64_t>{26, 50}
                           : std::vector<int64_t>{101, 200, 401, 701, 1001}) {
    family.members.push_back({fmt::format("resnet-imagenet-{}", depth), depth});
  }
  Reproduction figure;
  figure.name = "chen-resnet";
  figure.title =
      "Chen et al.: memory of residual networks that grow, 224x224, batch 32, "
      "f32";
  figure.columns = {{"paper GB", 0}, {"rule GB", 3}};
  figure.columns.insert(figure.columns.end(), kOurColumns.begin(),
                        kOurColumns.end());
  figure.notes = {
      kFeatureMapsNote, kUnsharedNote,
      "rule: activations as Sohoni et al. count them, all inputs of "
      "convolutions and norms",
      "the paper's 48 GB and 7 GB are for 1,000 layers before and after its "
      "sublinear plan; which of its curves 48 GB is of, its abstract does not "
      "say"};
  figure.x_axis = family.size_name;
  figure.y_axis = "feature maps, GB";
  const size_t all[] = {0, 1, 2, 3, 4, 5};
  const auto paper = [](const Member& member, size_t ablation,
                        const AblationBytes& bytes) {
    std::vector<std::optional<double>> cells(2);
    const bool is_deepest = member.size / 10 == kChenResnetDepth / 10;
    if (is_deepest && ablation == kSharing) cells[0] = kChenResnetLinearGb;
    if (is_deepest && ablation == kSublinear) cells[0] = kChenResnetSublinearGb;
    if (bytes.paper_activations.has_value()) {
      cells[1] = Gb(*bytes.paper_activations);
    }
    return cells;
  };
  Status status = AddRows(family, options, all, paper, figure);
  if (!status.ok()) return status;
  for (size_t i = 0; i < figure.rows.size(); ++i) {
    const size_t ablation = i % std::size(all);
    figure.rows[i].notes.push_back(kAblation[ablation].sharing ? 0 : 1);
    if (figure.rows[i].cells[1].has_value()) figure.rows[i].notes.push_back(2);
    if (figure.rows[i].cells[0].has_value()) figure.rows[i].notes.push_back(3);
  }
  figure.lines.push_back({"the paper's 48 GB and 7 GB",
                          {{kChenResnetDepth, kChenResnetLinearGb},
                           {kChenResnetDepth, kChenResnetSublinearGb}},
                          /*is_joined=*/false});
  return figure;
}

Result<Reproduction> ChenLstm(const ReproduceOptions& options) {
  Family family{.batch = 64, .classes = 5000, .size_name = "steps"};
  for (int64_t steps : options.quick
                           ? std::vector<int64_t>{8, 20}
                           : std::vector<int64_t>{100, 250, 500, 1000}) {
    family.members.push_back({fmt::format("lstm-4-1024-{}", steps), steps});
  }
  Reproduction figure;
  figure.name = "chen-lstm";
  figure.title =
      "Chen et al.: memory of an unrolled LSTM, 4 layers of 1024, batch 64, "
      "f32";
  figure.columns = {{"paper: smaller than + sharing", 0, /*is_drawn=*/false},
                    {"smaller than + sharing", 2, /*is_drawn=*/false}};
  figure.columns.insert(figure.columns.end(), kOurColumns.begin(),
                        kOurColumns.end());
  figure.notes = {
      kFeatureMapsNote, kUnsharedNote,
      "the paper: more than 4 times below its optimised linear plan, for an "
      "LSTM with a softmax at every step; ours has one, of 5,000 classes, "
      "after the last step, so that no softmax counts for the ratio"};
  figure.x_axis = family.size_name;
  figure.y_axis = "feature maps, GB";
  // There is no norm to drop, and nothing that fuses.
  const size_t ablations[] = {0, 1, kSharing, kSublinear};
  std::optional<size_t> linear;
  const auto paper = [&](const Member& member, size_t ablation,
                         const AblationBytes& bytes) {
    std::vector<std::optional<double>> cells(2);
    if (ablation == kSharing) linear = bytes.feature_maps;
    if (ablation == kSublinear) {
      if (member.size == kChenLstmSteps) cells[0] = kChenLstmReduction;
      cells[1] = static_cast<double>(*linear) /
                 static_cast<double>(bytes.feature_maps);
    }
    return cells;
  };
  Status status = AddRows(family, options, ablations, paper, figure);
  if (!status.ok()) return status;
  for (size_t i = 0; i < figure.rows.size(); ++i) {
    const size_t ablation = ablations[i % std::size(ablations)];
    figure.rows[i].notes.push_back(kAblation[ablation].sharing ? 0 : 1);
    if (figure.rows[i].cells[1].has_value()) figure.rows[i].notes.push_back(2);
  }
  return figure;
}

}  // namespace thimble::reproduce
