// SPDX-License-Identifier: Apache-2.0
//
// Our side of a case: tensors and scratch as a plan would place them, and the
// call of the kernel's contract. Made and filled before the clock starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/workspace.h"
#include "kernels/cases.h"
#include "kernels/context.h"
#include "kernels/tensor.h"

namespace thimble::bench {

class OurSide final : public Side {
 public:
  using Body = std::function<void(const kernels::KernelContext&)>;

  // The pool must outlive it.
  explicit OurSide(ThreadPool* pool, const Workspace& workspace = {}) {
    context_.pool = pool;
    context_.workspace = workspace;
    context_.scratch = static_cast<std::byte*>(
        Allocate(TotalBytes(workspace, pool->threads())));
  }

  // A tensor with these values, or with zeros, for as long as the side lives.
  template <typename T>
  T* Put(const std::vector<T>& values) {
    void* data = Allocate(values.size() * sizeof(T));
    std::memcpy(data, values.data(), values.size() * sizeof(T));
    return static_cast<T*>(data);
  }
  template <typename T = float>
  T* PutZeros(int64_t n) {
    return Put(std::vector<T>(static_cast<size_t>(n)));
  }

  // What a run calls, and the n values that it makes.
  void Set(Body body, const float* result, int64_t n) {
    body_ = std::move(body);
    result_ = [result, n] { return std::vector<float>(result, result + n); };
  }
  void Set(Body body, std::function<std::vector<float>()> result) {
    body_ = std::move(body);
    result_ = std::move(result);
  }

  void Run() override { body_(context_); }
  std::vector<float> Result() const override { return result_(); }

 private:
  void* Allocate(size_t bytes) {
    // Never nothing: an empty tensor is still there.
    const size_t size = RoundUpToAlignment(bytes) + kAlignment;
    memory_.emplace_back(std::aligned_alloc(kAlignment, size), &std::free);
    return memory_.back().get();
  }

  kernels::KernelContext context_;
  std::vector<std::unique_ptr<void, decltype(&std::free)>> memory_;
  Body body_;
  std::function<std::vector<float>()> result_;
};

// Our side of a case, of which `fill` puts the tensors and sets the body.
inline SideMaker Ours(ThreadPool* pool, std::function<void(OurSide&)> fill,
                      const Workspace& workspace = {}) {
  return {kOurs, [pool, workspace, fill = std::move(fill)] {
            auto side = std::make_unique<OurSide>(pool, workspace);
            fill(*side);
            return side;
          }};
}

}  // namespace thimble::bench
