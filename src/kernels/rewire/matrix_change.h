// SPDX-License-Identifier: Apache-2.0
//
// What a rewiring does to one matrix, in numbers. Plain values.
#pragma once

#include <cstdint>

namespace thimble::kernels {

struct MatrixChange {
  int64_t blocks = 0;     // positions
  int64_t first = 0;      // in the pool, before
  int64_t kept = 0;       // before
  int64_t new_first = 0;  // afterwards
  int64_t pruned = 0;
  int64_t grown = 0;

  // Pruned are blocks whose magnitude's bits (magnitude.h) are below `cut`, and
  // the first `ties` of those that are equal to it; with `keeps_first`, not the
  // first block of the matrix.
  uint32_t cut = 0;
  bool keeps_first = false;
  int64_t ties = 0;

  int64_t survivors() const { return kept - pruned; }
  int64_t new_kept() const { return survivors() + grown; }
  // Positions that keep nothing and did not before.
  int64_t free() const { return blocks - kept; }
  // What grows where it was pruned.
  int64_t regrown() const { return grown > free() ? grown - free() : 0; }
  bool is_none() const { return pruned == 0 && grown == 0; }
};

}  // namespace thimble::kernels
