// SPDX-License-Identifier: Apache-2.0
#include "store/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/sha256.h"
#include "base/test_folder.h"
#include "store/safetensors_header.h"

namespace thimble {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

bool Mentions(const Status& status, std::string_view text) {
  return status.message().find(text) != std::string::npos;
}

// A file's bytes from its header's text and its tensors'.
std::string Assemble(const std::string& json, const std::string& payload) {
  std::string file;
  for (int shift = 0; shift < 64; shift += 8) {
    file += static_cast<char>(json.size() >> shift & 0xff);
  }
  return file + json + payload;
}

Status Write(const std::string& path, std::span<const TensorView> tensors,
             const SafetensorsMetadata& metadata, Seal seal = Seal::kNone) {
  auto writer = AtomicFileWriter::Create(path);
  if (!writer.ok()) return writer.status();
  return WriteSafetensors(
      *std::move(writer),
      {tensors.size(), [&](size_t i) { return tensors[i]; }, metadata}, seal);
}

class Safetensors : public testing::Test {
 protected:
  Result<SafetensorsReader> Open(std::string_view contents) {
    WriteTestFile(path_, contents);
    return SafetensorsReader::Open(path_);
  }

  void ExpectRefused(const std::string& contents, const std::string& why) {
    const Status status = Open(contents).status();
    EXPECT_EQ(status.code(), StatusCode::kFailed) << why;
    EXPECT_TRUE(Mentions(status, why)) << status.message();
    EXPECT_TRUE(Mentions(status, path_)) << status.message();
  }

  // A header of these entries, and eight bytes of tensors.
  void ExpectHeaderRefused(const std::string& json, const std::string& why) {
    ExpectRefused(Assemble(json, "01234567"), why);
  }

  void WriteExample() {
    const std::array<float, 6> weights = {1, -2, 3.5f, 0, 1e-30f, 7};
    const std::array<TensorView, 3> tensors = {
        {{{"conv1.weight", "F32", {2, 3}}, std::as_bytes(std::span(weights))},
         {{"empty", "I64", {4, 0}}, {}},
         {{"odd \"name\" \xC3\xA4", "U8", {5}}, Bytes("abcde")}}};
    const Status status =
        Write(path_, tensors, {{"format", "pt"}, {"step", "12"}});
    ASSERT_TRUE(status.ok()) << status.message();
  }

