// SPDX-License-Identifier: Apache-2.0
//
// Training and planning give what they gave when
// tests/golden/recorded_bits.json was recorded: every bit of weights and
// losses, per SIMD target, and every byte and FLOP of the plans.
// THIMBLE_RECORD=1 records instead (tests/golden/README.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/sha256.h"
#include "few_records.h"
#include "kernels/testing.h"
#include "recorded_file.h"
#include "recorded_settings.h"
#include "small_synthetic.h"
#include "thimble/data.h"
#include "thimble/model.h"
#include "thimble/plan.h"
#include "thimble/session.h"
#include "thimble/trainer.h"

namespace thimble::testing {
namespace {

using kernels::Target;

#if defined(__clang__)
constexpr const char* kCompiler = __VERSION__;
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

bool IsRecording() {
  const char* record = std::getenv("THIMBLE_RECORD");
  return record != nullptr && std::string(record) == "1";
}

std::string NoValues(const std::string& target) {
  return "recorded_bits_test: no values are recorded of " + target +
         ", which this CPU runs; nothing is known of its bits. Record them: "
         "THIMBLE_RECORD=1 build/dev/tests/recorded_bits_test "
         "--gtest_filter='*/" +
         target + "'; tests/golden/README.md says from which commit\n";
}

// THIMBLE_SETTINGS: names, separated by commas, of the only ones to look at,
// for an emulator that takes a minute for each.
const char* Named() { return std::getenv("THIMBLE_SETTINGS"); }

const std::vector<RecordedSetting>& Settings() {
  static const std::vector<RecordedSetting> kSettings = [] {
    std::vector<RecordedSetting> settings = AllRecordedSettings();
    if (Named() == nullptr) return settings;
    const std::string names = "," + std::string(Named()) + ",";
    std::erase_if(settings, [&](const RecordedSetting& setting) {
      return names.find("," + setting.name + ",") == std::string::npos;
    });
    return settings;
  }();
  return kSettings;
}

// What is recorded of the settings that are looked at.
Json OfSettings(const Json& recorded) {
  if (Named() == nullptr) return recorded;
  Json some = Json::object();
  for (const RecordedSetting& setting : Settings()) {
    if (recorded.contains(setting.name)) {
      some[setting.name] = recorded[setting.name];
    }
  }
  return some;
}

// body(i) for each setting, on two threads.
void ForEachSetting(const std::function<void(size_t)>& body) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < Settings().size(); i = next++) body(i);
  };
  std::thread second(work);
  work();
  second.join();
}

const Dataset* DataOf(RecordedData data) {
  static const std::unique_ptr<Dataset> kGrey = SmallSynthetic::Open();
  static const std::unique_ptr<Dataset> kColour = [] {
    auto full = OpenDataset("synthetic-cifar", {});
    return full.ok() ? std::make_unique<FewRecords>(
                           *std::move(full),
                           FewRecords::Sizes{.train = 10, .test = 5})
                     : nullptr;
  }();
  return data == RecordedData::kGrey ? kGrey.get() : kColour.get();
}

// For the images of the data set; what is not trained for the model's own.
Result<Model> ModelOf(const RecordedSetting& setting) {
  const ImageSpec& spec = DataOf(setting.data)->spec();
  ModelOptions options = {.batch = setting.batch,
                          .images = {.channels = spec.channels,
                                     .height = spec.height,
                                     .width = spec.width},
                          .dropout = setting.dropout};
  if (setting.train.steps == 0) {
    const TrainingPreset preset = PresetOf(setting.model);
    options.images = preset.images;
    options.classes = preset.classes;
  }
  return BuildModel(setting.model, options);
}

// None, with a failure, where there is none.
std::optional<Plan> MakeRecordedPlan(const RecordedSetting& setting) {
  const Result<Model> model = ModelOf(setting);
  EXPECT_TRUE(model.ok()) << setting.name << ": " << model.status().message();
  if (!model.ok()) return std::nullopt;
  Result<Plan> plan = MakePlan(*model, setting.plan);
  EXPECT_TRUE(plan.ok()) << setting.name << ": " << plan.status().message();
  if (!plan.ok()) return std::nullopt;
  return *std::move(plan);
}

// Of each setting, made once for all targets.
const std::vector<std::optional<Plan>>& Plans() {
  static const std::vector<std::optional<Plan>> kPlans = [] {
    std::vector<std::optional<Plan>> plans(Settings().size());
    ForEachSetting(
        [&](size_t i) { plans[i] = MakeRecordedPlan(Settings()[i]); });
    return plans;
  }();
  return kPlans;
}

