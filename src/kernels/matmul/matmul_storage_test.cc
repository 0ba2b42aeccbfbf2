// SPDX-License-Identifier: Apache-2.0
//
// The linear map and its gradients of tensors that are stored in 16 bits, alone
// and mixed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <vector>

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/reference.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::ForEachTarget;
using testing::StoredTensor;
using testing::SumErrorBound;
using testing::TestContext;

constexpr DType kF32 = DType::kF32, kF16 = DType::kF16, kBF16 = DType::kBF16;

struct StoredCase {
  LinearShape shape;
  int64_t rows;
};

// Around the widths of vectors, panels and register tiles of every target, past
// the depth of a panel (256), the rows of a block (256) and both widths of it
// (32 and 64 columns, from 128 on) in each of the three dimensions.
const StoredCase kStoredCases[] = {
    {{1, 1}, 1},     {{2, 3}, 1},     {{7, 5}, 6},       {{16, 16}, 12},
    {{17, 31}, 9},   {{33, 33}, 17},  {{10, 64}, 3},     {{257, 5}, 3},
    {{5, 257}, 4},   {{9, 5}, 259},   {{300, 140}, 13},  {{140, 300}, 13},
    {{7, 130}, 530}, {{520, 9}, 270}, {{130, 258}, 260}, {{258, 130}, 260},
};

// Each type alone, and each tensor in a type of its own.
const LinearStorage kStorages[] = {
    {kF16, kF16, kF16},  {kBF16, kBF16, kBF16}, {kBF16, kF16, kF32},
    {kF16, kF32, kBF16}, {kF32, kBF16, kF16},   {kF32, kF32, kBF16},
    {kF32, kF16, kF32},  {kF16, kBF16, kF16},   {kF32, kF32, kF32},
};

// One of the three kernels: its inputs a and b, and its sums.
struct LinearKernel {
  const char* name;
  void (*run)(const LinearShape&, int64_t, const ConstTensor&,
              const ConstTensor&, const LinearTarget&, const KernelContext&);
  Workspace (*workspace)(const LinearShape&, const LinearStorage&);
  void (*reference)(const LinearShape&, int64_t, const double*, const double*,
                    double*);
  struct Sizes {
    int64_t a, b, to, terms;
  };
  Sizes (*sizes)(int64_t rows, int64_t in, int64_t out);
};
using Sizes = LinearKernel::Sizes;

const LinearKernel kKernels[] = {
    {"forward", LinearForward, LinearForwardWorkspace,
     reference::LinearForward<double>,
     [](int64_t rows, int64_t in, int64_t out) {
       return Sizes{rows * in, out * in, rows * out, in};
     }},
    {"grad input", LinearGradInput, LinearGradInputWorkspace,
     reference::LinearGradInput<double>,
     [](int64_t rows, int64_t in, int64_t out) {
       return Sizes{rows * out, out * in, rows * in, out};
     }},
    {"grad weight", LinearGradWeight, LinearGradWeightWorkspace,
     reference::LinearGradWeight<double>,
     [](int64_t rows, int64_t in, int64_t out) {
       return Sizes{rows * in, rows * out, out * in, rows};
     }},
};

// Inputs of a call, an addend, and what the sums are.
struct StoredCall {
  StoredCall(const LinearKernel& of, const StoredCase& call,
             const LinearStorage& types)
      : kernel(of),
        c(call),
        storage(types),
        sizes(of.sizes(c.rows, c.shape.in, c.shape.out)),
        a(types.a, static_cast<size_t>(sizes.a), 1),
        b(types.b, static_cast<size_t>(sizes.b), 2),
        addend(types.to, static_cast<size_t>(sizes.to), 3),
        want(addend.size()),
        magnitudes(addend.size()) {
    kernel.reference(c.shape, c.rows, a.Wide().data(), b.Wide().data(),
                     want.data());
    kernel.reference(c.shape, c.rows, Magnitudes(a).data(),
                     Magnitudes(b).data(), magnitudes.data());
  }
  static std::vector<double> Magnitudes(StoredTensor& tensor) {
    std::vector<double> values = tensor.Wide();
    for (double& value : values) value = std::abs(value);
    return values;
  }

