// SPDX-License-Identifier: Apache-2.0
//
// What gives tokens their meaning: the codes and dictionaries of a folder, be
// it of prepared text or of a run that was trained on it. A pure function.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "thimble/status.h"
#include "thimble/text_data.h"

namespace thimble::text {

// The files, by name; the dictionaries in the order of TextSide.
inline constexpr char kCodesName[] = "codes";
inline constexpr const char* kDictionaryNames[kTextSides] = {"source.dict",
                                                             "target.dict"};

struct Meaning {
  std::string digest;                               // TextData::meaning
  std::array<int64_t, kTextSides> vocabulary = {};  // by side
};

Result<Meaning> ReadMeaning(const std::string& dir);

}  // namespace thimble::text
