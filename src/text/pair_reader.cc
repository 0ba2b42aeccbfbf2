// SPDX-License-Identifier: Apache-2.0
#include "text/pair_reader.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "base/check.h"

namespace thimble::text {

Result<PairReader> PairReader::Open(
    const std::array<std::string, kTextSides>& paths) {
  TH_ASSIGN_OR_RETURN(LineReader source, LineReader::Open(paths[0]));
  TH_ASSIGN_OR_RETURN(LineReader target, LineReader::Open(paths[1]));
  return PairReader({std::move(source), std::move(target)});
}

Result<bool> PairReader::Next() {
  std::array<bool, kTextSides> has;
  for (size_t side = 0; side < kTextSides; ++side) {
    TH_ASSIGN_OR_RETURN(has[side], files_[side].Next(&lines_[side]));
  }
  if (has[0] != has[1]) return Uneven(has[0] ? 0 : 1);
  if (!has[0] && files_[0].number() == 0) {
    return Status::Failed(
        fmt::format("{} and {} are empty; text has a sentence on each line",
                    files_[0].path(), files_[1].path()));
  }
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  if (files_[0].number() > kMost) {
    return Status::Failed(
        fmt::format("{} has more than {} lines", files_[0].path(), kMost));
  }
  if (has[0]) number_ = static_cast<uint32_t>(files_[0].number() - 1);
  return has[0];
}

Status PairReader::Uneven(size_t longer) {
  std::string_view line;
  while (true) {
    TH_ASSIGN_OR_RETURN(const bool more, files_[longer].Next(&line));
    if (!more) break;
  }
  return Status::Failed(fmt::format(
      "{} has {} lines and {} has {}; line by line they must mean the same",
      files_[0].path(), files_[0].number(), files_[1].path(),
      files_[1].number()));
}

}  // namespace thimble::text
