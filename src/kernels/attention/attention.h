// SPDX-License-Identifier: Apache-2.0
//
// Attention of the tokens of one text to those of another one, or of its own,
// sentence by sentence and head by head:
//
//   y[t] = sum over s of dropout(p[t])[s] * v[s]
//   p[t] = softmax over s of q[t] . k[s] * width^-1/2
//
// with q, k, v and y of the head's `width` features; s are the rows of the
// sentence of the same number as t's. Causal: only those of which the place in
// the sentence is not past t's. Where there are none, y is 0. q and y are
// [queries, features], k and v [keys, features]; each tensor is f32, f16 or
// bf16 of its own. Arithmetic is f32, and a value is rounded once, to nearest
// even. Every element is made in an order that depends on the shape, the
// lengths of its two sentences and the SIMD target alone. Probabilities are in
// scratch for a block of queries at a time.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/context.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/sentences.h"
#include "kernels/tensor.h"

namespace thimble::kernels {

struct AttentionShape {
  int64_t features = 0;
  int64_t heads = 1;  // divides the features
  bool causal = false;

  int64_t width() const { return features / heads; }  // of a head
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(width())); }
};

// Which probabilities are kept, a function of seed, step, stream, the query's
// place in the step (mask.first is that of the first query), the head, and the
// key's place in its sentence. Not of how many keys there are, so that it does
// not depend on how a step is divided. Keys are in groups of 64, as elements
// are in kernels/random.h; group g of head h has the counters from
// 16 (g * heads + h) on, and the query's place is added to the upper half of
// the step. REQUIRES: steps and queries of a step are below 2^32.
struct AttentionCounters {
  uint64_t step;
  uint32_t first;
};
constexpr AttentionCounters AttentionCountersOf(const AttentionShape& shape,
                                                const DropoutMask& mask,
                                                int64_t query, int64_t head,
                                                int64_t group) {
  const auto place = static_cast<uint64_t>(mask.first + query);
  return {mask.step + (place << 32),
          static_cast<uint32_t>((group * shape.heads + head) *
                                static_cast<int64_t>(kDropoutBlocks))};
}

// `keys` is the most tokens that a sentence of keys may have; at most 64 KiB
// for each thread up to 4,096 of them, then 16 bytes for each key.
Workspace AttentionWorkspace(int64_t keys);

// In place on q.
void Attention(const AttentionShape& shape, const Sentences& queries,
               const Sentences& keys, const DropoutMask& mask, ConstTensor q,
               ConstTensor k, ConstTensor v, Tensor y,
               const KernelContext& context);

// For each thread 90,000 bytes for sentences of up to 1,000 tokens and heads of
// up to 128 features. Grows by 12 bytes for each query that a sentence may
// have, by 4 for each key (36 past 2,304 keys), and by 512 for each feature of
// a wider head.
Workspace AttentionGradWorkspace(const AttentionShape& shape, int64_t queries,
                                 int64_t keys);

struct AttentionGradients {
  Tensor q, k, v;
};

// All three, of q, k, v and the gradient of y; probabilities are computed
// again. In place: the gradient of k on k, and that of v on v, where neither is
// another argument too.
void AttentionGrad(const AttentionShape& shape, const Sentences& queries,
                   const Sentences& keys, const DropoutMask& mask,
                   ConstTensor q, ConstTensor k, ConstTensor v,
                   ConstTensor grad_y, const AttentionGradients& grads,
                   const KernelContext& context);

}  // namespace thimble::kernels
