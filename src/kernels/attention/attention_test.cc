// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <complex>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/attention/reference.h"
#include "kernels/bounded.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::Bounded;
using testing::ExactOnes;
using testing::ForEachFloatType;
using testing::ForEachTarget;
using testing::GuardedBuffer;
using testing::StoredTensor;
using testing::TestContext;

struct Case {
  AttentionShape shape;
  std::vector<int32_t> query_ends, key_ends;
  float rate = 0.0f;

  Sentences queries() const {
    return {static_cast<int64_t>(query_ends.size()), query_ends.data()};
  }
  Sentences keys() const {
    return {static_cast<int64_t>(key_ends.size()), key_ends.data()};
  }
  size_t of_queries() const {
    return static_cast<size_t>(queries().rows() * shape.features);
  }
  size_t of_keys() const {
    return static_cast<size_t>(keys().rows() * shape.features);
  }
  DropoutMask mask(int64_t first = 5) const {
    return {.seed = 7, .step = 3, .stream = 2, .first = first, .rate = rate};
  }
  Workspace forward() const { return AttentionWorkspace(keys().rows()); }
  Workspace backward() const {
    return AttentionGradWorkspace(shape, queries().rows(), keys().rows());
  }
  std::string Name() const {
    return std::to_string(shape.features) + " features, " +
           std::to_string(shape.heads) + " heads, " +
           std::to_string(queries().rows()) + " queries, " +
           std::to_string(keys().rows()) + " keys, rate " +
           std::to_string(rate) + (shape.causal ? ", causal" : "");
  }
};

// Sentences of one token, of none, and longer than a block of queries; of other
// lengths on both sides; heads around the width of vectors.
std::vector<Case> Cases() {
  return {
      {{.features = 1, .heads = 1}, {1}, {1}},
      {{.features = 6, .heads = 2}, {3, 4, 9}, {1, 8, 10}, 0.25f},
      {{.features = 15, .heads = 1}, {3, 3, 20}, {4, 9, 9}},
      {{.features = 68, .heads = 4}, {1, 30, 31, 50}, {70, 71, 90, 91}, 0.1f},
      {{.features = 33, .heads = 1}, {25}, {26}},
      {{.features = 8, .heads = 2}, {70, 71}, {150, 151}, 0.1f},
      {{.features = 19, .heads = 1}, {140}, {130}, 0.5f},
      {{.features = 34, .heads = 2, .causal = true}, {1, 6, 30}, {1, 6, 30}},
      {{.features = 16, .heads = 1, .causal = true}, {4, 14}, {9, 12}, 0.1f},
      {{.features = 9, .heads = 1, .causal = true}, {1, 151}, {1, 151}, 0.1f}};
}

// What is computed, by its name.
enum Out : uint8_t { kY, kGradQ, kGradK, kGradV };

// All of it by the definition.
template <typename T>
std::vector<std::vector<T>> Define(const Case& c, const std::vector<T>& q,
                                   const std::vector<T>& k,
                                   const std::vector<T>& v,
                                   const std::vector<T>& grad_y) {
  std::vector<std::vector<T>> out;
  for (size_t n : {q.size(), q.size(), k.size(), v.size()}) {
    out.emplace_back(n);
  }
  reference::Attention(c.shape, c.queries(), c.keys(), c.mask(), q.data(),
                       k.data(), v.data(), out[kY].data());
  reference::AttentionGrad(c.shape, c.queries(), c.keys(), c.mask(), q.data(),
                           k.data(), v.data(), grad_y.data(),
                           out[kGradQ].data(), out[kGradK].data(),
                           out[kGradV].data());
  return out;
}

// Tensors of one case, each of a type.
struct Data {
  Data(const Case& c, DType of_q, DType of_k, DType of_v, DType of_grad)
      : q(of_q, c.of_queries(), 1),
        k(of_k, c.of_keys(), 2),
        v(of_v, c.of_keys(), 3),
        grad_y(of_grad, c.of_queries(), 4) {
    for (size_t i = 0; i < q.size(); ++i) {
      q.Set(i, 3 * testing::TestValue(1, i));
    }
  }
  Data(const Case& c, DType all) : Data(c, all, all, all, all) {}
  StoredTensor q, k, v, grad_y;
};

struct Results {
  Results(const Case& c, DType dtype)
      : all{{dtype, c.of_queries(), 9},
            {dtype, c.of_queries(), 9},
            {dtype, c.of_keys(), 9},
            {dtype, c.of_keys(), 9}} {}
  StoredTensor all[4];
};

void RunAll(const Case& c, Data& data, Results& to, int threads) {
  {
    TestContext context(threads, c.forward());
    Attention(c.shape, c.queries(), c.keys(), c.mask(), data.q.tensor(),
              data.k.tensor(), data.v.tensor(), to.all[kY].tensor(), *context);
  }
  TestContext context(threads, c.backward());
  AttentionGrad(c.shape, c.queries(), c.keys(), c.mask(), data.q.tensor(),
                data.k.tensor(), data.v.tensor(), data.grad_y.tensor(),
                {to.all[kGradQ].tensor(), to.all[kGradK].tensor(),
                 to.all[kGradV].tensor()},
                *context);
}