Json FiguresOf(const RecordedSetting& setting, const Plan& plan) {
  Json roles = Json::object();
  for (size_t i = 0; i < kRoles; ++i) {
    const auto role = static_cast<Role>(i);
    roles[RoleName(role)] = plan.peak_bytes(role);
  }
  Json paper;
  if (plan.paper().has_value()) {
    const PaperBytes& bytes = plan.paper()->bytes;
    paper = {bytes.model, bytes.optimizer, bytes.activation, bytes.total};
  }
  // As `thimble eval` plans.
  const Result<Plan> evaluation = MakePlan(
      *ModelOf(setting), {.threads = setting.plan.threads, .training = false});
  EXPECT_TRUE(evaluation.ok()) << evaluation.status().message();
  return {{"arena_bytes", plan.arena_bytes()},
          {"lower_bound", plan.lower_bound()},
          {"peak_bytes", roles},
          {"flops_step", plan.flops_step()},
          {"flops_recompute", plan.flops_recompute()},
          {"paper_bytes", paper},
          {"microbatch", plan.microbatch()},
          {"evaluation_arena_bytes",
           evaluation.ok() ? evaluation->arena_bytes() : 0}};
}

// Every bit of it, readable.
std::string Exactly(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%a", value);
  return text;
}

// Keeps the losses of all steps and of the last test.
class Listener final : public TrainObserver {
 public:
  void OnStep(const StepEvent& event) override {
    losses.push_back(Exactly(event.loss));
  }
  void OnEpoch(const EpochEvent& event) override { last = event; }

  std::vector<std::string> losses;
  EpochEvent last;
};

// Of a few rows after a step on others: a test's loss is a mean, in which last
// digits are lost.
std::string LogitsSha256(const Plan& plan, const Dataset& data) {
  const auto session = Session::Create(plan, {});
  EXPECT_TRUE(session.ok()) << session.status().message();
  if (!session.ok()) return "";
  Session& s = **session;
  const auto image = static_cast<size_t>(data.spec().bytes());
  const auto feed = [&](Split split, size_t rows, std::span<uint8_t> images,
                        std::span<int32_t> labels) {
    for (size_t i = 0; i < rows; ++i) {
      const Status read =
          data.Read(split, static_cast<int64_t>(i),
                    images.subspan(i * image, image), &labels[i]);
      EXPECT_TRUE(read.ok()) << read.message();
    }
  };
  s.Initialize(1);
  const int64_t trained = std::min<int64_t>(2, plan.microbatch());
  feed(Split::kTrain, static_cast<size_t>(trained),
       s.TrainFeed<uint8_t>("images"), s.TrainFeed<int32_t>("labels"));
  s.TrainStep(trained, 0.01f);
  const int64_t tested = std::min<int64_t>(3, plan.microbatch());
  feed(Split::kTest, static_cast<size_t>(tested),
       s.EvaluateFeed<uint8_t>("images"), s.EvaluateFeed<int32_t>("labels"));
  s.Evaluate(tested);
  const ValueId logits = plan.evaluate_ends().outputs[0].value;
  const int64_t classes = plan.graph().value(logits).spec.shape[1];
  Sha256 sum;
  sum.Update(std::as_bytes(
      s.Floats(logits).first(static_cast<size_t>(tested * classes))));
  return Hex(sum.Final());
}

// Null, with a failure, where training fails.
Json BitsOf(const RecordedSetting& setting, const Plan& plan) {
  const Dataset& data = *DataOf(setting.data);
  Listener listener;
  const Result<TrainSummary> summary =
      Train(plan, data, setting.train, &listener, setting.images);
  EXPECT_TRUE(summary.ok())
      << setting.name << ": " << summary.status().message();
  if (!summary.ok()) return nullptr;
  EXPECT_EQ(summary->steps, setting.train.steps);
  EXPECT_EQ(summary->arena_bytes, plan.arena_bytes());
  EXPECT_EQ(Exactly(summary->final_train_loss), listener.losses.back());
  const double accuracy = listener.last.metrics[0].test;
  EXPECT_EQ(summary->metric("accuracy").last, accuracy);
  Json bits = {{"weights_sha256", summary->weights_sha256},
               {"train_losses", listener.losses},
               {"test_loss", Exactly(listener.last.test_loss)},
               {"test_accuracy", Exactly(accuracy)}};
  if (setting.same_bits_as.empty()) {
    bits["logits_sha256"] = LogitsSha256(plan, data);
  }
  return bits;
}

bool IsSupported(Target target) {
  for (const Target t : kernels::SupportedTargets()) {
    if (t == target) return true;
  }
  return false;
}

class RecordedBits : public ::testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    ASSERT_NE(DataOf(RecordedData::kGrey), nullptr);
    ASSERT_NE(DataOf(RecordedData::kColour), nullptr);
  }
};

