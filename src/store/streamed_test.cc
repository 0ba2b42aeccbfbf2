// SPDX-License-Identifier: Apache-2.0
//
// Files whose tensors, or whose metadata, are not read or written in one piece.
#include <gtest/gtest.h>

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/test_folder.h"
#include "store/safetensors.h"

namespace thimble {
namespace {

std::span<const std::byte> StreamedBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Status WriteWhole(const std::string& path, std::span<const TensorView> tensors,
                  const SafetensorsMetadata& metadata, Seal seal) {
  auto writer = AtomicFileWriter::Create(path);
  if (!writer.ok()) return writer.status();
  return WriteSafetensors(
      *std::move(writer),
      {tensors.size(), [&](size_t i) { return tensors[i]; }, metadata}, seal);
}

TEST(Streaming, SealedFilesMayHaveMetadataOfAnyLength) {
  const TestFolder folder;
  const std::string path = folder.File("m");
  const std::array<TensorView, 1> tensors = {
      {{{"a", "U8", {3}}, StreamedBytes("abc")}}};
  for (const size_t length : {70'000u, 300'000u, 2'000'000u}) {
    const SafetensorsMetadata metadata = {{"k", std::string(length, '"')}};
    ASSERT_TRUE(WriteWhole(path, tensors, metadata, Seal::kSha256).ok());
    const auto sealed = SealedSafetensors::Open(path);
    ASSERT_TRUE(sealed.ok()) << sealed.status().message();
    EXPECT_EQ(sealed->metadata(), metadata);
  }
}

TEST(Streaming, StreamsWhatIsNotInMemoryToTheSameFile) {
  const TestFolder folder;
  const std::string path = folder.File("m");
  const std::array<TensorView, 2> tensors = {
      {{{"a", "F16", {2, 2}}, StreamedBytes("01234567")},
       {{"b", "U8", {3}}, StreamedBytes("xyz")}}};
  ASSERT_TRUE(WriteWhole(path, tensors, {{"k", "v"}}, Seal::kSha256).ok());
  const std::string whole = ReadTestFile(path);
  const auto stream = [&](uint64_t missing) {
    auto writer = AtomicFileWriter::Create(folder.File("streamed"));
    EXPECT_TRUE(writer.ok());
    const auto info = [&](size_t i) { return tensors[i].info; };
    const auto pieces = [&](size_t i, ByteSink sink) {
      const auto bytes = tensors[i].bytes;
      for (uint64_t at = 0; at + missing < bytes.size(); ++at) {
        const Status status = sink(bytes.subspan(at, 1));
        if (!status.ok()) return status;
      }
      return Status::Ok();
    };
    return StreamSafetensors(*std::move(writer),
                             {2, info, pieces, {{"k", "v"}}}, Seal::kSha256);
  };
  EXPECT_NE(stream(1).message().find("takes 8 bytes by its shape, but 7"),
            std::string::npos);
  EXPECT_EQ(folder.CountFiles(), 1);
  const Status status = stream(0);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(ReadTestFile(folder.File("streamed")), whole);
}

}  // namespace
}  // namespace thimble
