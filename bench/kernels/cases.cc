// SPDX-License-Identifier: Apache-2.0
#include "kernels/cases.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace thimble::bench {

std::vector<ShapeLine> ReadShapes(const std::string& name, size_t numbers) {
  const std::string path =
      std::string(THIMBLE_SHAPES_DIR) + "/" + name + ".txt";
  std::ifstream file(path);
  std::vector<ShapeLine> lines;
  for (std::string text; std::getline(file, text);) {
    if (text.empty() || text[0] == '#') continue;
    std::istringstream words(text);
    ShapeLine line;
    words >> line.network;
    for (int64_t number = 0; words >> number;) line.numbers.push_back(number);
    if (!words.eof() || line.numbers.size() != numbers) {
      fmt::print(stderr, "{}: '{}' is no name with {} numbers behind it\n",
                 path, text, numbers);
      std::exit(1);
    }
    lines.push_back(line);
  }
  if (lines.empty()) {
    fmt::print(stderr, "{}: no shapes there\n", path);
    std::exit(1);
  }
  return lines;
}

std::vector<float> Values(int64_t n, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(n));
  uint32_t state = seed;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int>(state >> 24) - 128) / 128.0f;
  }
  return values;
}

std::vector<double> WideValues(int64_t n, uint32_t seed) {
  const std::vector<float> values = Values(n, seed);
  return {values.begin(), values.end()};
}

std::vector<float> Rounded(const std::vector<double>& values) {
  std::vector<float> rounded;
  rounded.reserve(values.size());
  for (const double value : values) {
    rounded.push_back(static_cast<float>(value));
  }
  return rounded;
}

}  // namespace thimble::bench
