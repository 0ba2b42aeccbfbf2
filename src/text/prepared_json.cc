// SPDX-License-Identifier: Apache-2.0
#include "text/prepared_json.h"

#include <fmt/format.h>

#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "base/sha256.h"
#include "thimble/text.h"

namespace thimble::text {
namespace {

std::string SidesJson(const BySide& sides) {
  return fmt::format("[{}, {}]", sides[0], sides[1]);
}

std::string SplitJson(const PreparedSplit& split) {
  return fmt::format(
      "{{\"lines\": {}, \"pairs\": {}, \"empty\": {}, \"too_long\": {}, "
      "\"uneven\": {}, \"tokens\": {}, \"unknown\": {}, \"longest\": {}}}",
      split.lines, split.pairs, split.empty, split.too_long, split.uneven,
      SidesJson(split.tokens), SidesJson(split.unknown),
      SidesJson(split.longest));
}

Result<std::string> DigestOf(const std::string& path) {
  TH_ASSIGN_OR_RETURN(const FileDescriptor file, OpenForReading(path));
  std::vector<std::byte> piece(size_t{1} << 16);
  Sha256 sha;
  uint64_t offset = 0;
  while (true) {
    TH_ASSIGN_OR_RETURN(const size_t got, ReadSomeAt(file, piece, offset));
    if (got == 0) return Hex(sha.Final());
    sha.Update(std::span(piece).first(got));
    offset += got;
  }
}

}  // namespace

Status WriteFacts(const PrepareOptions& options, const PrepareSummary& summary,
                  const NewFolder& folder) {
  std::vector<std::string> names = {"codes", "source.dict", "target.dict"};
  std::string splits;
  for (size_t i = 0; i < kTextSplits; ++i) {
    if (!summary.splits[i].has_value()) continue;
    const char* const name = TextSplitName(static_cast<TextSplit>(i));
    names.push_back(fmt::format("{}.tokens", name));
    splits += fmt::format("{}    \"{}\": {}", splits.empty() ? "" : ",\n", name,
                          SplitJson(*summary.splits[i]));
  }
  std::string digests;
  for (const std::string& name : names) {
    TH_ASSIGN_OR_RETURN(const std::string digest, DigestOf(folder.File(name)));
    digests += fmt::format("{}    \"{}\": \"{}\"", digests.empty() ? "" : ",\n",
                           name, digest);
  }
  return folder.Write(
      "prepared.json",
      fmt::format(
          "{{\n  \"version\": 1,\n  \"languages\": [{}, {}],\n"
          "  \"codes\": {},\n  \"vocabulary\": {},\n"
          "  \"max_length\": {},\n  \"ratio\": {},\n  \"seed\": {},\n"
          "  \"splits\": {{\n{}\n  }},\n  \"sha256\": {{\n{}\n  }}\n}}\n",
          JsonText(options.source), JsonText(options.target), summary.codes,
          SidesJson(summary.vocabulary), options.max_length,
          JsonNumber(options.ratio), options.seed, splits, digests));
}

}  // namespace thimble::text
