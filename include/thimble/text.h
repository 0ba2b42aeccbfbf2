// SPDX-License-Identifier: Apache-2.0
//
// Text from files, folders and command lines, made safe for where it is shown.
// Pure functions, safe from every thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace thimble {

// For a terminal: each control character and each byte that is not UTF-8
// becomes
// '?'. Escape sequences begin with a control character, and a new line is one.
std::string Printable(std::string_view text);

// A JSON string with its quotes. What is not UTF-8 becomes U+FFFD.
std::string JsonText(std::string_view text);

// A JSON number from which a float can be read back to the bit. What is not
// finite becomes null, since JSON has no form for it.
std::string JsonNumber(double number);

// "1 image", "2 images".
std::string Counted(int64_t count, std::string_view thing);

}  // namespace thimble
