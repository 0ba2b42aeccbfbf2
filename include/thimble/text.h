// SPDX-License-Identifier: Apache-2.0
//
// Text that comes from files, folders and command lines, made fit for where it
// is shown. Pure functions, safe from every thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace thimble {

// For a terminal: every control character (escape sequences begin with one, and
// a new line is one) and every byte that is not UTF-8 as '?'.
std::string Printable(std::string_view text);

// A JSON string with its quotes. What is not UTF-8 becomes U+FFFD.
std::string JsonText(std::string_view text);

// A JSON number that gives a float back to the bit; null where it is not
// finite, for which JSON has no form.
std::string JsonNumber(double number);

// "1 image", "2 images".
std::string Counted(int64_t count, std::string_view thing);

}  // namespace thimble
