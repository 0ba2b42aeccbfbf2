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

// Reads "6.7MB", "8MiB", "500 kB", "2GB" or plain bytes "123456"; the unit's
// case does not matter. Exact: no floating point; a fraction of a byte is
// dropped. A usage error names the accepted forms.
Result<uint64_t> ParseSize(std::string_view text);

// "6.70 MB": three units of thousand, two digits, rounded to nearest; whole
// bytes below 1000 ("512 B").
std::string FormatBytes(uint64_t bytes);

// The same, rounded up: what is printed, when parsed again, is never less. For
// advice such as the smallest budget that works.
std::string FormatBytesUp(uint64_t bytes);

}  // namespace thimble
