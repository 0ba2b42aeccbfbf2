// SPDX-License-Identifier: Apache-2.0
//
// Downloads by a program that the system has, curl or wget, in a process of its
// own: no HTTP or TLS library is linked, so none is in the memory of a training
// run, and proxies and certificates are the system's.
//
// Functions are safe from every thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/files.h"
#include "thimble/status.h"

namespace thimble {

// Whether `text` is meant as an address: it has a scheme, as in https://.
bool IsAddress(const std::string& text);

// Opens `path` for downloading to it, and makes it if it is not there. While it
// is open, other processes are refused.
Result<FileDescriptor> OpenForDownload(const std::string& path);

// Brings all of `url` (http or https) to `file`, going on from what is there.
// If the server cannot go on, or there is nothing more of it, starts anew.
// `progress` is told the file's size a few times per second, if it is set. On
// failure what has arrived stays. What is longer than `max_bytes` is a failure
// too: the download is ended at that size, and the file is as before.
Status Download(const std::string& url, const FileDescriptor& file,
                uint64_t max_bytes,
                const std::function<void(uint64_t)>& progress);

}  // namespace thimble
