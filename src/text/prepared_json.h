// SPDX-License-Identifier: Apache-2.0
//
// prepared.json: what a prepared folder was made of, for whoever looks into it.
// No program of ours reads it. A pure function.
#pragma once

#include "text/new_folder.h"
#include "thimble/prepare_text.h"
#include "thimble/status.h"

namespace thimble::text {

// Of a folder that has all other files.
Status WriteFacts(const PrepareOptions& options, const PrepareSummary& summary,
                  const NewFolder& folder);

}  // namespace thimble::text