  void Run(const LinearTarget& to, const KernelContext& context) {
    kernel.run(c.shape, c.rows, a.tensor(), b.tensor(), to, context);
  }
  Workspace workspace() const { return kernel.workspace(c.shape, storage); }

  // The error of f32 sums, and one rounding to the type of the target.
  void Expect(StoredTensor& got, bool with_addend) {
    for (size_t i = 0; i < want.size(); ++i) {
      const double old = with_addend ? addend.Get(i) : 0.0;
      const double sum = want[i] + old;
      const double bound = SumErrorBound(sizes.terms + (with_addend ? 1 : 0),
                                         magnitudes[i] + std::abs(old));
      const double rounding =
          storage.to == kF32 ? 0.0 : got.RoundingBound(std::abs(sum) + bound);
      ASSERT_NEAR(got.Get(i), sum, bound + rounding) << "element " << i;
    }
  }

  const LinearKernel& kernel;
  StoredCase c;
  LinearStorage storage;
  Sizes sizes;
  StoredTensor a, b, addend;
  std::vector<double> want, magnitudes;
};

// Small cases in all storages; large ones, of which the values take long to
// make, in one type alone and in one mixture, another for each.
bool IsTaken(size_t of_case, size_t of_storage) {
  const StoredCase& c = kStoredCases[of_case];
  const int64_t in = c.shape.in, out = c.shape.out;
  if (c.rows * in + c.rows * out + in * out < 4000) return true;
  return of_storage == of_case % 2 ||
         of_storage == 2 + of_case % (std::size(kStorages) - 2);
}

