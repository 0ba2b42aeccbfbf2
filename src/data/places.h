// SPDX-License-Identifier: Apache-2.0
//
// What is at a path, how much fits there, and where files are cached. A path
// that cannot be looked at (no permission, a loop of links, a broken disk) is
// an error with the system's reason, never taken for an empty one. Functions
// are safe from every thread.
#pragma once

#include <cstdint>
#include <string>

#include "thimble/status.h"

namespace thimble {

enum class PathKind { kNothing, kFile, kFolder, kOther };

// Links are followed; one that leads nowhere is kNothing.
Result<PathKind> KindOf(const std::string& path);

// Whether there is a regular file.
Result<bool> HasFile(const std::string& path);

// An error where the file system of `folder` has no room for a file of `bytes`.
// One that cannot tell is believed to have it.
Status CheckRoom(const std::string& folder, uint64_t bytes);

// $XDG_CACHE_HOME/thimble, else $HOME/.cache/thimble; may not exist yet. An
// error when neither variable is set: the user database is not asked, because
// that does not work in a static binary.
Result<std::string> UserCacheDir();

}  // namespace thimble
