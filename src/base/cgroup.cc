// SPDX-License-Identifier: Apache-2.0
#include "base/cgroup.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/files.h"

namespace thimble {
namespace {

// Without empty parts at the end.
std::vector<std::string_view> SplitAt(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

bool Lists(std::string_view comma_separated, std::string_view word) {
  return std::ranges::count(SplitAt(comma_separated, ','), word) > 0;
}

// mountinfo writes blanks, line ends and backslashes as \ and three octal
// digits.
std::string Unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 +
                                 (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// One hierarchy as it is mounted: `root` is the cgroup that is seen at `point`.
struct Mount {
  std::string root, point;
};

// "36 35 0:29 / /sys/fs/cgroup/cpu rw … - cgroup cgroup rw,cpu". An empty
// controller asks for version 2. The last mount covers those before it.
Mount FindMount(std::string_view mountinfo, std::string_view controller) {
  Mount found;
  for (std::string_view line : SplitAt(mountinfo, '\n')) {
    const auto words = SplitAt(line, ' ');
    const auto dash = std::ranges::find(words, "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    const bool fits = controller.empty()
                          ? dash[1] == "cgroup2"
                          : dash[1] == "cgroup" && Lists(dash[3], controller);
    if (fits) found = {Unescape(words[3]), Unescape(words[4])};
  }
  return found;
}

// The folder of `path` and those above it, down to the mount's own. A path
// outside of what is mounted leaves that alone: a container's own cgroup is
// mounted there.
void AppendFolders(const Mount& mount, std::string_view path,
                   std::vector<std::string>* folders) {
  std::string_view root = mount.root;
  if (root == "/") root = {};
  std::string_view below;
  if (path.starts_with(root) && path.substr(root.size()).starts_with('/') &&
      path.find("/..") == path.npos) {
    below = path.substr(root.size());
  }
  while (!below.empty()) {
    if (below != "/") folders->push_back(mount.point + std::string(below));
    below = below.substr(0, below.rfind('/'));
  }
  folders->push_back(mount.point);
}

}  // namespace

std::vector<std::string> FindCgroups(std::string_view cgroup,
                                     std::string_view mountinfo,
                                     std::string_view controller) {
  std::vector<std::string> folders;
  // "4:cpu,cpuacct:/path", or "0::/path" in version 2.
  for (std::string_view line : SplitAt(cgroup, '\n')) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const bool is_second_version = controllers.empty();
    if (!is_second_version && !Lists(controllers, controller)) continue;
    const Mount mount =
        FindMount(mountinfo, is_second_version ? "" : controller);
    if (mount.point.empty()) continue;
    AppendFolders(mount, line.substr(second + 1), &folders);
  }
  return folders;
}

std::vector<std::string> OwnCgroups(std::string_view controller,
                                    const std::string& root) {
  std::vector<std::string> folders =
      FindCgroups(ReadSystemFile(root + "/proc/self/cgroup"),
                  ReadSystemFile(root + "/proc/self/mountinfo"), controller);
  for (std::string& folder : folders) folder.insert(0, root);
  return folders;
}

std::string ReadSystemFile(const std::string& path) {
  std::string text;
  const auto file = OpenForReading(path);
  if (!file.ok()) return text;
  std::array<char, 1024> piece;
  while (true) {
    const auto got = ReadSomeAt(*file, std::as_writable_bytes(std::span(piece)),
                                text.size());
    if (!got.ok() || *got == 0) return text;
    text.append(piece.data(), *got);
  }
}

}  // namespace thimble
