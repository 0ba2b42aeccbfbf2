// SPDX-License-Identifier: Apache-2.0
//
// Text as HTML and SVG want it.
#pragma once

#include <string>
#include <string_view>

namespace thimble::report {

// For text and for attributes in double quotes. Control characters may stand in
// neither.
std::string Escaped(std::string_view text);

}  // namespace thimble::report
