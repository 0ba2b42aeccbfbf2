// SPDX-License-Identifier: Apache-2.0
//
// Whether text is UTF-8: file formats and JSON take nothing else. Pure
// functions, safe from every thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace thimble {

// Bytes of the character that `text` begins with; 0 where it begins with none,
// or is empty. Overlong forms and surrogates are none.
size_t Utf8Bytes(std::string_view text);

bool IsUtf8(std::string_view text);

}  // namespace thimble
