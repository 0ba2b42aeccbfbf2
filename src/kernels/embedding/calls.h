// SPDX-License-Identifier: Apache-2.0
//
// What the parts of an embedding's call share. Internal to the kernels; views
// of the call's tensors, safe from every thread.
#pragma once

#include <cstdint>

#include "kernels/embedding/embedding.h"
#include "kernels/embedding/stored_rows.h"

namespace thimble::kernels {

struct EmbeddingCall {
  float scale;
  const int32_t* tokens;
  ConstTensor w;
  const Sentences* sentences;
  const double* frequencies;  // in quarters of a turn
  Tensor y;
};

struct EmbeddingGradCall {
  float scale;
  const embedding::StoredRows& rows;
  const embedding::TokenOrder& order;
  ConstTensor grad_y;
  const EmbeddingTarget& target;

  // Of scratch, for the dense rows of a unit.
  int64_t line_floats() const {
    return rows.is_sparse() ? rows.unit() * rows.shape().features : 0;
  }
};

}  // namespace thimble::kernels
