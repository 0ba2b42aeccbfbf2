// SPDX-License-Identifier: Apache-2.0
#include "kernels/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <regex>
#include <string_view>

namespace thimble::bench {
namespace {

// The whole of the text is a number that can be so many threads.
bool IsThreads(std::string_view text, int& threads) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, threads);
  return error == std::errc() && stop == end && threads >= 1 &&
         threads <= ThreadPool::kMaxThreads;
}

bool IsRegex(const std::string& text) {
  try {
    const std::regex unused(text, std::regex::extended);
  } catch (const std::regex_error&) {
    return false;
  }
  return true;
}

bool IsType(std::string_view text, DType& dtype) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    if (text != DTypeName(type)) continue;
    dtype = type;
    return true;
  }
  return false;
}

}  // namespace

std::string Parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const bool takes_value =
        name == "--threads" || name == "--only" || name == "--dtype";
    if (takes_value && i + 1 == argc) return fmt::format("{}: no value", name);
    if (name == "--quick") {
      options.quick = true;
    } else if (name.starts_with("--benchmark_")) {
      options.rest.emplace_back(name);
    } else if (name == "--threads") {
      if (!IsThreads(argv[++i], options.threads)) {
        return fmt::format("--threads {}: not a number from 1 to {}", argv[i],
                           ThreadPool::kMaxThreads);
      }
    } else if (name == "--dtype") {
      if (!IsType(argv[++i], options.dtype)) {
        return fmt::format("--dtype {}: neither f32 nor bf16", argv[i]);
      }
    } else if (name == "--only") {
      options.only = argv[++i];
      if (!IsRegex(options.only)) {
        return fmt::format("--only {}: not a regular expression", argv[i]);
      }
    } else {
      return fmt::format("{}: no such option", name);
    }
  }
  return "";
}

std::vector<Case> Chosen(const std::vector<Case>& cases,
                         const Options& options) {
  const std::regex only(options.only, std::regex::extended);
  std::vector<Case> chosen;
  for (const Case& c : cases) {
    if (!options.only.empty() && !std::regex_search(c.Name(), only)) continue;
    const auto same = std::ranges::find_if(chosen, [&](const Case& other) {
      return c.family == other.family && c.pass == other.pass;
    });
    if (!options.quick || same == chosen.end()) {
      chosen.push_back(c);
    } else if (c.work.tensors < same->work.tensors) {
      *same = c;
    }
  }
  return chosen;
}

}  // namespace thimble::bench
