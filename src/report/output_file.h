// SPDX-License-Identifier: Apache-2.0
//
// Files that a report is written to, at a name that the user chose.
#pragma once

#include <string>

#include "base/files.h"
#include "thimble/status.h"

namespace thimble::report {

// As AtomicFileWriter::Create. What is there and is no regular file (a link, a
// pipe, a device, a folder) is refused: the new file would take its place.
Result<AtomicFileWriter> CreateOutputFile(const std::string& path);

}  // namespace thimble::report
