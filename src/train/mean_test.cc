// SPDX-License-Identifier: Apache-2.0
//
// Epochs that a run keeps, and the mean of their weights.
#include "train/mean.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/test_folder.h"
#include "store/safetensors.h"
#include "thimble/network.h"
#include "thimble/trainer.h"
#include "thimble/weights_file.h"
#include "train/out_folder.h"
#include "train/test_images.h"

namespace thimble::train {
namespace {

class EpochsTest : public ::testing::Test {
 protected:
  EpochsTest() {
    options_.epochs = 5;
    options_.learning_rate = 0.05;
    options_.keep_epochs = 3;
    options_.out_dir = folder_.File("run");
  }

  Plan MakeTestPlan(const PlanOptions& options) {
    Network net("net", 4);
    ValueId x = net.Images({.channels = 1, .height = 4, .width = 4});
    x = net.Relu(net.BatchNorm("bn", net.Conv2d("conv", x, {.channels = 4})));
    x = net.Relu(net.Linear("fc1", net.Flatten(x), 8));
    auto model = net.Finish(net.Linear("fc2", x, 3));
    EXPECT_TRUE(model.ok()) << model.status().message();
    auto plan = MakePlan(*model, options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return *std::move(plan);
  }

  TrainSummary Run(const PlanOptions& options = {}) {
    const auto summary =
        Train(MakeTestPlan(options), images_, options_, nullptr);
    EXPECT_TRUE(summary.ok()) << summary.status().message();
    return *summary;
  }

  std::vector<int64_t> Kept() { return *KeptEpochs(options_.out_dir); }

  TestFolder folder_;
  testing::FewImages images_;
  TrainOptions options_;
};

std::vector<float> Floats(const SafetensorsReader& reader,
                          const SafetensorsReader::Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.bytes);
  EXPECT_TRUE(reader.ReadTensor(tensor.info.name, bytes).ok());
  std::vector<float> floats;
  const size_t size = tensor.info.dtype == "F32" ? 4 : 2;
  for (size_t at = 0; at < bytes.size(); at += size) {
    uint16_t bits = 0;
    float x = 0;
    std::memcpy(size == 2 ? static_cast<void*>(&bits) : &x, &bytes[at], size);
    if (tensor.info.dtype == "F16") x = F16Value(bits);
    if (tensor.info.dtype == "BF16") x = BF16Value(bits);
    floats.push_back(x);
  }
  return floats;
}

TEST_F(EpochsTest, TheLastOnesAreKept) {
  Run();
  EXPECT_EQ(Kept(), (std::vector<int64_t>{3, 4, 5}));
  // The last one is what the run has left.
  const auto last = SafetensorsReader::Open(EpochPath(options_.out_dir, 5));
  const auto weights = SafetensorsReader::Open(WeightsPath(options_.out_dir));
  ASSERT_TRUE(last.ok() && weights.ok());
  EXPECT_EQ(last->metadata().at("sha256"), weights->metadata().at("sha256"));
}

TEST_F(EpochsTest, AResumedRunKeepsTheSame) {
  const std::string expected = Run().weights_sha256;
  const auto third = ReadTestFile(EpochPath(options_.out_dir, 3));
  options_.out_dir = folder_.File("resumed");
  // Stopped while it tests after the third epoch, say: by its steps.
  std::atomic<bool> stop{false};
  class StopAt : public TrainObserver {
   public:
    explicit StopAt(std::atomic<bool>& stop) : stop_(stop) {}
    void OnStep(const StepEvent& event) override {
      if (event.step == 6) stop_ = true;
    }
    void OnEpoch(const EpochEvent&) override {}

   private:
    std::atomic<bool>& stop_;
  } observer(stop);
  options_.stop = &stop;
  ASSERT_TRUE(Train(MakeTestPlan({}), images_, options_, &observer).ok());
  EXPECT_EQ(Kept(), (std::vector<int64_t>{1, 2}));
  options_.stop = nullptr;
  options_.resume = true;
  EXPECT_EQ(Run().weights_sha256, expected);
  EXPECT_EQ(Kept(), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(ReadTestFile(EpochPath(options_.out_dir, 3)), third);
}

TEST_F(EpochsTest, ThoseOfAReplacedRunGo) {
  Run();
  options_.overwrite = true;
  options_.epochs = 2;
  Run();
  EXPECT_EQ(Kept(), (std::vector<int64_t>{1, 2}));
  options_.keep_epochs = 0;
  Run();
  EXPECT_TRUE(Kept().empty());
}

TEST_F(EpochsTest, OtherFilesAreNoEpochs) {
  Run();
  for (const char* name :
       {"epoch-.safetensors", "epoch-07.safetensors", "epoch-x.safetensors",
        "epoch-9", "epoch-99999999999999999999.safetensors"}) {
    WriteTestFile(options_.out_dir + "/" + name, "");
  }
  EXPECT_EQ(Kept(), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_FALSE(KeptEpochs(folder_.File("none")).ok());
}

TEST_F(EpochsTest, NeedAFolder) {
  options_.out_dir = "";
  EXPECT_EQ(CheckTrainOptions(options_).code(), StatusCode::kUsage);
}

// Of every tensor, whatever it is stored as.
TEST_F(EpochsTest, TheirMeanIsThatOfEachNumber) {
  SparseWeights sparse;
  sparse.nonzero = 0.4;
  sparse.weights = {"conv.weight", "fc1.weight"};
  SparseWeights blocks = sparse;
  blocks.block = {2, 1};
  blocks.index = IndexCodec::kBitmap;
  blocks.weights = {"fc1.weight"};
  for (const auto& plan :
       {PlanOptions{}, PlanOptions{.precision = Precision::All(DType::kBF16)},
        PlanOptions{.precision = Precision::All(DType::kF16), .sparse = sparse},
        PlanOptions{.sparse = sparse}, PlanOptions{.sparse = blocks}}) {
    options_.overwrite = true;
    options_.rewiring.every = plan.sparse.is_dense() ? 0 : 2;
    Run(plan);
    const std::string to = folder_.File("mean.safetensors");
    const auto summary =
        ExportDense(options_.out_dir, to, {.overwrite = true, .average = 2});
    ASSERT_TRUE(summary.ok()) << summary.status().message();
    EXPECT_EQ(summary->made_dense,
              plan.sparse.is_dense() ? 0 : plan.sparse.weights.size());
    const auto mean = SafetensorsReader::Open(to);
    ASSERT_TRUE(mean.ok()) << mean.status().message();
    EXPECT_TRUE(CheckSeal(mean->file()).ok());
    EXPECT_EQ(mean->metadata().at("model"), "net");
    std::vector<SafetensorsReader> epochs;
    for (int64_t epoch : {4, 5}) {
      const std::string dense = folder_.File("dense.safetensors");
      ASSERT_TRUE(ExportDense(EpochPath(options_.out_dir, epoch), dense,
                              {.overwrite = true})
                      .ok());
      epochs.push_back(*SafetensorsReader::Open(dense));
    }
    bool differ = false;
    ASSERT_EQ(mean->tensors().size(), epochs[0].tensors().size());
    for (const auto& tensor : mean->tensors()) {
      const auto* a = epochs[0].Find(tensor.info.name);
      const auto* b = epochs[1].Find(tensor.info.name);
      ASSERT_TRUE(a != nullptr && b != nullptr) << tensor.info.name;
      ASSERT_EQ(a->info.dtype, tensor.info.dtype);
      ASSERT_EQ(a->info.shape, tensor.info.shape);
      const auto got = Floats(*mean, tensor);
      const auto x = Floats(epochs[0], *a), y = Floats(epochs[1], *b);
      for (size_t i = 0; i < got.size(); ++i) {
        float expected = (x[i] + y[i]) / 2.0f;
        if (tensor.info.dtype == "F16") expected = F16Value(F16Of(expected));
        if (tensor.info.dtype == "BF16") expected = BF16Value(BF16Of(expected));
        ASSERT_EQ(got[i], expected) << tensor.info.name << " " << i;
        differ |= x[i] != y[i];
      }
    }
    EXPECT_TRUE(differ);

    // A session takes the same.
    PlanOptions dense = plan;
    dense.sparse = {};
    const Plan evaluates = MakeTestPlan(dense);
    const auto session = *Session::Create(evaluates, {});
    const auto paths = LastEpochs(options_.out_dir, 2);
    ASSERT_TRUE(paths.ok());
    const auto loaded = WeightsMean::Open(*paths);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    ASSERT_TRUE(LoadMean(*loaded, *session).ok());
    for (const ParameterState& p : evaluates.parameters()) {
      const Value& value = evaluates.graph().value(p.parameter);
      std::vector<std::byte> bytes(mean->Find(value.name)->bytes);
      ASSERT_TRUE(mean->ReadTensor(value.name, bytes).ok());
      const auto got = session->Bytes(p.parameter);
      EXPECT_EQ(std::vector<std::byte>(got.begin(), got.end()), bytes);
    }
  }
}

TEST_F(EpochsTest, HaveNoMeanWhereTheyAreTooFewOrOfOtherModels) {
  Run();
  const std::string to = folder_.File("mean.safetensors");
  const auto few = ExportDense(options_.out_dir, to, {.average = 4});
  EXPECT_EQ(few.status().code(), StatusCode::kFailed);
  EXPECT_NE(few.status().message().find("keeps the weights of 3 epochs"),
            std::string::npos);
  // One of them is of another type.
  const std::string fifth = EpochPath(options_.out_dir, 5);
  options_.out_dir = folder_.File("other");
  Run({.precision = Precision::All(DType::kBF16)});
  WriteTestFile(fifth, ReadTestFile(EpochPath(options_.out_dir, 5)));
  const auto other = ExportDense(folder_.File("run"), to, {.average = 2});
  EXPECT_NE(other.status().message().find("different models"),
            std::string::npos)
      << other.status().message();
  // And damaged.
  std::string damaged = ReadTestFile(fifth);
  damaged[damaged.size() / 2] ^= 1;
  WriteTestFile(fifth, damaged);
  const auto bad = ExportDense(folder_.File("run"), to, {.average = 2});
  EXPECT_NE(bad.status().message().find("damaged"), std::string::npos)
      << bad.status().message();
  // Nothing is left of what failed.
  EXPECT_FALSE(*IsThere(to));
}

}  // namespace
}  // namespace thimble::train
