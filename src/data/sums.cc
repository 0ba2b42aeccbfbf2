// SPDX-License-Identifier: Apache-2.0
#include "data/sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/files.h"
#include "base/sha256.h"

namespace thimble {
namespace {

constexpr size_t kSumPiece = size_t{16} * 1024;
constexpr uint64_t kMaxSumsBytes = uint64_t{64} * 1024;
constexpr size_t kDigits = 64;

bool IsDigest(std::string_view text) {
  return text.size() == kDigits &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// Where the sum of the file of this name belongs; null if nowhere.
std::string* PlaceOf(std::string_view name, Cifar10Sums* sums) {
  if (name == kCifar10Archive) return &sums->archive;
  for (size_t file = 0; file < kCifar10Files; ++file) {
    if (name == kCifar10Names[file]) return &sums->files[file];
  }
  return nullptr;
}

}  // namespace

Cifar10Sums PublishedCifar10Sums() {
  return {{"cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
           "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
           "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
           "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
           "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
           "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"},
          "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
          170'052'171,
          kCifar10FileRecords * kCifar10RecordBytes};
}

Result<Cifar10Sums> ReadCifar10Sums(const std::string& path) {
  TH_ASSIGN_OR_RETURN(const FileDescriptor file, OpenForReading(path));
  TH_ASSIGN_OR_RETURN(const FileStamp stamp, StampOf(file));
  if (stamp.bytes > kMaxSumsBytes) {
    return Status::Failed(
        fmt::format("{} is too long for a list of sums", path));
  }
  std::string text(static_cast<size_t>(stamp.bytes), '\0');
  TH_RETURN_IF_ERROR(
      ReadFullyAt(file, std::as_writable_bytes(std::span(text)), 0));
  Cifar10Sums sums;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    // Digits, a space, a space or a star, and the name, maybe with a path.
    if (line.size() < kDigits + 2 || !IsDigest(line.substr(0, kDigits))) {
      continue;
    }
    const std::string_view name =
        line.substr(std::max(kDigits + 2, line.rfind('/') + 1));
    if (std::string* place = PlaceOf(name, &sums)) {
      *place = line.substr(0, kDigits);
    }
  }
  for (size_t i = 0; i < kCifar10Files; ++i) {
    if (sums.files[i].empty()) {
      return Status::Failed(
          fmt::format("{} has no SHA-256 sum of {}; it must be as sha256sum "
                      "writes it",
                      path, kCifar10Names[i]));
    }
  }
  return sums;
}

Result<std::string> Sha256OfFile(const std::string& path,
                                 const ByteCount& done) {
  TH_ASSIGN_OR_RETURN(const FileDescriptor file, OpenForReading(path));
  Sha256 sha;
  std::array<std::byte, kSumPiece> piece;
  for (uint64_t offset = 0;;) {
    TH_ASSIGN_OR_RETURN(const size_t got, ReadSomeAt(file, piece, offset));
    if (got == 0) return Hex(sha.Final());
    sha.Update(std::span(piece).first(got));
    offset += got;
    if (done) done(offset);
  }
}

Status CompareSum(const std::string& what, const std::string& found,
                  const std::string& published) {
  if (found == published) return Status::Ok();
  return Status::Failed(
      fmt::format("{} is damaged, or something else: its SHA-256 is {}, it "
                  "should be {}",
                  what, found, published));
}

}  // namespace thimble
