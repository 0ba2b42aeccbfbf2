// SPDX-License-Identifier: Apache-2.0
//
// Files of sparse weights that somebody else has written, or that were damaged:
// each is refused with a reason, or can be read.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "thimble/weights_file.h"
#include "train/test_sparse_file.h"

namespace thimble {
namespace {

using train::testing::Contents;
using train::testing::Mentions;

class SparseFileDamage : public train::testing::SparseFile {};

// Every bit with THIMBLE_LONG; else every eleventh, which is each of eight
// places in turn.
uint64_t BitStride() { return std::getenv("THIMBLE_LONG") != nullptr ? 1 : 11; }

TEST_F(SparseFileDamage, FactsThatMakeNoSenseAreRefused) {
  const auto meta = [this](const char* key, const std::string& value,
                           const std::string& why) {
    SCOPED_TRACE(fmt::format("{} = {}", key, value));
    ExpectRefused(why, [&](Contents& c) { c.meta(key) = value; });
  };
  const std::string how = "makes no sense: how they are kept";
  for (const char* text :
       {"", "1", "1.0", "x", "0.3 ", "-0.3", "nan", "1e999"}) {
    meta("nonzero", text, how);
  }
  meta("nonzero", "1.5", "the share of nonzero weights must be above 0");
  for (const char* text : {"", "-1", "65", "99999999999999999999"}) {
    meta("sparse block inputs", text, how);
    meta("sparse block outputs", text, how);
  }
  meta("sparse block inputs", "0", "blocks of 2 outputs by 0 inputs");
  meta("sparse block inputs", "64", "blocks of 2 outputs by 64 inputs");
  meta("sparse block inputs", "3", "do not divide");
  meta("sparse index", "csr", how);
  meta("sparse index", "bitmap", "the index has");
  meta("sparse weights", "", how);
  meta("sparse weights", "b.weight\nb.weight", "their names");
  meta("sparse weights", "\nb.weight", "their names");
  meta("sparse weights", "b.weight", "the number of their shapes");
  meta("sparse weights", "b.weight\nc.weight\nd.weight", "the number of their");
  meta("sparse weights", "b.weight\na.weight",
       "'a.weight' is the name of a sparse weight and of something else");
  meta("sparse weights", "b.weight\nsparse.index",
       "'sparse.index' is the name");
  meta("sparse weights", "b.weight\n__metadata__", "'__metadata__' is the");
  const std::string other = "\n4,4,3,3";
  for (const char* text :
       {"", "4", "4,4,3,3,3,3", "4,,3", "4,4,3,3,", "0,4,3,3", "4,-4,3,3",
        "4,4,3,x", "1099511627776,4,3,3", "1048576,1048576,2",
        "18446744073709551616,4", "4294967296,4294967296,4294967296"}) {
    meta("sparse weights shapes", text + other, "their shapes");
  }
  meta("sparse weights shapes", "4,4,3,3", "the number of their shapes");
  meta("sparse weights shapes", "4,65536" + other, "at most 65535");
  meta("sparse weights shapes", "1099511627776,1" + other,
       "too few for the rows");
  meta("sparse weights shapes", "6,4,3,3" + other, "the sparse weights have");
  meta("sparse weights shapes", "4,6,3,3" + other, "the sparse weights have");
  ExpectRefused("does not say which weights are sparse",
                [](Contents& c) { c.metadata.erase("nonzero"); });
  ExpectRefused("the number of their shapes",
                [](Contents& c) { c.metadata.erase("sparse weights shapes"); });
}

TEST_F(SparseFileDamage, TensorsThatDoNotFitTheFactsAreRefused) {
  const std::string both = "but not 'sparse.index' as bytes and";
  for (const char* name : {"sparse.index", "sparse.weights"}) {
    ExpectRefused(both, [&](Contents& c) { c.tensors[c.At(name)].name = "x"; });
    ExpectRefused(both, [&](Contents& c) {
      auto& shape = c.tensors[c.At(name)].shape;
      c.tensors[c.At(name)].dtype = name[7] == 'i' ? "I8" : "I32";
      ASSERT_EQ(shape.size(), 1u);
    });
  }
  ExpectRefused(both, [&](Contents& c) {
    c.tensors[c.At("sparse.weights")].shape.push_back(1);
  });
  ExpectRefused(both, [&](Contents& c) {
    c.tensors[c.At("sparse.weights")].shape.clear();
    c.bytes[c.At("sparse.weights")].resize(4);
  });
  for (const size_t count : {size_t{0}, size_t{1}, size_t{43}, size_t{1000}}) {
    ExpectRefused(
        fmt::format("'sparse.weights' has {} values; by their shapes and the "
                    "share of 0.3",
                    count),
        [&](Contents& c) { c.Resize("sparse.weights", count, 4); });
  }
  for (const size_t count : {size_t{0}, size_t{7}, size_t{8}, size_t{1000}}) {
    ExpectRefused(fmt::format("the index has {} bytes", count),
                  [&](Contents& c) { c.Resize("sparse.index", count, 1); });
  }
  ExpectRefused("keeps", [&](Contents& c) {
    c.bytes[c.At("sparse.index")].assign(c.bytes[c.At("sparse.index")].size(),
                                         '\xff');
  });
  // A hole in the file costs nobody a byte.
  WriteTestFile(path_, good_);
  Contents contents = Read();
  contents.Resize("sparse.index", 0, 1);
  const auto index = std::partition(
      contents.tensors.begin(), contents.tensors.end(),
      [](const TensorInfo& info) { return info.name != "sparse.index"; });
  contents.tensors.erase(index, contents.tensors.end());
  contents.bytes.clear();
  for (const TensorInfo& info : contents.tensors) {
    contents.bytes.emplace_back(*TensorBytes(info), '\0');
  }
  Write(contents);
  const std::string file = ReadTestFile(path_);
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof(header));
  const uint64_t payload = file.size() - 8 - header;
  constexpr uint64_t kHole = uint64_t{1} << 40;
  const std::string begin =
      Headed(file.substr(8, header - 1) +
             fmt::format(R"(,"sparse.index":{{"dtype":"U8","shape":[{}],)"
                         R"("data_offsets":[{},{}]}}}})",
                         kHole, payload, payload + kHole));
  WriteTestFile(path_, begin);
  ASSERT_EQ(truncate(path_.c_str(),
                     static_cast<off_t>(begin.size() + payload + kHole)),
            0);
  EXPECT_TRUE(Mentions(InspectFile(path_).status(),
                       "the index has 1099511627776 bytes; at most"));
}

// 141 TB from 17 MB: a few values, and as many zeros as the shapes say.
TEST_F(SparseFileDamage, WhatHasNoRoomIsRefusedBeforeItIsWritten) {
  const std::vector<BlockMatrix> matrices(32, {1 << 18, 65535});
  const int64_t kept = KeptOf(1e-9, matrices[0]);
  const PoolLayout layout(matrices, {16, 4}, 32 * kept, IndexCodec::kPacked);
  std::vector<std::byte> index(layout.index_bytes());
  PoolLayout::Writer writer(layout, index.data());
  const std::vector<uint16_t> column = {3};
  Contents contents = Read();
  contents.meta("nonzero") = "1e-9";
  contents.meta("sparse block outputs") = "16";
  contents.meta("sparse block inputs") = "4";
  contents.meta("sparse weights").clear();
  contents.meta("sparse weights shapes").clear();
  for (size_t m = 0; m < matrices.size(); ++m) {
    for (int64_t row = 0; row < matrices[m].rows; ++row) {
      writer.Row(std::span(column).first(row < kept ? 1 : 0));
    }
    contents.meta("sparse weights") += fmt::format("w{}\n", m);
    contents.meta("sparse weights shapes") +=
        fmt::format("{},{}\n", 16 * matrices[m].rows, 4 * matrices[m].columns);
  }
  contents.Resize("sparse.weights", static_cast<size_t>(64 * 32 * kept), 4);
  contents.Resize("sparse.index", index.size(), 1);
  std::memcpy(contents.bytes[contents.At("sparse.index")].data(), index.data(),
              index.size());
  Write(contents);
  const auto file = InspectFile(path_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_GT(file->sparse->dense_bytes, 140'000'000'000'000u);
  const Status refused = ExportDense(path_, to_).status();
  EXPECT_TRUE(Mentions(refused, "has room for")) << refused.message();
  EXPECT_EQ(folder_.CountFiles(), 1);
}

TEST_F(SparseFileDamage, EveryFlippedBitUnderTheSealIsRefused) {
  const std::string sealed_name = "file_sha256";
  const size_t name_at = good_.find(sealed_name);
  for (uint64_t bit = 0; bit < 8 * good_.size(); bit += BitStride()) {
    // Without the seal's own name, it is a file of another program.
    const uint64_t at = bit / 8;
    if (at >= name_at && at < name_at + sealed_name.size()) continue;
    std::string bad = good_;
    bad[at] = static_cast<char>(bad[at] ^ (1 << bit % 8));
    WriteTestFile(path_, bad);
    ASSERT_TRUE(IsRefused(false)) << "bit " << bit % 8 << " of byte " << at;
  }
}

TEST_F(SparseFileDamage, NoFlippedBitWithoutASealIsTrusted) {
  for (const IndexCodec codec : {IndexCodec::kPacked, IndexCodec::kBitmap}) {
    SaveFile(codec);
    Write(Read());
    const std::string good = ReadTestFile(path_);
    ASSERT_FALSE(IsRefused(true));
    int refused = 0, taken = 0;
    for (uint64_t bit = 0; bit < 8 * good.size(); bit += BitStride()) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
      WriteTestFile(path_, bad);
      const bool is_exported = bit / BitStride() % 7 == 0;
      ++(IsRefused(is_exported) ? refused : taken);
    }
    EXPECT_GT(refused, 100);
    EXPECT_GT(taken, 100);
  }
}

TEST_F(SparseFileDamage, FilesThatWereCutShortAreRefused) {
  Write(Read());
  for (const std::string& good : {good_, ReadTestFile(path_)}) {
    for (size_t bytes = 0; bytes < good.size(); bytes += BitStride()) {
      WriteTestFile(path_, good.substr(0, bytes));
      ASSERT_TRUE(IsRefused(false)) << bytes;
    }
    WriteTestFile(path_, good + "x");
    EXPECT_TRUE(IsRefused(false));
  }
}

// Facts of random pieces.
TEST_F(SparseFileDamage, NoFactsBringItDown) {
  const Contents contents = Read();
  const std::vector<std::string> pieces = {"0",
                                           "1",
                                           "2",
                                           "4",
                                           "9",
                                           ",",
                                           "\n",
                                           ".",
                                           "e",
                                           "-",
                                           "64",
                                           "65535",
                                           "65536",
                                           "1099511627776",
                                           "18446744073709551615",
                                           "packed",
                                           "bitmap",
                                           "b.weight",
                                           "c.weight",
                                           "sparse.index",
                                           "4,4,3,3",
                                           "0.3",
                                           " ",
                                           "\\",
                                           "\""};
  const std::vector<std::string> keys = {
      "nonzero",      "sparse block outputs", "sparse block inputs",
      "sparse index", "sparse weights",       "sparse weights shapes"};
  int refused = 0;
  constexpr int kRounds = 2000;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const RandomStream random(78, round, 0);
    const PhiloxBlock choice = random.Block(0);
    Contents changed = contents;
    for (uint32_t i = 0; i <= choice[0] % 2; ++i) {
      const PhiloxBlock what = random.Block(1 + i);
      std::string& text = changed.meta(keys[what[0] % keys.size()]);
      const std::string& piece = pieces[what[1] % pieces.size()];
      const size_t at = what[2] % (text.size() + 1);
      if (what[3] % 3 == 0) text = piece;
      if (what[3] % 3 == 1) text.insert(at, piece);
      if (what[3] % 3 == 2) text.replace(at, 1 + piece.size() % 3, piece);
    }
    Write(changed);
    refused += IsRefused(false) ? 1 : 0;
  }
  EXPECT_GT(refused, kRounds / 2);
  EXPECT_LT(refused, kRounds);
}

}  // namespace
}  // namespace thimble