// Every target and type, with tensors that end where an unreadable page begins.
TEST(Attention, MatchesReference) {
  ForEachFloatType([](DType dtype) {
    for (const Case& c : Cases()) {
      SCOPED_TRACE(c.Name());
      Data data(c, dtype);
      const auto want =
          Define(c, ExactOnes(data.q.Wide()), ExactOnes(data.k.Wide()),
                 ExactOnes(data.v.Wide()), ExactOnes(data.grad_y.Wide()));
      std::vector<uint8_t> first[4];
      for (int threads : {1, 2, 3}) {
        Results results(c, dtype);
        RunAll(c, data, results, threads);
        for (int o = 0; o < 4; ++o) {
          StoredTensor& got = results.all[o];
          if (threads == 1) first[o] = got.Bytes();
          ASSERT_EQ(got.Bytes(), first[o]) << threads << " threads, " << o;
          for (size_t i = 0; i < got.size(); ++i) {
            const double value = want[o][i].value();
            const double bound = want[o][i].Bound();
            ASSERT_LE(std::abs(got.Get(i) - value),
                      bound + got.RoundingBound(std::abs(value) + bound))
                << "output " << o << " at " << i;
          }
        }
      }
    }
  });
}

// Inputs and outputs of types of their own.
TEST(Attention, TypesMayDiffer) {
  const Case c = Cases()[3];
  ForEachTarget([&] {
    Data mixed(c, DType::kF16, DType::kBF16, DType::kF32, DType::kBF16);
    Data f32(c, DType::kF32);
    const auto widen = [](StoredTensor& from, StoredTensor& to) {
      for (size_t i = 0; i < from.size(); ++i) {
        to.Set(i, static_cast<float>(from.Get(i)));
      }
    };
    widen(mixed.q, f32.q);
    widen(mixed.k, f32.k);
    widen(mixed.v, f32.v);
    widen(mixed.grad_y, f32.grad_y);
    Results want(c, DType::kF32), got(c, DType::kF16);
    RunAll(c, f32, want, 1);
    RunAll(c, mixed, got, 1);
    for (int o = 0; o < 4; ++o) {
      for (size_t i = 0; i < got.all[o].size(); ++i) {
        ASSERT_EQ(got.all[o].Get(i),
                  got.all[o].Rounded(static_cast<float>(want.all[o].Get(i))))
            << o;
      }
    }
  });
}

// Wherever rows begin, and where outputs may lie on inputs.
TEST(Attention, StaysInsideItsTensorsAndMayOverwrite) {
  ForEachTarget([] {
    for (const Case& c : Cases()) {
      SCOPED_TRACE(c.Name());
      Data data(c, DType::kF32);
      Results want(c, DType::kF32);
      RunAll(c, data, want, 2);
      for (size_t misalign : {0, 1, 3}) {
        GuardedBuffer<float> q(c.of_queries(), misalign),
            k(c.of_keys(), misalign), v(c.of_keys(), misalign),
            grad_y(c.of_queries(), misalign), grad_q(c.of_queries(), misalign);
        const auto copy = [](StoredTensor& from, GuardedBuffer<float>& to) {
          std::memcpy(to.data(), from.data(), 4 * to.size());
        };
        copy(data.q, q);
        copy(data.k, k);
        copy(data.v, v);
        copy(data.grad_y, grad_y);
        const auto check = [&](const char* name, GuardedBuffer<float>& got,
                               Out out) {
          got.CheckGuards(name);
          ASSERT_EQ(
              std::memcmp(got.data(), want.all[out].data(), 4 * got.size()), 0)
              << name;
        };
        TestContext forward(2, c.forward());
        Attention(c.shape, c.queries(), c.keys(), c.mask(), F32(q.data()),
                  F32(k.data()), F32(v.data()), F32(q.data()), *forward);
        check("y on q", q, kY);
        copy(data.q, q);
        TestContext backward(2, c.backward());
        AttentionGrad(c.shape, c.queries(), c.keys(), c.mask(), F32(q.data()),
                      F32(k.data()), F32(v.data()), F32(grad_y.data()),
                      {F32(grad_q.data()), F32(k.data()), F32(v.data())},
                      *backward);
        check("grad_q", grad_q, kGradQ);
        check("grad_k on k", k, kGradK);
        check("grad_v on v", v, kGradV);
      }
    }
  });
}

