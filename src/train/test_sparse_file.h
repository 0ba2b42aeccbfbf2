// SPDX-License-Identifier: Apache-2.0
//
// For tests only: a small file of sparse weights, in every form that others
// could give it. One thread.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/test_folder.h"
#include "store/safetensors.h"
#include "thimble/network.h"
#include "thimble/session.h"
#include "thimble/text.h"
#include "thimble/weights_file.h"
#include "train/out_folder.h"
#include "train/weights.h"

namespace thimble::train::testing {

inline bool Mentions(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

// A file in memory, to be changed and written again without its seal.
struct Contents {
  SafetensorsMetadata metadata;
  std::vector<TensorInfo> tensors;
  std::vector<std::string> bytes;

  std::string& meta(const std::string& key) { return metadata[key]; }
  size_t At(const std::string& name) const {
    size_t i = 0;
    while (tensors[i].name != name) ++i;
    return i;
  }
  // As a row of bytes, or of floats.
  void Resize(const std::string& name, size_t count, size_t size) {
    const size_t i = At(name);
    tensors[i].shape = {count};
    bytes[i].resize(count * size);
  }
};

class SparseFile : public ::testing::Test {
 protected:
  void SetUp() override {
    Network net("tiny", 2);
    ValueId x = net.Images({.channels = 1, .height = 4, .width = 4});
    for (const char* name : {"a", "b", "c"}) {
      x = net.Conv2d(name, x, {.channels = 4});
    }
    auto model = net.Finish(net.Linear("fc", net.Flatten(x), 3));
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = std::make_unique<Model>(*std::move(model));
    SaveFile(IndexCodec::kPacked);
  }

  Plan MakePlanOf(IndexCodec codec) {
    PlanOptions options;
    options.sparse = {.nonzero = 0.3, .block = {2, 1}, .index = codec};
    auto plan = MakePlan(*model_, options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return *std::move(plan);
  }

  void SaveFile(IndexCodec codec) {
    const Plan plan = MakePlanOf(codec);
    const auto session = Session::Create(plan, {});
    ASSERT_TRUE(session.ok());
    (*session)->Initialize(1);
    const auto folder = train::PrepareOutDir(run_);
    ASSERT_TRUE(folder.ok());
    ASSERT_TRUE(train::SaveWeights(*folder, **session, {}, 3).ok());
    good_ = ReadTestFile(path_);
  }

  Contents Read() const {
    const auto reader = SafetensorsReader::Open(path_);
    EXPECT_TRUE(reader.ok()) << reader.status().message();
    Contents contents{reader->metadata(), {}, {}};
    contents.metadata.erase(kSafetensorsSeal);
    for (const auto& tensor : reader->tensors()) {
      contents.tensors.push_back(tensor.info);
      std::string& bytes = contents.bytes.emplace_back(tensor.bytes, '\0');
      EXPECT_TRUE(reader
                      ->ReadTensor(tensor.info.name,
                                   std::as_writable_bytes(std::span(bytes)))
                      .ok());
    }
    return contents;
  }

  // Not as AtomicFileWriter does, which syncs: tests write thousands.
  void Write(const Contents& contents) {
    std::string json, payload;
    for (const auto& [key, value] : contents.metadata) {
      json += fmt::format("{}{}:{}", json.empty() ? "" : ",", JsonText(key),
                          JsonText(value));
    }
    json = fmt::format("{{\"__metadata__\":{{{}}}", json);
    for (size_t i = 0; i < contents.tensors.size(); ++i) {
      const TensorInfo& info = contents.tensors[i];
      const size_t begin = payload.size();
      payload += contents.bytes[i];
      json += fmt::format(
          ",{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
          JsonText(info.name), info.dtype, fmt::join(info.shape, ","), begin,
          payload.size());
    }
    WriteTestFile(path_, Headed(json + "}") + payload);
  }

  // A header with its length.
  static std::string Headed(const std::string& json) {
    const uint64_t length = json.size();
    std::string headed(sizeof(length), '\0');
    std::memcpy(headed.data(), &length, sizeof(length));
    return headed + json;
  }

  // Both functions refuse what `change` has made of the file.
  template <typename Change>
  void ExpectRefused(const std::string& why, const Change& change) {
    WriteTestFile(path_, good_);
    Contents contents = Read();
    change(contents);
    Write(contents);
    for (const Status& status :
         {InspectFile(path_).status(), ExportDense(path_, to_).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kFailed) << why;
      EXPECT_TRUE(Mentions(status, why)) << why << ": " << status.message();
      EXPECT_TRUE(Mentions(status, path_)) << status.message();
    }
    EXPECT_EQ(folder_.CountFiles(), 1) << why;
  }

  // What is not refused must be listed in numbers that add up, and be written.
  bool IsRefused(bool is_exported) {
    const auto file = InspectFile(path_);
    if (!file.ok()) {
      EXPECT_FALSE(file.status().message().empty());
      EXPECT_EQ(file.status().code(), StatusCode::kFailed);
      return true;
    }
    if (file->sparse.has_value()) {
      int64_t kept = 0;
      for (const auto& weight : file->sparse->weights) {
        EXPECT_LE(weight.kept, weight.blocks);
        kept += weight.kept;
      }
      EXPECT_EQ(kept, file->sparse->kept);
    }
    EXPECT_FALSE(WeightsFileJson(*file).empty());
    if (!is_exported) return false;
    const auto done = ExportDense(path_, to_, {.overwrite = true});
    EXPECT_NE(done.ok(), done.status().code() != StatusCode::kOk);
    return !done.ok();
  }

  TestFolder folder_;
  std::string run_ = folder_.File("run");
  std::string path_ = WeightsPath(run_);
  std::string to_ = folder_.File("dense");
  std::string good_;
  std::unique_ptr<Model> model_;
};

}  // namespace thimble::train::testing