// What all settings give on `target`.
Json BitsOn(Target target) {
  const Target before = kernels::ActiveTarget();
  kernels::ForceTarget(target);
  const std::vector<std::optional<Plan>>& plans = Plans();
  std::vector<Json> bits(plans.size());
  ForEachSetting([&](size_t i) {
    const RecordedSetting& setting = Settings()[i];
    if (setting.train.steps == 0) return;
    EXPECT_TRUE(plans[i].has_value()) << setting.name << " has no plan";
    if (plans[i].has_value()) bits[i] = BitsOf(setting, *plans[i]);
  });
  kernels::ForceTarget(before);
  Json by_name = Json::object();
  for (size_t i = 0; i < bits.size(); ++i) {
    if (!bits[i].is_null()) by_name[Settings()[i].name] = bits[i];
  }
  return by_name;
}

// The same bits where they are promised, else others: an option is heeded.
void ExpectPromises(const Json& bits) {
  std::map<std::string, std::string> setting_of;  // by the weights' hash
  for (const RecordedSetting& setting : Settings()) {
    if (setting.train.steps == 0 || !bits.contains(setting.name)) continue;
    const Json& got = bits[setting.name];
    if (setting.same_bits_as.empty()) {
      const auto [other, is_new] =
          setting_of.emplace(got["weights_sha256"], setting.name);
      EXPECT_TRUE(is_new) << "'" << setting.name << "' trains as '"
                          << other->second << "'";
      continue;
    }
    if (Named() != nullptr && !bits.contains(setting.same_bits_as)) continue;
    const Json& same = bits.value(setting.same_bits_as, Json::object());
    for (const auto& [key, value] : got.items()) {
      EXPECT_EQ(value.dump(), same.value(key, Json()).dump())
          << key << ": '" << setting.name << "' promises the bits of '"
          << setting.same_bits_as << "'";
    }
  }
}

TEST_P(RecordedBits, AreGivenAgain) {
  const std::string name(kernels::TargetName(GetParam()));
  if (!IsSupported(GetParam())) {
    std::cerr << "recorded_bits_test: this CPU cannot run " << name
              << "; nothing is known of its bits\n";
    GTEST_SKIP() << "this CPU cannot run " << name;
  }
  Json all = ReadRecorded();
  if (!all["targets"].contains(name) && !IsRecording()) {
    std::cerr << NoValues(name);
    GTEST_SKIP() << NoValues(name);
  }
  const Json bits = BitsOn(GetParam());
  ExpectPromises(bits);
  if (IsRecording()) {
    if (HasFailure()) return;
    Json& section = all["targets"][name];
    if (Named() == nullptr) section["bits"] = Json::object();
    section["compiler"] = kCompiler;
    section["bits"].update(bits);
    WriteRecorded(all);
    return;
  }
  const Json& section = all["targets"][name];
  SCOPED_TRACE("recorded with " + section["compiler"].get<std::string>() +
               ", built with " + kCompiler);
  ExpectRecorded(bits, OfSettings(section["bits"]));
}

INSTANTIATE_TEST_SUITE_P(Target, RecordedBits,
                         ::testing::Values(Target::kSse4, Target::kAvx2,
                                           Target::kAvx3, Target::kNeon,
                                           Target::kAvx3Bf16),
                         [](const auto& test) {
                           return std::string(kernels::TargetName(test.param));
                         });

TEST(RecordedPlans, AreGivenAgain) {
  ASSERT_NE(DataOf(RecordedData::kGrey), nullptr);
  ASSERT_NE(DataOf(RecordedData::kColour), nullptr);
  Json plans = Json::object();
  for (size_t i = 0; i < Settings().size(); ++i) {
    const std::optional<Plan>& plan = Plans()[i];
    if (!plan.has_value()) continue;
    plans[Settings()[i].name] = FiguresOf(Settings()[i], *plan);
  }
  Json all = ReadRecorded();
  if (IsRecording()) {
    if (HasFailure()) return;
    if (Named() == nullptr) all["plans"] = Json::object();
    all["plans"].update(plans);
    WriteRecorded(all);
    return;
  }
  ExpectRecorded(plans, OfSettings(all["plans"]));
}

// A test of its own, which ctest shows as skipped.
TEST(RecordedFile, HasValuesOfEveryTargetOfThisCpu) {
  const Json all = ReadRecorded();
  std::string missing;
  for (const Target target : kernels::SupportedTargets()) {
    const std::string name(kernels::TargetName(target));
    if (!all.at("targets").contains(name)) missing += NoValues(name);
  }
  if (missing.empty() || IsRecording()) return;
  std::cerr << missing;
  GTEST_SKIP() << missing;
}

TEST(RecordedSettings, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const RecordedSetting& setting : Settings()) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
  }
}

}  // namespace
}  // namespace thimble::testing