// To the bit, with the masks of their rows.
TEST(Attention, BatchEqualsItsSentencesOneByOne) {
  ForEachFloatType([](DType dtype) {
    for (const Case& c : Cases()) {
      SCOPED_TRACE(c.Name());
      Data data(c, dtype);
      Results whole(c, dtype), parts(c, dtype);
      RunAll(c, data, whole, 2);
      for (int64_t s = 0; s < c.queries().count; ++s) {
        const int64_t query = c.queries().begin(s), key = c.keys().begin(s);
        const auto queries = static_cast<int32_t>(c.queries().end(s) - query);
        const auto keys = static_cast<int32_t>(c.keys().end(s) - key);
        const int64_t f = c.shape.features;
        const auto part = [&](StoredTensor& t, int64_t row) {
          return t.tensor().From(row * f);
        };
        // As if the longest sentence were this one.
        TestContext forward(2, AttentionWorkspace(keys));
        Attention(c.shape, {1, &queries}, {1, &keys}, c.mask(5 + query),
                  part(data.q, query), part(data.k, key), part(data.v, key),
                  part(parts.all[kY], query), *forward);
        TestContext backward(2, AttentionGradWorkspace(c.shape, queries, keys));
        AttentionGrad(
            c.shape, {1, &queries}, {1, &keys}, c.mask(5 + query),
            part(data.q, query), part(data.k, key), part(data.v, key),
            part(data.grad_y, query),
            {part(parts.all[kGradQ], query), part(parts.all[kGradK], key),
             part(parts.all[kGradV], key)},
            *backward);
      }
      for (int o = 0; o < 4; ++o) {
        ASSERT_EQ(parts.all[o].Bytes(), whole.all[o].Bytes()) << o;
      }
    }
  });
}

// Σ weights · y by elements of q, k and v.
TEST(Attention, ReferenceGradientIsTheComplexStep) {
  using Complex = std::complex<double>;
  constexpr double kStep = 1e-100;
  for (const Case& c : Cases()) {
    if (c.queries().rows() * c.keys().rows() > 1000) continue;
    SCOPED_TRACE(c.Name());
    Data data(c, DType::kF32);
    const auto grad_y = data.grad_y.Wide();
    const auto want =
        Define(c, data.q.Wide(), data.k.Wide(), data.v.Wide(), grad_y);
    const auto complex = [](StoredTensor& t) {
      const auto wide = t.Wide();
      return std::vector<Complex>(wide.begin(), wide.end());
    };
    std::vector<Complex> in[] = {complex(data.q), complex(data.k),
                                 complex(data.v)};
    std::vector<Complex> y(c.of_queries());
    double bound = 0;
    for (double g : grad_y) bound += std::abs(g);
    // Logits reach 3 * width^1/2, and scale what is off in them.
    bound *= std::numeric_limits<double>::epsilon() *
             static_cast<double>(c.shape.features + c.keys().rows()) * 10;
    for (int k = 0; k < 3; ++k) {
      for (size_t i = 0; i < in[k].size(); i += 3) {
        Complex& x = in[k][i];
        x += Complex(0, kStep);
        reference::Attention(c.shape, c.queries(), c.keys(), c.mask(),
                             in[0].data(), in[1].data(), in[2].data(),
                             y.data());
        x = x.real();
        double slope = 0;
        for (size_t e = 0; e < y.size(); ++e) slope += grad_y[e] * y[e].imag();
        ASSERT_NEAR(slope / kStep, want[k + 1][i], bound) << k << " at " << i;
      }
    }
  }
}

// Nor, where it is causal, what comes later.
TEST(Attention, ReadsNoOtherSentence) {
  for (const bool causal : {false, true}) {
    const Case c = {{.features = 40, .heads = 2, .causal = causal},
                    {4, 9, 14},
                    {4, 9, 14},
                    0.1f};
    ForEachTarget([&] {
      Data data(c, DType::kF32);
      for (int64_t t : {3, 9, causal ? 8 : 10}) {
        for (int64_t i = 0; i < c.shape.features; ++i) {
          const auto at = static_cast<size_t>(t * c.shape.features + i);
          for (StoredTensor* x : {&data.q, &data.k, &data.v, &data.grad_y}) {
            x->Set(at, std::nanf(""));
          }
        }
      }
      Results results(c, DType::kF32);
      RunAll(c, data, results, 1);
      const int64_t end = causal ? 8 : 9;
      for (int o : {0, 1, 2, 3}) {
        if (causal && o > kGradQ) break;
        for (int64_t i = 4 * c.shape.features; i < end * c.shape.features;
             ++i) {
          ASSERT_TRUE(std::isfinite(results.all[o].Get(static_cast<size_t>(i))))
              << o;
        }
      }
    });
  }
}

TEST(Attention, ScratchIsAsDocumented) {
  const AttentionShape shape = {.features = 512, .heads = 4};
  EXPECT_EQ(AttentionWorkspace(1000).per_thread, 65536u);
  EXPECT_EQ(AttentionWorkspace(4096).per_thread, 65536u);
  EXPECT_EQ(AttentionWorkspace(4112).per_thread, 65536u + 16 * 16);
  EXPECT_EQ(AttentionGradWorkspace(shape, 1000, 1000).per_thread,
            73728u + 4032u + 12000u);
  EXPECT_EQ(AttentionGradWorkspace(shape, 1000, 4000).per_thread,
            128000u + 16000u + 12000u);
}

}  // namespace
}  // namespace thimble::kernels
