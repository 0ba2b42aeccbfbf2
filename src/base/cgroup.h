// SPDX-License-Identifier: Apache-2.0
//
// Control groups: where the kernel says what this process may take. Both
// versions of them, alone or side by side. Safe from every thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace thimble {

// Folders of the process's cgroup and of its parents as far as they can be
// seen, its own first. `cgroup` and `mountinfo` are the texts of those files in
// /proc/self. A version 1 hierarchy counts if it has `controller`; the version
// 2 hierarchy always counts, and has files of its own names.
std::vector<std::string> FindCgroups(std::string_view cgroup,
                                     std::string_view mountinfo,
                                     std::string_view controller);

// The same for this process. `root` stands in for /, and is part of the result.
std::vector<std::string> OwnCgroups(std::string_view controller,
                                    const std::string& root);

// All of a file of /proc or /sys; empty where there is none.
std::string ReadSystemFile(const std::string& path);

}  // namespace thimble