  TestFolder folder_;
  std::string path_ = folder_.File("m.safetensors");
};

// The file byte by byte, as the format's description has it.
TEST_F(Safetensors, WritesTheFormatToTheLetter) {
  const std::array<TensorView, 2> tensors = {
      {{{"b", "F16", {2, 1}}, Bytes("wxyz")}, {{"a", "U8", {}}, Bytes("q")}}};
  ASSERT_TRUE(Write(path_, tensors, {{"k", "v"}}).ok());
  std::string json =
      R"({"__metadata__":{"k":"v"},)"
      R"("b":{"dtype":"F16","shape":[2,1],"data_offsets":[0,4]},)"
      R"("a":{"dtype":"U8","shape":[],"data_offsets":[4,5]}})";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(ReadTestFile(path_), Assemble(json, "wxyzq"));
  EXPECT_EQ(folder_.CountFiles(), 1);
}

TEST_F(Safetensors, ReadsBackWhatItWrote) {
  WriteExample();
  const auto reader = SafetensorsReader::Open(path_);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(reader->metadata(),
            (SafetensorsMetadata{{"format", "pt"}, {"step", "12"}}));
  ASSERT_EQ(reader->tensors().size(), 3u);
  const auto* weight = reader->Find("conv1.weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->info.dtype, "F32");
  EXPECT_EQ(weight->info.shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(weight->bytes, 24u);
  EXPECT_EQ(weight->begin % 8, 0u);
  std::array<float, 6> weights{};
  ASSERT_TRUE(reader
                  ->ReadTensor("conv1.weight",
                               std::as_writable_bytes(std::span(weights)))
                  .ok());
  EXPECT_EQ(weights, (std::array<float, 6>{1, -2, 3.5f, 0, 1e-30f, 7}));
  EXPECT_TRUE(reader->ReadTensor("empty", {}).ok());
  std::string text(3, '?');
  ASSERT_TRUE(reader
                  ->ReadTensorPart("odd \"name\" \xC3\xA4", 1,
                                   std::as_writable_bytes(std::span(text)))
                  .ok());
  EXPECT_EQ(text, "bcd");
}

TEST_F(Safetensors, WritesAFileOfNoTensors) {
  ASSERT_TRUE(Write(path_, {}, {}).ok());
  EXPECT_EQ(ReadTestFile(path_), Assemble("{}      ", ""));
  const auto reader = SafetensorsReader::Open(path_);
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE(reader->tensors().empty());
}

TEST_F(Safetensors, RefusesToWriteWhatCannotBeRead) {
  const auto refusal = [&](const TensorInfo& a, const TensorInfo& b,
                           const SafetensorsMetadata& metadata) {
    // Shapes that overflow have no bytes to give; the names come first then.
    const auto view = [](const TensorInfo& info) {
      static const std::string bytes(4, '0');
      return TensorView{info, Bytes(bytes)};
    };
    const std::array<TensorView, 2> tensors = {view(a), view(b)};
    return Write(path_, tensors, metadata);
  };
  const TensorInfo good = {"good", "F32", {1}};
  EXPECT_TRUE(Mentions(refusal(good, good, {}), "both be named 'good'"));
  EXPECT_TRUE(Mentions(refusal(good, {"__metadata__", "F32", {1}}, {}),
                       "__metadata__"));
  EXPECT_TRUE(Mentions(refusal(good, {"x", "F31", {1}}, {}), "F31"));
  EXPECT_TRUE(Mentions(
      refusal(good, {"x", "F32", {1ull << 40, 1ull << 30}}, {}), "overflows"));
  for (const char* bad : {"\xff", "\xC3", "\xC0\x80", "\xED\xA0\x80",
                          "\xF4\x90\x80\x80", "\xE0\x80\x80", "a\x80"}) {
    EXPECT_TRUE(Mentions(refusal(good, {bad, "F32", {1}}, {}), "UTF-8"));
    EXPECT_TRUE(
        Mentions(refusal(good, {"x", "F32", {1}}, {{"k", bad}}), "UTF-8"));
  }
  const std::array<TensorView, 1> short_view = {{{good, Bytes("abc")}}};
  EXPECT_TRUE(Mentions(Write(path_, short_view, {}),
                       "takes 4 bytes by its shape, but 3"));
  EXPECT_EQ(folder_.CountFiles(), 0);
}

TEST_F(Safetensors, RefusesImpossibleHeaderLengths) {
  ExpectRefused("", "it has 0 bytes");
  ExpectRefused("1234567", "it has 7 bytes");
  ExpectRefused(Assemble("{}", "").substr(0, 9), "a header of 2 bytes, of 9");
  ExpectRefused(std::string(8, '\xff') + "{}", "claims a header of 1844674407");
  std::string huge = Assemble(std::string(20, ' '), "");
  huge[7] = '\x80';
  ExpectRefused(huge, "claims a header");
  // Over the limit though within the file: sparse, so it costs nothing.
  ASSERT_EQ(truncate(path_.c_str(), 200'000'000), 0);
  std::FILE* file = std::fopen(path_.c_str(), "r+b");
  ASSERT_NE(file, nullptr);
  const uint64_t length = kMaxSafetensorsHeaderBytes + 1;
  ASSERT_EQ(std::fwrite(&length, 8, 1, file), 1u);
  std::fclose(file);
  EXPECT_TRUE(Mentions(SafetensorsReader::Open(path_).status(),
                       "a header of 16777217 bytes"));
}

TEST_F(Safetensors, RefusesHeadersThatAreNoJsonObject) {
  for (const char* json : {"", "        ", "[]", "1", "{", "{\"a\":}", "{}x",
                           "{\"a\":\"\xff\"}", "null"}) {
    ExpectHeaderRefused(json, "not a JSON object");
  }
}

TEST_F(Safetensors, RefusesDeepNestingWithoutRecursing) {
  ExpectHeaderRefused("{\"a\":" + std::string(5'000'000, '['), "too deeply");
  ExpectHeaderRefused(R"({"a":{"shape":[[1]]}})", "too deeply");
  // Brackets inside strings do not nest.
  ExpectHeaderRefused(R"({"__metadata__":{"a":"\"[[[[[{{{"}})",
                      "take 0 bytes, but 8 follow");
}

