// SPDX-License-Identifier: Apache-2.0
//
// Rows of a weight w [vocabulary, features] by tokens, and the gradient of the
// weight. Values are [rows, features], a row for each token. Each tensor is
// stored as f32, f16 or bf16, whatever the others are; sums are f32, rounded
// once, to nearest even, when they are written. w may be sparse: then what is
// kept is all that is read, and its gradient is made of what is kept alone; the
// values are those of the dense weight, to the bit. A row belongs to one
// thread, and depends on its token and its place in its sentence alone.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/context.h"
#include "kernels/grad_sink/grad_sink.h"
#include "kernels/sentences.h"
#include "kernels/tensor.h"
#include "thimble/sparsity.h"

namespace thimble::kernels {

struct EmbeddingShape {
  int64_t vocabulary = 1;
  int64_t features = 1;
  // Of a weight that is sparse, what is kept as one; none where it is dense.
  std::optional<WeightBlock> blocks = std::nullopt;
};

// Rows of a sentence are at positions 2, 3, …
inline constexpr int64_t kFirstPosition = 2;

// y[r] = scale * w[tokens[r]] + position(r). Without sentences (null), no
// position is added. Else row r, at position p, has with h = features / 2
//   sin(p f(i)) at i, cos(p f(i)) at h + i,  f(i) = 10000^(-i / (h − 1)),
// within some units in the last place of 1, at any position.
// REQUIRES: tokens are in [0, vocabulary); the sentences hold all rows;
// features are even and at least 4 where positions are added.
Workspace EmbeddingWorkspace(const EmbeddingShape& shape);
void Embedding(const EmbeddingShape& shape, int64_t rows, float scale,
               const int32_t* tokens, const ConstTensor& w,
               const Sentences* sentences, const Tensor& y,
               const KernelContext& context);

// Where the gradient goes.
struct EmbeddingTarget {
  Tensor to;  // None with pieces
  // The sums are added to what is there; rows of tokens that do not occur are
  // neither read nor written.
  bool accumulate = false;
  // In place of both: takes the sums in pieces (kernels/grad_sink).
  const PieceSink* pieces = nullptr;
  // Of a sparse weight: `to`, or the pieces, are the values that it keeps, one
  // after the other.
  const Pattern* pattern = nullptr;
};

// grad_w[t] = scale * the sum of grad_y[r] over the rows r of token t, in row
// order. Zeros for tokens that do not occur. `rows` is the capacity for the
// workspace; the second one is for pieces.
Workspace EmbeddingGradWorkspace(const EmbeddingShape& shape, int64_t rows);
Workspace EmbeddingGradPiecesWorkspace(const EmbeddingShape& shape,
                                       int64_t rows);
void EmbeddingGrad(const EmbeddingShape& shape, int64_t rows, float scale,
                   const int32_t* tokens, const ConstTensor& grad_y,
                   const EmbeddingTarget& grad_w, const KernelContext& context);

}  // namespace thimble::kernels
