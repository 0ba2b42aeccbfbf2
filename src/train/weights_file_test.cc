// SPDX-License-Identifier: Apache-2.0
//
// What a file of sparse weights is said to hold, the same weights as a dense
// file, and files that nobody should trust.
#include "thimble/weights_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/rng.h"
#include "base/test_folder.h"
#include "store/safetensors.h"
#include "thimble/data.h"
#include "thimble/model.h"
#include "thimble/network.h"
#include "thimble/session.h"
#include "thimble/trainer.h"
#include "train/image_facts.h"
#include "train/out_folder.h"
#include "train/state.h"
#include "train/weights.h"

namespace thimble {
namespace {

using train::StateValues;
using train::WeightsPath;

// Pixels of 0 and 1, which stay so.
class BinaryImages final : public Dataset {
 public:
  BinaryImages()
      : Dataset({.name = "binary",
                 .spec = {1, 8, 8, 8},
                 .train_size = 8,
                 .test_size = 24,
                 .mean = {0.0f},
                 .stddev = {1.0f}}) {}

 private:
  Status ReadRecord(Split split, int64_t index, std::span<uint8_t> image,
                    int32_t* label) const override {
    const RandomStream random(7, static_cast<uint64_t>(index),
                              split == Split::kTest ? 1 : 0);
    for (size_t i = 0; i < image.size(); ++i) {
      image[i] =
          static_cast<uint8_t>(random.Block(static_cast<uint32_t>(i))[0] & 1);
    }
    *label = static_cast<int32_t>(index % 8);
    return Status::Ok();
  }
};

struct Open {
  std::unique_ptr<Plan> plan;
  std::unique_ptr<Session> session;
};

Open OpenModel(const Model& model, const PlanOptions& options) {
  Open open;
  auto plan = MakePlan(model, options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  open.plan = std::make_unique<Plan>(*std::move(plan));
  auto session = Session::Create(*open.plan, {});
  EXPECT_TRUE(session.ok()) << session.status().message();
  open.session = *std::move(session);
  open.session->Initialize(1);
  return open;
}

void Save(const std::string& dir, Open& open) {
  const BinaryImages data;
  const auto folder = train::PrepareOutDir(dir);
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  const Status saved = train::SaveWeights(
      *folder, *open.session,
      train::ImageFacts(data.spec(), data.mean(), data.stddev()), 12);
  ASSERT_TRUE(saved.ok()) << saved.message();
}

Model Wrn() {
  const BinaryImages data;
  ModelOptions options;
  options.batch = 8;
  options.images = {1, 8, 8, {0.0f}, {1.0f}};
  options.classes = data.spec().classes;
  auto model = BuildModel("wrn-10-1", options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

// Powers of two alone: with pixels of 0 and 1, every sum of the network is
// exact in f32, in whatever order and form it is computed, so that only what is
// stored in 16 bits is rounded, and that the same way.
void MakeExact(Open& open) {
  const Graph& graph = open.plan->graph();
  const StateValues values = train::ModelState(*open.plan);
  for (size_t i = 0; i < values.size(); ++i) {
    const Value& value = graph.value(values[i]);
    const std::string& name = value.name;
    const DType type = value.spec.storage.dtype;
    const bool is_weight =
        name == "sparse.weights" || value.spec.shape.rank() >= 2;
    if (type == DType::kF32) {
      for (float& x : open.session->Floats(values[i])) {
        if (is_weight) x = std::copysign(0.25f, x);
        if (name.ends_with("running_mean")) x = 0.125f;
        if (name.ends_with("running_var")) x = 1.0f - 1e-5f;
      }
    } else if (type != DType::kU8) {
      ASSERT_TRUE(is_weight) << name;
      const uint16_t quarter =
          type == DType::kF16 ? F16Of(0.25f) : BF16Of(0.25f);
      const auto bytes = open.session->Bytes(values[i]);
      for (size_t at = 0; at < bytes.size(); at += 2) {
        uint16_t bits = 0;
        std::memcpy(&bits, &bytes[at], 2);
        bits = static_cast<uint16_t>((bits & 0x8000) | quarter);
        std::memcpy(&bytes[at], &bits, 2);
      }
    }
  }
}

std::string ReadTensor(const SafetensorsReader& reader,
                       const std::string& name) {
  const auto* tensor = reader.Find(name);
  EXPECT_NE(tensor, nullptr) << name;
  if (tensor == nullptr) return "";
  std::string bytes(tensor->bytes, '\0');
  EXPECT_TRUE(
      reader.ReadTensor(name, std::as_writable_bytes(std::span(bytes))).ok());
  return bytes;
}

// What is in the weight, element by element, as the description of the format
// has it.
void ExpectIsDense(const std::string& dense, const PoolLayout& layout,
                   const std::byte* index, const std::string& pool, size_t m,
                   const Shape& shape, size_t size) {
  const Pattern pattern = layout.Of(index, m);
  const int64_t taps = shape.elements_from(2);
  const auto element = [&](const std::string& of, int64_t i) {
    return of.substr(static_cast<size_t>(i) * size, size);
  };
  std::string expected(dense.size(), '\0');
  int64_t at = pattern.first * pattern.block.values();
  PatternReader reader(pattern);
  for (int64_t row = 0; row < pattern.matrix.rows; ++row) {
    std::vector<uint16_t> columns(static_cast<size_t>(reader.count()));
    reader.Read(columns.data());
    for (const uint16_t column : columns) {
      for (int64_t i = 0; i < pattern.block.values(); ++i, ++at) {
        const int64_t o =
            row * pattern.block.outputs + i / pattern.block.inputs;
        const int64_t input =
            column / taps * pattern.block.inputs + i % pattern.block.inputs;
        const int64_t to = (o * shape[1] + input) * taps + column % taps;
        expected.replace(static_cast<size_t>(to) * size, size,
                         element(pool, at));
      }
    }
  }
  EXPECT_EQ(dense, expected);
}

struct Kind {
  DType type;
  WeightBlock block;
  IndexCodec codec;
};

class EveryKind : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    precision_ = Precision::All(GetParam().type);
    open_ = OpenModel(Wrn(), {.precision = precision_,
                              .sparse = {.nonzero = 0.3,
                                         .block = GetParam().block,
                                         .index = GetParam().codec,
                                         .weights = {"stage*", "fc.weight"}},
                              .training = false});
    size_ = GetParam().type == DType::kF32 ? 4 : 2;
  }
  const SparsePool& pool() const { return *open_.plan->sparse(); }
  const Value& member(size_t m) const {
    const Plan& plan = *open_.plan;
    return plan.graph().value(plan.parameters()[pool().members[m]].parameter);
  }

  TestFolder folder_;
  Precision precision_;
  Open open_;
  size_t size_ = 0;
};

TEST_P(EveryKind, IsListedAsItWasPlanned) {
  Save(folder_.File("run"), open_);
  const auto file = InspectFile(folder_.File("run"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->path, WeightsPath(folder_.File("run")));
  EXPECT_EQ(file->format, "thimble-weights-1");
  EXPECT_EQ(file->model, "wrn-10-1");
  EXPECT_EQ(file->steps, 12u);
  EXPECT_TRUE(file->sealed);
  const std::string bytes = ReadTestFile(file->path);
  EXPECT_EQ(file->file_bytes, bytes.size());
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  EXPECT_EQ(file->tensor_bytes, bytes.size() - 8 - header);
  const StateValues values = train::ModelState(*open_.plan);
  ASSERT_EQ(file->tensors.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const Value& value = open_.plan->graph().value(values[i]);
    EXPECT_EQ(file->tensors[i].name, value.name);
    EXPECT_EQ(file->tensors[i].bytes, open_.session->Bytes(values[i]).size());
  }
  ASSERT_TRUE(file->sparse.has_value());
  const StoredSparseWeights& sparse = *file->sparse;
  EXPECT_EQ(sparse.nonzero, 0.3);
  EXPECT_EQ(sparse.block, GetParam().block);
  EXPECT_EQ(sparse.index, GetParam().codec);
  EXPECT_EQ(sparse.index_bytes, pool().layout.index_bytes());
  EXPECT_EQ(sparse.kept, pool().layout.kept());
  ASSERT_EQ(sparse.weights.size(), pool().members.size());
  uint64_t sum = 0, dense = 0;
  for (size_t m = 0; m < sparse.weights.size(); ++m) {
    const StoredSparseWeight& weight = sparse.weights[m];
    const Pattern pattern =
        pool().layout.Of(open_.session->Bytes(pool().index).data(), m);
    EXPECT_EQ(weight.name, member(m).name);
    EXPECT_EQ(weight.shape, member(m).spec.shape);
    EXPECT_EQ(weight.blocks, pattern.matrix.blocks());
    EXPECT_EQ(weight.kept, pattern.kept);
    EXPECT_EQ(weight.bytes, static_cast<uint64_t>(pattern.values()) * size_);
    sum += weight.bytes;
    dense += static_cast<uint64_t>(weight.shape.elements()) * size_;
  }
  EXPECT_EQ(sparse.bytes, sum);
  EXPECT_EQ(sum, open_.session->Bytes(pool().parameters).size());
  EXPECT_EQ(sparse.dense_bytes, dense);
}

TEST_P(EveryKind, IsExportedToEveryElement) {
  Save(folder_.File("run"), open_);
  const std::string to = folder_.File("dense");
  const auto done = ExportDense(folder_.File("run"), to);
  ASSERT_TRUE(done.ok()) << done.status().message();
  EXPECT_EQ(done->made_dense, pool().members.size());
  const auto from = SafetensorsReader::Open(WeightsPath(folder_.File("run")));
  const auto reader = SafetensorsReader::Open(to);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_TRUE(CheckSeal(reader->file()).ok());
  EXPECT_EQ(reader->tensors().size(),
            train::ModelState(*open_.plan).size() - 2 + pool().members.size());
  uint64_t bytes = 0;
  for (const auto& tensor : reader->tensors()) {
    bytes += tensor.bytes;
    if (from->Find(tensor.info.name) == nullptr) continue;
    EXPECT_EQ(ReadTensor(*reader, tensor.info.name),
              ReadTensor(*from, tensor.info.name));
  }
  EXPECT_EQ(done->tensor_bytes, bytes);
  for (size_t m = 0; m < pool().members.size(); ++m) {
    SCOPED_TRACE(member(m).name);
    const auto* tensor = reader->Find(member(m).name);
    ASSERT_NE(tensor, nullptr);
    const Shape& shape = member(m).spec.shape;
    ASSERT_EQ(tensor->info.shape.size(), shape.rank());
    for (size_t axis = 0; axis < shape.rank(); ++axis) {
      EXPECT_EQ(tensor->info.shape[axis], static_cast<uint64_t>(shape[axis]));
    }
    ExpectIsDense(ReadTensor(*reader, member(m).name), pool().layout,
                  open_.session->Bytes(pool().index).data(),
                  ReadTensor(*from, "sparse.weights"), m, shape, size_);
  }
  // Facts of sparse weights are gone; all others stay.
  SafetensorsMetadata expected = from->metadata();
  for (const char* gone :
       {"sha256", "nonzero", "sparse block outputs", "sparse block inputs",
        "sparse index", "sparse weights", "sparse weights shapes"}) {
    EXPECT_EQ(expected.erase(gone), 1u) << gone;
  }
  expected[kSafetensorsSeal] = reader->metadata().at(kSafetensorsSeal);
  EXPECT_EQ(reader->metadata(), expected);
}

// Of sums that are exact, to the bit.
TEST_P(EveryKind, EvaluatesAsBefore) {
  MakeExact(open_);
  Save(folder_.File("run"), open_);
  const auto made = train::PrepareOutDir(folder_.File("dense"));
  ASSERT_TRUE(made.ok());
  const auto done =
      ExportDense(folder_.File("run"), WeightsPath(folder_.File("dense")));
  ASSERT_TRUE(done.ok()) << done.status().message();
  const BinaryImages data;
  const auto sparse = Evaluate(folder_.File("run"), data, {.batch = 8});
  ASSERT_TRUE(sparse.ok()) << sparse.status().message();
  const auto dense = Evaluate(folder_.File("dense"), data, {.batch = 8});
  ASSERT_TRUE(dense.ok()) << dense.status().message();
  EXPECT_EQ(sparse->loss, dense->loss);
  EXPECT_EQ(sparse->metrics[0].value, dense->metrics[0].value);
  // A network that sees something.
  EXPECT_GT(std::abs(sparse->loss - std::log(8.0)), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(
    WeightsFile, EveryKind,
    ::testing::Values(Kind{DType::kF32, {1, 1}, IndexCodec::kPacked},
                      Kind{DType::kF32, {2, 4}, IndexCodec::kBitmap},
                      Kind{DType::kF16, {4, 2}, IndexCodec::kPacked},
                      Kind{DType::kF16, {1, 1}, IndexCodec::kBitmap},
                      Kind{DType::kBF16, {2, 2}, IndexCodec::kPacked}));

}  // namespace
}  // namespace thimble
