// SPDX-License-Identifier: Apache-2.0
//
// What bench_kernels is asked for on its command line, and which cases that
// leaves.
#pragma once

#include <string>
#include <vector>

#include "kernels/cases.h"
#include "thimble/dtype.h"

namespace thimble::bench {

struct Options {
  int threads = 1;
  bool quick = false;
  DType dtype = DType::kF32;      // of tensors; or bf16
  std::string only;               // a regular expression; empty: all
  std::vector<std::string> rest;  // for Google Benchmark
};

// What is wrong with the arguments; empty where they are well.
std::string Parse(int argc, char** argv, Options& options);

// Those whose name matches, of which a quick run takes the smallest of each
// family and pass.
std::vector<Case> Chosen(const std::vector<Case>& cases,
                         const Options& options);

}  // namespace thimble::bench
