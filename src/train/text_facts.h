// SPDX-License-Identifier: Apache-2.0
//
// What a file of weights says of the text that its network was trained on.
#pragma once

namespace thimble::train {

// Metadata: TextData::meaning of the prepared text.
inline constexpr char kTextFact[] = "text_meaning";

}  // namespace thimble::train
