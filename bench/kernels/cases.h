// SPDX-License-Identifier: Apache-2.0
//
// What bench_kernels times: cases (a kernel on a shape), each with our side,
// those of peers that do the same work, and the work, from which a bound
// follows. One source of this folder makes the cases of one kernel family from
// files of bench/shapes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "thimble/dtype.h"

namespace thimble::bench {

// What no implementation can do without.
struct Work {
  double flops = 0;
  double dots = 0;   // FLOPs that dot products of bf16 can do
  double exps = 0;   // values of exp, or of a sigmoid, which is made of one
  double tanhs = 0;  // values of tanh
  double read = 0;   // bytes
  double again = 0;  // bytes that are read a second time, while they are still
                     // in the first cache
  double written = 0;  // bytes
  double tensors = 0;  // bytes of all of them; decides in which cache they are
};

// One implementation, with its tensors. May throw std::exception where it
// cannot be made.
class Side {
 public:
  virtual ~Side() = default;
  virtual void Run() = 0;
  // Of all Runs so far, planar, to compare the sides with each other after one.
  virtual std::vector<float> Result() const = 0;
  // What a peer calls the kernel that it chose.
  virtual std::string Implementation() const { return ""; }
};

// The name of our own side; all others are peers.
inline constexpr char kOurs[] = "ours";

struct SideMaker {
  std::string name;
  std::function<std::unique_ptr<Side>()> make;
};

struct Case {
  std::string family;   // "matmul"
  std::string pass;     // "forward"
  std::string network;  // "mlp"
  std::string shape;    // "100x784->256"
  Work work;
  std::vector<SideMaker> sides;  // ours first
  // What the first Run of our side must give, by the family's scalar
  // definition. Needed where there is no peer to compare with.
  std::function<std::vector<float>()> definition = nullptr;
  // How far results may differ, relative to their root mean square.
  double tolerance = 1e-3;

  // "matmul forward mlp 100x784->256"
  std::string Name() const {
    return family + " " + pass + " " + network + " " + shape;
  }
};

// One line of a shapes file: a network and its numbers.
struct ShapeLine {
  std::string network;
  std::vector<int64_t> numbers;
};

// The lines of bench/shapes/<name>.txt, each with that many numbers. Ends the
// process, with a message, where the file is not like that.
std::vector<ShapeLine> ReadShapes(const std::string& name, size_t numbers);

// `n` multiples of 1/128 in [-1, 1): the same for all sides of a case.
std::vector<float> Values(int64_t n, uint32_t seed);

// For definitions, which are computed in f64.
std::vector<double> WideValues(int64_t n, uint32_t seed);
std::vector<float> Rounded(const std::vector<double>& values);

std::vector<Case> ElementwiseCases(ThreadPool* pool);
std::vector<Case> ChannelCases(ThreadPool* pool);  // elementwise, by channels
std::vector<Case> LstmCases(ThreadPool* pool);
std::vector<Case> MatmulCases(ThreadPool* pool, DType dtype);
std::vector<Case> NormCases(ThreadPool* pool);
std::vector<Case> PoolCases(ThreadPool* pool);
std::vector<Case> ShortcutCases(ThreadPool* pool);
std::vector<Case> SoftmaxCases(ThreadPool* pool);
std::vector<Case> UpdateCases(ThreadPool* pool);

}  // namespace thimble::bench
