// SPDX-License-Identifier: Apache-2.0
//
// Sizes in bytes as people write and read them. Decimal units are powers of
// 1000 (kB, MB, GB, TB), binary ones powers of 1024 (KiB, MiB, GiB, TiB). Pure
// functions, safe from every thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "thimble/status.h"

namespace thimble {

// Reads "6.7MB", "8MiB", "500 kB", "2GB" or plain bytes "123456". The unit's
// case does not matter. Exact, without floating point; a fraction of a byte is
// dropped. The error names the accepted forms.
Result<uint64_t> ParseSize(std::string_view text);

// "6.70 MB": in kB, MB, GB or more with two decimals, rounded to nearest; below
// 1000, whole bytes: "512 B".
std::string FormatBytes(uint64_t bytes);

// The same, rounded up, so that what is printed is never less when it is parsed
// again. For advice such as the smallest budget that works.
std::string FormatBytesUp(uint64_t bytes);

}  // namespace thimble
