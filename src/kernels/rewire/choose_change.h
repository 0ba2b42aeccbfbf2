// SPDX-License-Identifier: Apache-2.0
//
// How much a rewiring prunes and grows in each matrix: numbers alone, nothing
// is moved. Pure functions of what they are given.
#pragma once

#include <cstdint>
#include <span>

#include "base/rng.h"
#include "kernels/rewire/matrix_change.h"
#include "kernels/tensor.h"

namespace thimble::kernels {

// Fill `pruned` and what says which blocks are (MatrixChange::cut and so on),
// where `blocks`, `first` and `kept` are known.
void PruneBelow(float threshold, const ConstTensor& weights,
                int64_t block_values, std::span<MatrixChange> changes);
// Fills `grown`, too.
void PruneSmallest(double fraction, const ConstTensor& weights,
                   int64_t block_values, std::span<MatrixChange> changes);

// Fills `grown` so that as many blocks grow as are pruned in all. In passes: of
// the r blocks still to be placed, a matrix shall get r times its share of all
// survivors, rounded to nearest, ties to even; the difference to r goes to one
// of all matrices at random (which gets none where that were negative). It gets
// what it has free positions for; and no more than r are placed, the first
// matrices first. A pass that places nothing is followed by one which gives all
// it can to one of the matrices with free positions at random. Where none has
// any, positions that were just pruned count as free.
void ShareGrowth(const RandomStream& random, std::span<MatrixChange> changes);

// The threshold for the next rewiring.
float NextThreshold(float threshold, int64_t pruned, int64_t target);

}  // namespace thimble::kernels