template <typename F>
void ForEachCall(const F& body) {
  for (const LinearKernel& kernel : kKernels) {
    for (size_t i = 0; i < std::size(kStoredCases); ++i) {
      for (size_t s = 0; s < std::size(kStorages); ++s) {
        if (!IsTaken(i, s)) continue;
        const StoredCase& c = kStoredCases[i];
        const LinearStorage& storage = kStorages[s];
        SCOPED_TRACE(::testing::Message()
                     << kernel.name << " in=" << c.shape.in
                     << " out=" << c.shape.out << " rows=" << c.rows << " "
                     << DTypeName(storage.a) << " " << DTypeName(storage.b)
                     << " -> " << DTypeName(storage.to));
        StoredCall call(kernel, c, storage);
        body(call);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

void CheckThreadCounts(StoredCall& call) {
  ForEachTarget([&] {
    std::vector<uint8_t> first;
    for (int threads : {1, 2, 3}) {
      const TestContext context(threads, call.workspace());
      StoredTensor got(call.storage.to, call.want.size());
      call.Run({got.tensor()}, *context);
      if (threads == 1) {
        first = got.Bytes();
        call.Expect(got, /*with_addend=*/false);
      }
      ASSERT_EQ(got.Bytes(), first) << "threads=" << threads;
    }
  });
}

void CheckAddend(StoredCall& call) {
  ForEachTarget([&] {
    const TestContext context(2, call.workspace());
    StoredTensor apart(call.storage.to, call.want.size());
    call.Run({.to = apart.tensor(), .addend = call.addend.tensor()}, *context);
    call.Expect(apart, /*with_addend=*/true);
    StoredTensor in_place(call.storage.to, call.want.size());
    std::ranges::copy(call.addend.Bytes(),
                      static_cast<uint8_t*>(in_place.data()));
    call.Run({.to = in_place.tensor(), .addend = in_place.tensor()}, *context);
    ASSERT_EQ(in_place.Bytes(), apart.Bytes());
  });
}

// The same values as f32.
void CopyAsF32(StoredTensor& from, StoredTensor& to) {
  for (size_t i = 0; i < from.size(); ++i) {
    to.Set(i, static_cast<float>(from.Get(i)));
  }
}

// They give the same sums: the rounding of these is exactly what a narrow
// target holds.
void CheckAgainstF32(StoredCall& call) {
  const DType to = call.storage.to;
  const auto n = call.want.size();
  StoredTensor a(kF32, call.a.size()), b(kF32, call.b.size());
  StoredTensor addend(kF32, n);
  CopyAsF32(call.a, a);
  CopyAsF32(call.b, b);
  CopyAsF32(call.addend, addend);
  const auto rounded = [to](double value) {
    if (to == kF32) return value;
    return reference::Rounded(
        to == kF16 ? reference::kF16Format : reference::kBF16Format, value);
  };
  ForEachTarget([&] {
    for (const bool with_addend : {false, true}) {
      const TestContext wide(2, call.kernel.workspace(call.c.shape, {}));
      const TestContext context(2, call.workspace());
      StoredTensor sums(kF32, n), got(to, n);
      LinearTarget of_f32 = {sums.tensor()}, of_stored = {got.tensor()};
      if (with_addend) {
        of_f32.addend = addend.tensor();
        of_stored.addend = call.addend.tensor();
      }
      call.kernel.run(call.c.shape, call.c.rows, a.tensor(), b.tensor(), of_f32,
                      *wide);
      call.Run(of_stored, *context);
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(got.Get(i), rounded(sums.Get(i))) << "element " << i;
      }
    }
  });
}

TEST(MatmulStorage, SumsMatchReferenceAndF32AndAreRoundedOnce) {
  ForEachCall([](StoredCall& call) {
    CheckThreadCounts(call);
    CheckAddend(call);
    CheckAgainstF32(call);
  });
}

TEST(MatmulStorage, NoRowsLeaveZerosOrTheAddendAsGradient) {
  const LinearShape shape = {20, 30};
  for (DType type : {kF16, kBF16}) {
    const TestContext context(
        2, LinearGradWeightWorkspace(shape, {type, type, type}));
    StoredTensor none(type, 0), got(type, 600, 1), addend(type, 600, 2);
    LinearGradWeight(shape, 0, none.tensor(), none.tensor(), {got.tensor()},
                     *context);
    for (double value : got.Wide()) ASSERT_EQ(value, 0.0);
    LinearGradWeight(shape, 0, none.tensor(), none.tensor(),
                     {.to = got.tensor(), .addend = addend.tensor()}, *context);
    ASSERT_EQ(got.Bytes(), addend.Bytes());
  }
}

TEST(MatmulStorage, WorkspaceIsAtMost128KiBAndThatOfF32OnePanel) {
  for (const int64_t in : {1, 16, 17, 40, 128, 256, 257, 5000}) {
    for (const int64_t out : {1, 16, 17, 40, 128, 256, 257, 5000}) {
      for (const LinearKernel& kernel : kKernels) {
        const Workspace f32 = kernel.workspace({in, out}, {});
        EXPECT_LE(f32.per_thread, 32u << 10);
        EXPECT_EQ(f32.shared, 0u);
        for (const LinearStorage& storage : kStorages) {
          const Workspace got = kernel.workspace({in, out}, storage);
          EXPECT_LE(got.per_thread, 128u << 10);
          EXPECT_EQ(got.shared, 0u);
        }
      }
    }
  }
  EXPECT_EQ(LinearForwardWorkspace({128, 10}).per_thread, 128u * 16 * 4);
  EXPECT_EQ(LinearGradInputWorkspace({128, 10}).per_thread, 10u * 32 * 4);
  EXPECT_EQ(LinearGradWeightWorkspace({128, 10}).per_thread, 256u * 32 * 4);
}

}  // namespace
}  // namespace thimble::kernels