TEST_F(Safetensors, RefusesWrongEntries) {
  ExpectHeaderRefused(R"({"a":1})", "'a' is not described by an object");
  ExpectHeaderRefused(R"({"a":{"shape":[8],"data_offsets":[0,8]}})",
                      "no dtype");
  ExpectHeaderRefused(R"({"a":{"dtype":8,"shape":[8],"data_offsets":[0,8]}})",
                      "no dtype");
  ExpectHeaderRefused(
      R"({"a":{"dtype":"X9","shape":[8],"data_offsets":[0,8]}})",
      "unknown dtype 'X9'");
  for (const char* shape : {"8", "[-8]", "[8.0]", "[\"8\"]", "[1e30]", "{}",
                            "[99999999999999999999999]", "[null]"}) {
    ExpectHeaderRefused(std::string(R"({"a":{"dtype":"U8","shape":)") + shape +
                            R"(,"data_offsets":[0,8]}})",
                        "no shape of whole numbers");
  }
  for (const char* range : {"[0]", "[0,8,8]", "[8,0]", "[0,9]", "[-1,8]",
                            "[0,18446744073709551615]", "null", "[0.0,8.0]"}) {
    ExpectHeaderRefused(
        std::string(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":)") +
            range + "}}",
        "no data_offsets within the file's 8 bytes");
  }
  ExpectHeaderRefused(
      R"({"a":{"dtype":"F32","shape":[8],"data_offsets":[0,8]}})",
      "takes 32 bytes by its shape, but 8");
  ExpectHeaderRefused(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],)"
                      R"("data_offsets":[0,0]}})",
                      "overflows");
  ExpectHeaderRefused(R"({"__metadata__":[]})", "metadata is not");
  ExpectHeaderRefused(R"({"__metadata__":{"k":1}})", "'k' is not a string");
}

std::string Entry(const std::string& name, int begin, int end) {
  return fmt::format(
      R"("{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})", name,
      end - begin, begin, end);
}

std::string Object(const std::vector<std::string>& entries) {
  return fmt::format("{{{}}}", fmt::join(entries, ","));
}

TEST_F(Safetensors, RefusesGapsOverlapsAndDuplicates) {
  const std::string a = Entry("a", 0, 4);
  ExpectHeaderRefused(Object({a, Entry("b", 3, 8)}),
                      "'b' starts at byte 3, before the end");
  ExpectHeaderRefused(Object({a, Entry("b", 5, 8)}),
                      "'b' starts at byte 5, after the end");
  ExpectHeaderRefused(Object({Entry("b", 1, 8)}), "starts at byte 1, after");
  ExpectHeaderRefused(Object({a, Entry("b", 4, 7)}),
                      "take 7 bytes, but 8 follow");
  ExpectHeaderRefused(Object({a, Entry("a", 4, 8)}), "names 'a' twice");
  ExpectHeaderRefused(
      R"({"a":{"dtype":"U8","dtype":"I8","shape":[8],"data_offsets":[0,8]}})",
      "names 'dtype' twice");
  ExpectHeaderRefused(Object({Entry("", 0, 4), Entry("", 4, 8)}),
                      "names '' twice");
  // Any order of entries is fine, and so are the same keys in other objects.
  EXPECT_TRUE(Open(Assemble(Object({Entry("b", 4, 8), a}), "01234567")).ok());
}

TEST_F(Safetensors, ReportsTensorsOfAnotherModel) {
  WriteExample();
  const auto reader = SafetensorsReader::Open(path_);
  ASSERT_TRUE(reader.ok());
  std::array<std::byte, 24> bytes;
  EXPECT_TRUE(Mentions(reader->ReadTensor("conv2.weight", bytes),
                       "no tensor 'conv2.weight'"));
  const auto half = std::span(bytes).first(12);
  EXPECT_TRUE(Mentions(reader->ReadTensor("conv1.weight", half),
                       "has 24 bytes, 12 are expected"));
  EXPECT_FALSE(reader->ReadTensorPart("conv1.weight", 13, half).ok());
  EXPECT_FALSE(reader->ReadTensorPart("conv1.weight", ~0ull, half).ok());
  EXPECT_TRUE(reader->ReadTensorPart("conv1.weight", 12, half).ok());
  ASSERT_EQ(truncate(path_.c_str(), 250), 0);
  EXPECT_TRUE(Mentions(reader->ReadTensor("conv1.weight", bytes), "cut short"));
}

TEST_F(Safetensors, SealIsTheSumOfTheFileWithZerosInItsPlace) {
  const std::array<TensorView, 1> tensors = {
      {{{"a", "U8", {3}}, Bytes("abc")}}};
  ASSERT_TRUE(Write(path_, tensors, {{"a", "b"}}, Seal::kSha256).ok());
  std::string file = ReadTestFile(path_);
  const size_t at = file.find("\"file_sha256\":\"") + 15;
  const std::string digits = file.substr(at, 64);
  file.replace(at, 64, 64, '0');
  Sha256 sum;
  sum.Update(Bytes(file));
  EXPECT_EQ(digits, Hex(sum.Final()));
  // And it is a file as any other.
  const auto reader = SafetensorsReader::Open(path_);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->metadata(),
            (SafetensorsMetadata{{"a", "b"}, {"file_sha256", digits}}));
}

