// SPDX-License-Identifier: Apache-2.0
//
// For tests that write files with their sums. Safe from every thread.
#pragma once

#include <string>
#include <string_view>

#include "base/sha256.h"

namespace thimble {

// Digest of one string, as Hex.
inline std::string Sha256Hex(std::string_view text) {
  Sha256 sha;
  sha.Update(text);
  return Hex(sha.Final());
}

}  // namespace thimble
