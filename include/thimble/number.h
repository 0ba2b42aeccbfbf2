// SPDX-License-Identifier: Apache-2.0
//
// Numbers as people type them: in options, in names of models and strategies,
// in schedules. They are decimal, and all of the text must be the number:
// "0100" is 100, and "0x10", "1'000", "+5", " 5", "inf" and "" are no numbers.
// Pure functions, safe from every thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace thimble {

// A whole number of one or more digits. None if the text is anything else, or
// the number is above 2^64 - 1.
std::optional<uint64_t> ParseWhole(std::string_view text);

// Digits with or without a point, then maybe an exponent: "3", "0.5", ".5",
// "5e-4". Rounds to the nearest T, which is float or double. None if the text
// is anything else, if the number is too large for a T, or if it is so small
// that it would become 0.
template <typename T>
std::optional<T> ParseDecimal(std::string_view text);

}  // namespace thimble