// Every bit of the file is under the seal.
TEST_F(Safetensors, SealedFilesShowEveryFlippedBit) {
  const std::array<TensorView, 2> tensors = {
      {{{"a", "F32", {1, 2}}, Bytes("01234567")},
       {{"b", "U8", {1}}, Bytes("8")}}};
  ASSERT_TRUE(Write(path_, tensors, {{"k", "\"}"}}, Seal::kSha256).ok());
  const std::string good = ReadTestFile(path_);
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    WriteTestFile(path_, bad);
    const auto sealed = SealedSafetensors::Open(path_);
    ASSERT_FALSE(sealed.ok()) << bit;
    ASSERT_TRUE(Mentions(sealed.status(), path_ + " is damaged"));
  }
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    WriteTestFile(path_, good.substr(0, bytes));
    ASSERT_FALSE(SealedSafetensors::Open(path_).ok()) << bytes;
  }
  WriteTestFile(path_, good + "x");
  ASSERT_FALSE(SealedSafetensors::Open(path_).ok());
  WriteTestFile(path_, good);
  const auto sealed = SealedSafetensors::Open(path_);
  ASSERT_TRUE(sealed.ok()) << sealed.status().message();
  EXPECT_EQ(sealed->metadata(), (SafetensorsMetadata{{"k", "\"}"}}));
}

TEST_F(Safetensors, SealedFilesAreReadByTheTensorsThatWroteThem) {
  const std::array<TensorView, 2> tensors = {
      {{{"a", "F32", {1, 2}}, Bytes("01234567")},
       {{"b", "U8", {1}}, Bytes("8")}}};
  ASSERT_TRUE(Write(path_, tensors, {}, Seal::kSha256).ok());
  const auto sealed = SealedSafetensors::Open(path_);
  ASSERT_TRUE(sealed.ok()) << sealed.status().message();
  std::string a(8, '?');
  std::string b(1, '?');
  const auto read = [&](size_t count, const TensorInfo& second) {
    return sealed->ReadTensors(count, [&](size_t i) {
      std::string& into = i == 0 ? a : b;
      return SealedSafetensors::Target{i == 0 ? tensors[0].info : second,
                                       std::as_writable_bytes(std::span(into))};
    });
  };
  EXPECT_TRUE(Mentions(read(2, {"c", "U8", {1}}), "'c' is missing or not U8"));
  EXPECT_TRUE(Mentions(read(2, {"b", "I8", {1}}), "'b' is missing or not I8"));
  EXPECT_TRUE(Mentions(read(2, {"b", "U8", {1, 1}}), "not U8 [1, 1]"));
  EXPECT_TRUE(Mentions(read(1, {}), "more tensors"));
  EXPECT_TRUE(Mentions(read(3, {"b", "U8", {1}}), "missing"));
  EXPECT_EQ(a, "????????");
  const Status status = read(2, {"b", "U8", {1}});
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(a + b, "012345678");
}

// Damaged files are refused, or all that they list can be read.
TEST_F(Safetensors, SurvivesDamagedFiles) {
  WriteExample();
  const std::string good = ReadTestFile(path_);
  constexpr std::string_view kTokens = "{}[]\",:0123456789-eE.\\ntfu \xff";
  int refused = 0;
  for (uint64_t round = 0; round < 6000; ++round) {
    const RandomStream random(77, round, 0);
    const PhiloxBlock choice = random.Block(0);
    std::string bad = good;
    if (choice[0] % 8 == 0) bad.resize(choice[1] % bad.size());
    if (choice[0] % 8 == 1) bad.append(1 + choice[1] % 20, '{');
    for (uint32_t i = 0; i <= choice[2] % 3 && !bad.empty(); ++i) {
      const PhiloxBlock flip = random.Block(1 + i);
      const char token = kTokens[flip[2] % kTokens.size()];
      const size_t at = flip[0] % bad.size();
      if (flip[1] % 5 == 0 && at >= 8) {
        bad.insert(at, 1, token);
      } else if (flip[1] % 5 == 1) {
        bad[at] = static_cast<char>(flip[2]);
      } else {
        bad[at] = token;
      }
    }
    const auto reader = Open(bad);
    if (!reader.ok()) {
      ++refused;
      ASSERT_FALSE(reader.status().message().empty());
      continue;
    }
    for (const auto& tensor : reader->tensors()) {
      ASSERT_LE(tensor.bytes, bad.size());
      std::vector<std::byte> bytes(tensor.bytes);
      ASSERT_TRUE(reader->ReadTensor(tensor.info.name, bytes).ok());
    }
  }
  EXPECT_GT(refused, 3000);
  EXPECT_LT(refused, 6000);
}

}  // namespace
}  // namespace thimble
