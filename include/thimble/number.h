// SPDX-License-Identifier: Apache-2.0
//
// Numbers as people type them: in options, in names of models and strategies,
// in schedules. Decimal digits only, and all of the text: "0100" is 100, and
// "0x10", "1'000", "+5", " 5", "inf" and "" are no numbers. Pure functions,
// safe from every thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace thimble {

// One or more digits. None where the text is anything else, or past 2^64 - 1.
std::optional<uint64_t> ParseWhole(std::string_view text);

// Digits with or without a point, then maybe an exponent: "3", "0.5", ".5",
// "5e-4". To the nearest T; none where the text is anything else, or where that
// would be infinite, or 0 for what is not 0. For float and double.
template <typename T>
std::optional<T> ParseDecimal(std::string_view text);

}  // namespace thimble
